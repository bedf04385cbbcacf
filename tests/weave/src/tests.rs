//! The tests: their list, their times, and the places that each reaches.

use crate::build::Build;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// One test of one program.
#[derive(Clone, Debug)]
pub struct Test {
    pub program: PathBuf,
    pub folder: PathBuf,
    pub name: String,
    pub takes: Duration,
    pub reaches: BTreeSet<u32>,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    Failed,
    Hung,
}

impl Test {
    /// Runs the test, with a fault on or without one (0).
    pub fn run(&self, fault: u32, reach: Option<&Path>, within: Duration) -> End {
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", &format!("{:.1}", within.as_secs_f64())])
            .arg(&self.program)
            .args(["--exact", &self.name, "--test-threads=1"])
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("PLANTED", fault.to_string())
            .env("PROPTEST_FAILURE_PERSISTENCE", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(reach) = reach {
            command.env("PLANTED_REACH", reach);
        }
        match command.status() {
            Ok(status) if status.success() => End::Passed,
            // `timeout` kills itself the same way.
            Ok(status) if status.signal() == Some(9) || status.code() == Some(137) => End::Hung,
            _ => End::Failed,
        }
    }

    /// The time limit of the test with a fault on.
    pub fn limit(&self) -> Duration {
        self.takes * 4 + Duration::from_secs(4)
    }
}

/// Builds and lists the tests selected by these arguments of `cargo test`.
pub fn build(tree: &Path, build: Build, args: &[String]) -> Result<Vec<Test>, String> {
    let mut command = build.cargo(tree, "test");
    command.args(["--no-run"]).args(args);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cargo: {error}"))?;
    let mut tests = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let artifact: Value = serde_json::from_str(line).map_err(|error| format!("cargo: {error}"))?;
        if artifact["level"] == "error" || artifact["message"]["level"] == "error" {
            return Err(artifact["message"]["rendered"].as_str().unwrap_or_default().to_owned());
        }
        let (Some(program), Some(manifest)) = (artifact["executable"].as_str(), artifact["manifest_path"].as_str())
        else {
            continue;
        };
        if artifact["profile"]["test"] != true {
            continue;
        }
        let folder = Path::new(manifest).parent().unwrap_or(tree);
        tests.extend(listed(Path::new(program), folder)?);
    }
    if output.status.success() { Ok(tests) } else { Err("the tests don't build".to_owned()) }
}

fn listed(program: &Path, folder: &Path) -> Result<Vec<Test>, String> {
    let output = Command::new(program).args(["--list", "--format=terse"]).current_dir(folder).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let skip = std::env::var("WEAVE_SKIP").unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test")).filter(|name| *name != skip);
    Ok(names
        .map(|name| Test {
            program: program.to_owned(),
            folder: folder.to_owned(),
            name: name.to_owned(),
            takes: Duration::ZERO,
            reaches: BTreeSet::new(),
        })
        .collect())
}

/// Runs every test once without a fault. Failing tests are left out, and returned by name.
pub fn survey(tests: &mut Vec<Test>, work: &Path) -> Vec<String> {
    let mut failed = Vec::new();
    let reach = work.join("reach");
    for test in tests.iter_mut() {
        let _ = fs::remove_file(&reach);
        let begun = Instant::now();
        if test.run(0, Some(&reach), Duration::from_secs(180)) != End::Passed {
            failed.push(test.name.clone());
            continue;
        }
        test.takes = begun.elapsed();
        let text = fs::read_to_string(&reach).unwrap_or_default();
        test.reaches = text.lines().filter_map(|line| line.parse().ok()).collect();
    }
    tests.retain(|test| !test.reaches.is_empty());
    tests.sort_by_key(|test| test.takes);
    failed
}

/// The tests that reach each place, quickest first.
pub fn by_place(tests: &[Test]) -> HashMap<u32, Vec<usize>> {
    let mut places: HashMap<u32, Vec<usize>> = HashMap::new();
    for (index, test) in tests.iter().enumerate() {
        for place in &test.reaches {
            places.entry(*place).or_default().push(index);
        }
    }
    places
}
