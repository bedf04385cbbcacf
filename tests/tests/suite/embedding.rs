//! A crate outside the workspace, made from README.md's words, builds and runs the echo example.
//!
//! Cargo heeds patches only in the workspace that it builds, so nothing else here would know if a
//! line that such a crate needs were missing from the README.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use verbline_tests::{root, skipped};

const EXAMPLE: &str = "crates/verbline/examples/echo.rs";

#[test]
fn a_crate_made_from_the_readme_runs_the_echo_example() {
    let checkout = format!("{}/", root().display());
    let outside = outside(&cargo_lines().replace("../verbline/", &checkout));
    // The versions that were fetched for the workspace: nothing is downloaded.
    let output = cargo(&outside, &["run", "--quiet", "--offline"]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out, "1000 packets sent and echoed, none lost, none held\n", "{err}");
}

/// Of what is committed: that is what cargo sees of a repository.
#[test]
fn with_git_in_place_of_the_paths_both_crates_come_from_the_repository() {
    if !root().join(".git").exists() {
        return skipped("this is no git checkout, so cargo can't fetch it by a URL");
    }
    let url = format!("file://{}", root().display());
    let lines = cargo_lines().replace("path = \"../verbline/crates/verbline\"", &format!("git = \"{url}\""));
    let lines = lines.replace("path = \"../verbline/crates/bindgen\"", &format!("git = \"{url}\""));
    assert!(!lines.contains("path ="), "{lines}");
    let outside = outside(&lines);
    // Not offline, for a repository on this disk counts as fetched from elsewhere; all else is
    // there.
    let output = cargo(&outside, &["metadata", "--format-version", "1"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !err.contains("was not used"), "{err}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    // Ours is the bindgen of the release that rdma-sys asks for; it depends on a newer one.
    for (name, release) in [("verbline", "0."), ("bindgen", "0.59.")] {
        let is_it = |package: &&Value| {
            package["name"] == name && package["version"].as_str().is_some_and(|version| version.starts_with(release))
        };
        let sources: Vec<_> = packages.iter().filter(is_it).map(|package| package["source"].as_str()).collect();
        let [Some(source)] = sources[..] else { panic!("{name}: {sources:?}") };
        assert!(source.starts_with(&format!("git+{url}")), "{name} is of {source}");
    }
}

#[test]
fn the_readmes_stage_is_the_examples() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let example = fs::read_to_string(root().join(EXAMPLE)).unwrap();
    let stage = block(&readme, |line| line == "    /// Sends every packet on as it came.");
    assert!(stage.contains("impl Stage for Echo {"), "{stage}");
    assert!(example.contains(stage.trim_end()), "the README shows another stage than {EXAMPLE}:\n{stage}");
    assert!(readme.contains(&format!("]({EXAMPLE})")));
}

/// A crate with these lines in its `Cargo.toml`, whose program is the example.
fn outside(lines: &str) -> TempDir {
    let outside = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(outside.path().join(name), text).unwrap();
    write("Cargo.toml", &format!("[package]\nname = \"outside\"\nedition = \"2024\"\n\n{lines}\n{}", profiles()));
    fs::create_dir(outside.path().join("src")).unwrap();
    write("src/main.rs", &fs::read_to_string(root().join(EXAMPLE)).unwrap());
    write("Cargo.lock", &fs::read_to_string(root().join("Cargo.lock")).unwrap());
    outside
}

fn cargo(outside: &TempDir, arguments: &[&str]) -> Output {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).current_dir(outside.path());
    // What cargo and `./x test` told this test about the workspace is none of that crate's.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && name != "CARGO_HOME" {
            cargo.env_remove(name);
        }
    }
    // Where the workspace is built, and by its profiles: what others wrote is built already.
    cargo.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap());
    let debug = std::env::var("CARGO_PROFILE_DEV_DEBUG").unwrap_or_else(|_| "line-tables-only".into());
    cargo.env("CARGO_PROFILE_DEV_DEBUG", debug);
    cargo.output().unwrap()
}

/// The workspace's profiles of a build for development.
fn profiles() -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let from = manifest.find("[profile.dev]").unwrap();
    let to = manifest.find("[profile.release]").unwrap();
    manifest[from..to].to_owned()
}

/// The README's lines for `Cargo.toml`.
fn cargo_lines() -> String {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    block(&readme, |line| line == "    [dependencies]")
}

/// The indented block that begins with this line, without its indentation.
fn block(readme: &str, begins: impl Fn(&str) -> bool) -> String {
    let lines = readme.lines().skip_while(|line| !begins(line));
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}
