//! A crate outside the workspace, made from README.md's words, builds and runs the echo example.
//!
//! Cargo heeds patches only in the workspace that it builds, so nothing else here would know if a line that such a crate needs
//! were missing from the README.

use std::fs;
use std::path::Path;
use std::process::Command;

use verbline_tests::root;

#[test]
fn a_crate_made_from_the_readme_runs_the_echo_example() {
    let lines = cargo_lines(&fs::read_to_string(root().join("README.md")).unwrap());
    let lines = lines.replace("../verbline/", &format!("{}/", root().display()));
    let outside = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(outside.path().join(name), text).unwrap();
    write("Cargo.toml", &format!("[package]\nname = \"outside\"\nedition = \"2024\"\n\n{lines}"));
    fs::create_dir(outside.path().join("src")).unwrap();
    write("src/main.rs", &fs::read_to_string(root().join("crates/verbline/examples/echo.rs")).unwrap());
    // The versions that were fetched for the workspace: nothing is downloaded.
    write("Cargo.lock", &fs::read_to_string(root().join("Cargo.lock")).unwrap());

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--offline"]).current_dir(outside.path());
    // What cargo and `./x test` told this test about the workspace is none of that crate's.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && name != "CARGO_HOME" {
            cargo.env_remove(name);
        }
    }
    // Built once for all runs of the test; without debugging symbols, which take half of the time.
    cargo.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside"));
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "0");
    let output = cargo.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out, "1000 packets sent and received, none lost, none held\n", "{err}");
}

/// The lines for `Cargo.toml`: the indented block that begins with `[dependencies]`.
fn cargo_lines(readme: &str) -> String {
    let block = readme.lines().skip_while(|line| *line != "    [dependencies]");
    let block = block.take_while(|line| line.is_empty() || line.starts_with("    "));
    block.map(|line| format!("{}\n", line.trim_start())).collect()
}
