//! Crates outside the workspace build and run: the crate that `./x new` makes, and a crate with the
//! lines of docs/embedding.md for `Cargo.toml`.
//!
//! Cargo heeds patches only in the workspace that it builds, so no other test would notice that
//! such a crate needs a missing line.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;
use verbline_tests::{root, skipped};

use crate::outside::{cargo, copy_of, new_crate, own_profiles, profiles, said};

const PULSE: &str = "examples/pulse";
const DOCUMENT: &str = "docs/embedding.md";

/// Made, tested and run as in README.md. It uses the workspace's profiles, so that its dependencies
/// are built already.
#[test]
fn a_new_crate_passes_its_test_and_runs_its_plan() {
    let outside = tempfile::tempdir().unwrap();
    let new = |name: &str| new_crate(outside.path(), name);
    let made = new("heart-beat");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made = outside.path().join("heart-beat");
    own_profiles(&made);

    let tested = cargo(&made, &["test", "--quiet", "--offline"]);
    assert!(tested.status.success(), "{}", said(&tested));
    // One test of the stage alone, and one of a run.
    assert_eq!(String::from_utf8_lossy(&tested.stdout).matches("1 passed").count(), 2, "{}", said(&tested));
    let ran = cargo(&made, &["run", "--quiet", "--offline", "--", "run", "plan.toml", "--for", "300ms"]);
    assert!(ran.status.success(), "{}", said(&ran));
    let report = String::from_utf8_lossy(&ran.stdout);
    assert!(report.contains("plan: ran") && report.contains("0 held"), "{report}");

    // `./x new` leaves an existing folder alone, and refuses names that can't be a crate's.
    let (there, name) = ("is there already", "the name of a crate");
    for (name, why) in [("heart-beat", there), ("Heart", name), ("", name)] {
        let refused = new(name);
        assert_eq!(refused.status.code(), Some(2), "{name}: {}", said(&refused));
        assert!(String::from_utf8_lossy(&refused.stderr).contains(why), "{name}: {}", said(&refused));
    }
}

/// Builds an embedder's program with a thread of its own, as an embedder does.
#[test]
fn the_gateway_passes_its_test() {
    let outside = copy_of("examples/gateway");
    let tested = cargo(outside.path(), &["test", "--quiet", "--offline"]);
    assert!(tested.status.success(), "{}", said(&tested));
    assert!(String::from_utf8_lossy(&tested.stdout).contains("1 passed"), "{}", said(&tested));
}

/// Uses the commit: cargo sees only committed files of a repository.
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
    // Not offline, because a repository on this disk counts as fetched from elsewhere; everything
    // else is there.
    let output = cargo(outside.path(), &["metadata", "--format-version", "1"]);
    assert!(output.status.success() && !said(&output).contains("was not used"), "{}", said(&output));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    // Our bindgen has the release that rdma-sys asks for, and depends on a newer one.
    for (name, release) in [("verbline", "0."), ("bindgen", "0.59.")] {
        let is_it = |package: &&Value| {
            package["name"] == name && package["version"].as_str().is_some_and(|version| version.starts_with(release))
        };
        let sources: Vec<_> = packages.iter().filter(is_it).map(|package| package["source"].as_str()).collect();
        let [Some(source)] = sources[..] else { panic!("{name}: {sources:?}") };
        assert!(source.starts_with(&format!("git+{url}")), "{name} is of {source}");
    }
}

/// The lines of the document, and of the crate that `./x new` copies.
#[test]
fn the_lines_for_cargo_are_the_same_everywhere() {
    let manifest = fs::read_to_string(root().join(PULSE).join("Cargo.toml")).unwrap();
    for line in cargo_lines().lines().filter(|line| !line.is_empty()) {
        let line = line.replace("../verbline/crates", "../../crates");
        assert!(manifest.lines().any(|known| known == line), "{PULSE}/Cargo.toml has no line `{line}`");
    }
}

#[test]
fn the_readmes_stage_and_plan_are_those_of_a_new_crate() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (language, file) in [("rust", "src/lib.rs"), ("toml", "plan.toml")] {
        let shown = fenced(&readme, language);
        let file = format!("{PULSE}/{file}");
        let whole = fs::read_to_string(root().join(&file)).unwrap();
        assert!(shown.lines().count() >= 15, "README.md has no such block of {language}: {shown}");
        assert!(whole.contains(shown), "README.md shows something else than {file}:\n{shown}");
    }
}

/// The first block of this language.
fn fenced<'a>(document: &'a str, language: &str) -> &'a str {
    let behind = document.split_once(&format!("```{language}\n")).map_or("", |(_, behind)| behind);
    behind.split_once("```").map_or("", |(block, _)| block)
}

/// A crate with these lines in its `Cargo.toml`.
fn outside(lines: &str) -> TempDir {
    let outside = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(outside.path().join(name), text).unwrap();
    write("Cargo.toml", &format!("[package]\nname = \"outside\"\nedition = \"2024\"\n\n{lines}\n{}", profiles()));
    fs::create_dir(outside.path().join("src")).unwrap();
    write("src/main.rs", "fn main() {}\n");
    write("Cargo.lock", &fs::read_to_string(root().join("Cargo.lock")).unwrap());
    outside
}

/// The document's lines for `Cargo.toml`.
fn cargo_lines() -> String {
    let document = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let lines = document.lines().skip_while(|line| *line != "    [dependencies]");
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}
