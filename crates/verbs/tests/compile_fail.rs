//! Programs that must not compile: each misuses one guarantee, and the compiler's answer is on file
//! beside it, without our own line numbers. The programs use the libraries that the tests were
//! built with, so that nothing is built for them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

/// The workspace's root, relative to which errors print paths.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// A correct program: if it compiles, the others are refused for their misuse alone.
const USED: &str = "fn once(qp: &mut verbline_verbs::QueuePair, batch: &mut verbline_mem::Batch) {
    let _ = qp.post_send(batch);
}
fn main() {}
";

/// The files of two matching libraries, verbs and mem.
type Libraries<'a> = [&'a Path; 2];

#[test]
fn misuse_does_not_compile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let programs: Vec<PathBuf> = entries.filter(|path| path.extension() == Some(OsStr::new("rs"))).collect();
    assert!(!programs.is_empty(), "no program in {}", folder.display());
    let [verbs, mem] = ["verbline_verbs", "verbline_mem"].map(built);
    let libraries = that_go_together(&verbs, &mem);
    for program in programs {
        let name = program.file_stem().unwrap().to_str().unwrap();
        let said = refused(libraries, &format!("crates/verbs/tests/compile_fail/{name}.rs"));
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(&folder);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, said));
    }
}

/// The compiler's errors for a program that it must refuse, up to their count.
fn refused(libraries: Libraries<'_>, program: &str) -> String {
    let output = compiled(libraries, Path::new(program));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{program} compiles");
    assert!(said.contains(&format!("--> {program}:")), "{program} is not refused for what it says: {said}");
    let (errors, _) = said.split_once("\nerror: aborting due to").expect("it counts its errors");
    errors.lines().map(without_our_lines).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// A line of the compiler's output without its margin, which has line numbers, and without
/// positions in files other than these programs: both change with edits above them.
fn without_our_lines(line: &str) -> String {
    let text = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
    let Some(place) = text.strip_prefix("--> ").or_else(|| text.strip_prefix("::: ")) else {
        let has_margin = text.len() < line.len() && text.starts_with(['|', '=', '+', '-', '~']);
        return if has_margin { text.to_owned() } else { line.to_owned() };
    };
    let is_of_program = place.starts_with("crates/verbs/tests/");
    let place = if is_of_program { place } else { place.split(':').next().unwrap_or(place) };
    format!("--> {place}")
}

fn compiled(libraries: Libraries<'_>, program: &Path) -> Output {
    let made = tempfile::tempdir().unwrap();
    let mut rustc = Command::new("rustc");
    rustc.current_dir(ROOT).args(["--edition=2024", "--emit=metadata", "-Awarnings"]);
    for (name, file) in ["verbline_verbs", "verbline_mem"].into_iter().zip(libraries) {
        rustc.arg("--extern").arg(format!("{name}={}", file.display()));
    }
    rustc.arg(format!("-Ldependency={}", beside_this().display()));
    rustc.arg("--out-dir").arg(made.path()).arg(program).output().expect("rustc starts")
}

/// The folder of this test program and its dependencies.
fn beside_this() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().expect("a program lies in a folder").to_owned()
}

/// All builds of a library for packages of this workspace, as cargo builds it again for other
/// features or dependents; the newest first, which is of the current sources.
fn built(name: &str) -> Vec<PathBuf> {
    let is_it = |file: &PathBuf| {
        let file_name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        file_name.starts_with(&format!("lib{name}-")) && file_name.ends_with(".rlib") && is_of_workspace(file)
    };
    let files = beside_this().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = files.filter(is_it).collect();
    let age = |file: &PathBuf| file.metadata().and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    found.sort_by_key(|file| std::cmp::Reverse(age(file)));
    found
}

/// Whether cargo built a library as a member of this workspace. Other tests build embedders' crates
/// in the same folder; errors with those libraries name our files by absolute paths, or by a
/// clone's.
fn is_of_workspace(library: &Path) -> bool {
    let name = library.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let sources = library.with_file_name(format!("{}.d", name.trim_start_matches("lib")));
    let sources = std::fs::read_to_string(&sources).unwrap_or_else(|error| panic!("{}: {error}", sources.display()));
    sources.lines().any(|source| source.starts_with("crates/") && source.ends_with("/src/lib.rs:"))
}

/// The newest pair that compiles a program.
fn that_go_together<'a>(verbs: &'a [PathBuf], mem: &'a [PathBuf]) -> Libraries<'a> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("used.rs");
    std::fs::write(&program, USED).unwrap();
    let mut pairs = verbs.iter().flat_map(|verbs| mem.iter().map(move |mem| [verbs.as_path(), mem.as_path()]));
    let found = pairs.find(|pair| compiled(*pair, &program).status.success());
    found.unwrap_or_else(|| panic!("no pair of {verbs:?} and {mem:?} compiles {USED}"))
}
