//! Builds the test programs of the workspace, and tells which of them need the machine to
//! themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// Why tests could not be built or run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{program}: {error}")]
    Start { program: String, error: std::io::Error },
    #[error("cargo's answer can't be read: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("the tests don't build: what cargo said is above")]
    Build,
    #[error("no crate is called {name}; there are: {}", there.join(", "))]
    NoCrate { name: String, there: Vec<String> },
    #[error("{program} doesn't list its tests: {said}")]
    List { program: String, said: String },
    #[error("which CPUs this process may use can't be asked or set: {0}")]
    Cpus(std::io::Error),
    #[error("signals can't be watched: {0}")]
    Signals(std::io::Error),
    #[error("interrupted")]
    Interrupted,
}

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct Crate {
    pub package: String,
    folder: PathBuf,
}

/// A test program that cargo built.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub package: String,
    pub folder: PathBuf,
    /// `unit`, or the target's own name.
    pub target: String,
    pub executable: PathBuf,
    /// Its tests pin lcores, so nothing else may run on their CPUs.
    pub lcores: bool,
}

impl Built {
    /// The folder into which cargo puts this program and others, the apps among them: two levels
    /// up, beside `deps` and `examples`.
    pub(crate) fn profile_folder(&self) -> Option<PathBuf> {
        self.executable.parent()?.parent().map(Path::to_owned)
    }

    /// The name that a person reads: `engine suite`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", short(&self.package), self.target)
    }
}

/// A set of loom models: built with loom's own atomics, in a target folder of its own.
#[derive(Debug)]
pub(crate) struct Model {
    packages: &'static [&'static str],
    targets: &'static [&'static str],
}

impl Model {
    pub(crate) fn of_one_of(&self, crates: &[Crate]) -> bool {
        crates.iter().any(|one| self.packages.contains(&one.package.as_str()))
    }
}

/// All crates but our bindgen. It has neither tests nor examples and is built for build scripts
/// only; leaving it out saves a second build of it and its dependencies.
const OF_ALL: [&str; 3] = ["--workspace", "--exclude", "bindgen"];

/// Named beside chosen crates, so that cargo selects features as for the whole workspace: see this
/// package's manifest.
const AS_ALL: [&str; 2] = ["-p", env!("CARGO_PKG_NAME")];

pub(crate) const MODELS: &[Model] = &[
    Model { packages: &["verbline-ring", "verbline-sync"], targets: &["--test", "loom"] },
    Model { packages: &["verbline-mem"], targets: &["--lib"] },
];

/// The crates of these names. No name means all crates, and gives an empty list.
pub(crate) fn packages<'a>(names: impl Iterator<Item = &'a String>) -> Result<Vec<Crate>, Error> {
    let names: Vec<&String> = names.collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let all = metadata()?;
    names.into_iter().map(|name| called(name, &all)).collect()
}

fn called(name: &str, all: &BTreeMap<String, Manifest>) -> Result<Crate, Error> {
    let is_it = |(package, manifest): &(&String, &Manifest)| {
        package.as_str() == name || short(package) == name || manifest.folder.ends_with(name)
    };
    match all.iter().find(is_it) {
        Some((package, manifest)) => Ok(Crate { package: package.clone(), folder: manifest.folder.clone() }),
        None => {
            let there = all.keys().map(|package| short(package).to_owned()).collect();
            Err(Error::NoCrate { name: name.to_owned(), there })
        }
    }
}

fn short(package: &str) -> &str {
    package.strip_prefix("verbline-").unwrap_or(package)
}

#[derive(Debug)]
struct Manifest {
    folder: PathBuf,
    lcores: bool,
    has_library: bool,
}

fn metadata() -> Result<BTreeMap<String, Manifest>, Error> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| Error::Start { program: "cargo".to_owned(), error })?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages
        .map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
            let folder = manifest.parent().unwrap_or(Path::new(".")).to_owned();
            let lcores = package["metadata"]["tests"]["lcores"].as_bool() == Some(true);
            let targets = package["targets"].as_array();
            let has_library = targets.into_iter().flatten().any(|target| target["kind"][0] == "lib");
            (package["name"].as_str().unwrap_or_default().to_owned(), Manifest { folder, lcores, has_library })
        })
        .collect())
}

