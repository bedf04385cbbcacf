//! Weaves faults into a copy of the sources, and removes those that don't compile there.

use crate::weave::{Fault, weave};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How the sources are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// As for tests.
    Tests,
    /// As for the models of loom.
    Loom,
}

impl Build {
    /// A cargo command for this build; its messages are JSON.
    pub fn cargo(self, tree: &Path, what: &str) -> Command {
        let mut command = Command::new("cargo");
        command.args([what, "--quiet", "--message-format=json"]).current_dir(tree);
        match self {
            Self::Tests => command.env("RUSTFLAGS", "--cap-lints=allow"),
            Self::Loom => command.arg("--profile=loom").env("RUSTFLAGS", "--cap-lints=allow --cfg loom"),
        };
        command
    }
}

/// The faults in the build.
pub struct Planted {
    /// The place of each woven fault.
    pub places: HashMap<u32, u32>,
    /// Faults that don't compile, a result that cargo-mutants gives by the same means.
    pub unviable: BTreeSet<u32>,
    /// Faults that can't be behind a switch: in constants, or in functions that return
    /// `impl Trait`.
    pub unswitched: Vec<u32>,
    /// The texts of the files without faults.
    pub sources: HashMap<String, String>,
}

/// A file's faults, and the lines of their texts.
type Lines = HashMap<PathBuf, Vec<(Range<usize>, Vec<u32>)>>;

pub fn plant(tree: &Path, faults: &[Fault], build: Build, packages: &str) -> Result<Planted, String> {
    let mut by_file: BTreeMap<&str, Vec<&Fault>> = BTreeMap::new();
    for fault in faults {
        by_file.entry(&fault.file).or_default().push(fault);
    }
    let sources: BTreeMap<&str, String> = by_file
        .keys()
        .map(|file| {
            fs::read_to_string(tree.join(file)).map(|text| (*file, text)).map_err(|error| format!("{file}: {error}"))
        })
        .collect::<Result<_, _>>()?;
    add_switch(tree, faults)?;
    let mut unviable = BTreeSet::new();
    loop {
        let (mut lines, mut places, mut chains) = (Lines::new(), HashMap::new(), Vec::new());
        for (file, faults) in &by_file {
            let faults: Vec<&Fault> = faults.iter().filter(|fault| !unviable.contains(&fault.id)).copied().collect();
            let woven = weave(&sources[file], &faults).map_err(|error| format!("{file}: {error}"))?;
            write(&tree.join(file), &woven.text)?;
            lines.insert(tree.join(file), woven.lines);
            places.extend(woven.places);
            chains.extend(woven.unviable);
        }
        let before = unviable.len();
        match refused(tree, build, packages, &lines)? {
            refused if refused.is_empty() => {
                unviable.extend(chains);
                let out = |fault: &&Fault| !unviable.contains(&fault.id) && !places.contains_key(&fault.id);
                let unswitched = faults.iter().filter(out).map(|fault| fault.id).collect();
                let sources = sources.into_iter().map(|(file, text)| (file.to_owned(), text)).collect();
                return Ok(Planted { places, unviable, unswitched, sources });
            }
            refused => unviable.extend(refused),
        }
        println!("weave: {} faults don't compile, as far as is known", unviable.len());
        if unviable.len() == before {
            return Err("what doesn't compile was taken back, and it still doesn't".to_owned());
        }
    }
}

/// Adds the switch as a module to every crate that has faults.
fn add_switch(tree: &Path, faults: &[Fault]) -> Result<(), String> {
    let folders: BTreeSet<&str> =
        faults.iter().filter_map(|fault| fault.file.split_once("/src/")).map(|(at, _)| at).collect();
    for folder in folders {
        let src = tree.join(folder).join("src");
        write(&src.join("planted.rs"), include_str!("planted.rs"))?;
        for root in ["lib.rs", "main.rs"].map(|root| src.join(root)).iter().filter(|root| root.exists()) {
            let text = fs::read_to_string(root).map_err(|error| format!("{}: {error}", root.display()))?;
            write(root, &format!("{text}\n#[doc(hidden)]\npub mod planted;\n"))?;
        }
    }
    Ok(())
}

/// Writes a file only if it changes, so that the rest is not built again.
fn write(file: &Path, text: &str) -> Result<(), String> {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Compiles, and returns the faults that the compiler refuses.
fn refused(tree: &Path, build: Build, packages: &str, lines: &Lines) -> Result<BTreeSet<u32>, String> {
    let mut command = build.cargo(tree, "check");
    command.arg("--keep-going").stderr(Stdio::null());
    for package in packages.split(',') {
        command.args(["--package", package]);
    }
    let output = command.output().map_err(|error| format!("cargo: {error}"))?;
    let mut refused = BTreeSet::new();
    let mut strange = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).map_err(|error| format!("cargo: {error}"))?;
        if message["message"]["level"] != "error" {
            continue;
        }
        let faults = faults_of(tree, &message["message"], lines);
        if faults.is_empty() && message["message"]["spans"].as_array().is_some_and(|spans| !spans.is_empty()) {
            strange.push(message["message"]["rendered"].as_str().unwrap_or_default().to_owned());
        }
        refused.extend(faults);
    }
    if refused.is_empty() && !output.status.success() {
        return Err(format!("the compiler refuses what no fault accounts for:\n{}", strange.concat()));
    }
    Ok(refused)
}

/// The faults on the lines that an error names: on its main line, or if there are none, on the
/// others.
fn faults_of(tree: &Path, message: &Value, lines: &Lines) -> BTreeSet<u32> {
    let spans = message["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |primary: bool| -> BTreeSet<u32> {
        spans
            .iter()
            .filter(|span| span["is_primary"] == primary)
            .flat_map(|span| {
                let file = tree.join(span["file_name"].as_str().unwrap_or_default());
                let line = span["line_start"].as_u64().unwrap_or_default() as usize;
                let at = lines.get(&file).map(Vec::as_slice).unwrap_or_default();
                at.iter().filter(move |(range, _)| range.contains(&line)).flat_map(|(_, faults)| faults.clone())
            })
            .collect()
    };
    let main = of(true);
    if main.is_empty() { of(false) } else { main }
}
