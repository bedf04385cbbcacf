//! Crates outside the workspace, built as an embedder builds them, but in the workspace's own
//! target folder and with its profiles, so that dependencies are built already.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use verbline_tests::root;

/// Runs `./x new NAME` in this folder.
pub(crate) fn new_crate(folder: &Path, name: &str) -> Output {
    Command::new(root().join("x")).args(["new", name]).current_dir(folder).output().unwrap()
}

/// A copy elsewhere of a crate that is in this repository but not in its workspace.
pub(crate) fn copy_of(example: &str) -> TempDir {
    let (from, to) = (root().join(example), tempfile::tempdir().unwrap());
    copy_folder(&from, to.path());
    let manifest = fs::read_to_string(from.join("Cargo.toml")).unwrap();
    let manifest = manifest.replace("\"../../crates", &format!("\"{}/crates", root().display()));
    fs::write(to.path().join("Cargo.toml"), manifest).unwrap();
    fs::copy(root().join("Cargo.lock"), to.path().join("Cargo.lock")).unwrap();
    own_profiles(to.path());
    to
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true if entry.file_name() == "target" => {}
            true => {
                fs::create_dir_all(&to).unwrap();
                copy_folder(&entry.path(), &to);
            }
            false => _ = fs::copy(entry.path(), to).unwrap(),
        }
    }
}

/// Replaces the crate's own profiles by the workspace's.
pub(crate) fn own_profiles(made: &Path) {
    let manifest = fs::read_to_string(made.join("Cargo.toml")).unwrap();
    let own = manifest.find("[profile.dev]").unwrap();
    fs::write(made.join("Cargo.toml"), format!("{}{}[workspace]\n", &manifest[..own], profiles())).unwrap();
}

pub(crate) fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    as_an_embedder(Command::new(env!("CARGO")).args(arguments).current_dir(folder)).output().unwrap()
}

/// A command that is or calls cargo, without settings that belong to the workspace only.
pub(crate) fn as_an_embedder(cargo: &mut Command) -> &mut Command {
    // Removes what cargo and `./x test` told this test about the workspace. The incremental setting
    // stays, because cargo builds a crate again if it changes.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CARGO_") && name != "CARGO_HOME" && name != "CARGO_INCREMENTAL" {
            cargo.env_remove(name);
        }
    }
    // The workspace's target folder and profiles: dependencies are built already.
    cargo.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap());
    let debug = std::env::var("CARGO_PROFILE_DEV_DEBUG").unwrap_or_else(|_| "line-tables-only".into());
    cargo.env("CARGO_PROFILE_DEV_DEBUG", debug)
}

pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The workspace's profiles for development builds.
pub(crate) fn profiles() -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let from = manifest.find("[profile.dev]").unwrap();
    let to = manifest.find("[profile.release]").unwrap();
    manifest[from..to].to_owned()
}