/// Builds the tests of these crates; an empty list means all.
pub(crate) fn tests(crates: &[Crate]) -> Result<Vec<Built>, Error> {
    let mut arguments = Vec::new();
    match crates {
        [] => arguments.extend(OF_ALL),
        some => {
            arguments.extend(AS_ALL);
            some.iter().for_each(|one| arguments.extend(["-p", &one.package]));
        }
    }
    built(&mut cargo(), &arguments)
}

/// Builds models.
pub(crate) fn model(model: &Model) -> Result<Vec<Built>, Error> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(PathBuf::from("target"), PathBuf::from);
    let mut command = cargo();
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target.join("loom"));
    let mut arguments = vec!["--profile", "loom"];
    model.packages.iter().for_each(|package| arguments.extend(["-p", package]));
    arguments.extend(model.targets);
    let mut programs = built(&mut command, &arguments)?;
    for program in &mut programs {
        // A model explores within one thread, whatever the crate's other tests do.
        program.lcores = false;
        program.target = "models".to_owned();
    }
    Ok(programs)
}

fn built(command: &mut Command, arguments: &[&str]) -> Result<Vec<Built>, Error> {
    let manifests = metadata()?;
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(arguments);
    command.stderr(Stdio::inherit());
    let output = command.output().map_err(|error| Error::Start { program: "cargo".to_owned(), error })?;
    if !output.status.success() {
        return Err(Error::Build);
    }
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let artifact: Value = serde_json::from_str(line)?;
        if artifact["profile"]["test"] == true {
            programs.extend(program(&artifact, &manifests));
        }
    }
    Ok(programs)
}

fn program(artifact: &Value, manifests: &BTreeMap<String, Manifest>) -> Option<Built> {
    let executable = PathBuf::from(artifact["executable"].as_str()?);
    let folder = Path::new(artifact["manifest_path"].as_str()?).parent()?.to_owned();
    let (package, manifest) = manifests.iter().find(|(_, manifest)| manifest.folder == folder)?;
    let target = match (artifact["target"]["kind"][0].as_str()?, artifact["target"]["name"].as_str()?) {
        ("lib", _) => "unit".to_owned(),
        ("test", name) => name.to_owned(),
        (kind, name) => format!("{kind} {name}"),
    };
    Some(Built { package: package.clone(), folder, target, executable, lcores: manifest.lcores })
}

/// The result of the examples in the documentation.
#[derive(Debug)]
pub(crate) struct Documented {
    pub passed: usize,
    pub failed: usize,
    pub said: String,
}

/// Runs the examples in the documentation, which cargo builds and runs in one go.
pub(crate) fn documentation(crates: &[Crate]) -> Result<Documented, Error> {
    let manifests = metadata()?;
    let mut command = cargo();
    command.args(["test", "--doc", "--no-fail-fast", "--quiet"]).stderr(Stdio::inherit());
    match crates {
        [] => drop(command.args(OF_ALL)),
        some => {
            let libraries =
                some.iter().filter(|one| manifests.values().any(|m| m.has_library && m.folder == one.folder));
            let arguments: Vec<&str> = libraries.flat_map(|one| ["-p", one.package.as_str()]).collect();
            if arguments.is_empty() {
                return Ok(Documented { passed: 0, failed: 0, said: String::new() });
            }
            command.args(AS_ALL).args(arguments);
        }
    }
    let output = command.output().map_err(|error| Error::Start { program: "cargo".to_owned(), error })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = |what: &str| -> usize {
        let results = said.lines().filter_map(|line| line.strip_prefix("test result: "));
        results
            .filter_map(|line| {
                line.split("; ")
                    .find_map(|part| part.rsplit_once(what)?.0.rsplit(' ').find_map(|word| word.parse::<usize>().ok()))
            })
            .sum()
    };
    let (passed, mut failed) = (count(" passed"), count(" failed"));
    if !output.status.success() && failed == 0 {
        failed = 1;
    }
    Ok(Documented { passed, failed, said })
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
