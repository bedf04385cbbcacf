//! What must not compile: each program misuses one guarantee, and the compiler's answer is on file
//! beside it, an error a line. They are compiled with the crates that the tests were built with,
//! so that nothing is built for them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The workspace, in which paths of errors begin.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn misuse_does_not_compile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let programs: Vec<PathBuf> = entries.filter(|path| path.extension() == Some(OsStr::new("rs"))).collect();
    assert!(!programs.is_empty(), "no program in {}", folder.display());
    let libraries = libraries();
    for program in programs {
        let name = program.file_stem().unwrap().to_str().unwrap();
        let said = refused(&libraries, &format!("crates/verbs/tests/compile_fail/{name}.rs"));
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(&folder);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, said));
    }
}

/// A program that uses the crates as it should compiles: what is refused is refused for its misuse.
#[test]
fn use_compiles() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("used.rs");
    let text = "fn once(qp: &mut verbline_verbs::QueuePair, batch: &mut verbline_mem::Batch) {
    let _ = qp.post_send(batch);
}
fn main() {}
";
    std::fs::write(&program, text).unwrap();
    let output = compiled(&libraries(), &program);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What the compiler says of a program that it must refuse: each error with its place.
fn refused(libraries: &[(String, PathBuf)], program: &str) -> String {
    let output = compiled(libraries, Path::new(program));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{program} compiles");
    let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("crates/verbs/tests/")).collect();
    assert!(!errors.is_empty(), "{program} is not refused for what it says: {said}");
    errors.join("\n")
}

fn compiled(libraries: &[(String, PathBuf)], program: &Path) -> Output {
    let made = tempfile::tempdir().unwrap();
    let mut rustc = Command::new("rustc");
    rustc.current_dir(ROOT).args(["--edition=2024", "--error-format=short", "--emit=metadata", "-Awarnings"]);
    for (name, file) in libraries {
        let folder = file.parent().expect("a file lies in a folder").display();
        rustc.arg("--extern").arg(format!("{name}={}", file.display())).arg(format!("-Ldependency={folder}"));
    }
    rustc.arg("--out-dir").arg(made.path()).arg(program).output().expect("rustc starts")
}

/// The libraries that programs may use, as cargo has built them for the tests of the workspace.
fn libraries() -> Vec<(String, PathBuf)> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let words =
        ["build", "--offline", "--message-format=json", "-p", "verbline-verbs", "-p", "test-runner", "--examples"];
    let output = Command::new(cargo).current_dir(ROOT).args(words).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let artifacts = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let library = |artifact: serde_json::Value| {
        let name =
            artifact["target"]["name"].as_str().filter(|name| ["verbline_mem", "verbline_verbs"].contains(name))?;
        let files = artifact["filenames"].as_array()?.iter().filter_map(|file| file.as_str());
        let file = files.into_iter().find(|file| file.ends_with(".rlib"))?;
        Some((name.to_owned(), PathBuf::from(file)))
    };
    let libraries: Vec<_> = artifacts.filter_map(library).collect();
    assert_eq!(libraries.len(), 2, "{libraries:?}");
    libraries
}
