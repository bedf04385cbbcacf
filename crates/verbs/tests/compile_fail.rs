//! What must not compile: each program misuses one guarantee, and the compiler's answer is on file
//! beside it, without the numbers of our own lines. They are compiled with the crates that the
//! tests were built with, so that nothing is built for them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

/// The workspace, in which paths of errors begin.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// A program that uses the crates as it should: what is refused is refused for its misuse.
const USED: &str = "fn once(qp: &mut verbline_verbs::QueuePair, batch: &mut verbline_mem::Batch) {
    let _ = qp.post_send(batch);
}
fn main() {}
";

/// The files of two libraries that go together: of verbs and of mem.
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

/// What the compiler says of a program that it must refuse, up to its count of errors.
fn refused(libraries: Libraries<'_>, program: &str) -> String {
    let output = compiled(libraries, Path::new(program));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{program} compiles");
    assert!(said.contains(&format!("--> {program}:")), "{program} is not refused for what it says: {said}");
    let (errors, _) = said.split_once("\nerror: aborting due to").expect("it counts its errors");
    errors.lines().map(without_our_lines).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// A line of an answer without its margin, in which lines are numbered, and without the place in a
/// file that is none of these programs: both change with what is written above them.
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

/// Where cargo has put this program and what it is made of.
fn beside_this() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().expect("a program lies in a folder").to_owned()
}

/// A library as often as cargo has built it for packages of this workspace, with other features or
/// for other ones; the newest first, which is of today's sources.
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

/// Whether cargo has built a library as a member of this workspace. Other tests build embedders'
/// crates beside us; a compiler that reads their library names our files by whole paths, or by
/// those of a clone.
fn is_of_workspace(library: &Path) -> bool {
    let name = library.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let sources = library.with_file_name(format!("{}.d", name.trim_start_matches("lib")));
    let sources = std::fs::read_to_string(&sources).unwrap_or_else(|error| panic!("{}: {error}", sources.display()));
    sources.lines().any(|source| source.starts_with("crates/") && source.ends_with("/src/lib.rs:"))
}

/// The newest pair that a program can use.
fn that_go_together<'a>(verbs: &'a [PathBuf], mem: &'a [PathBuf]) -> Libraries<'a> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("used.rs");
    std::fs::write(&program, USED).unwrap();
    let mut pairs = verbs.iter().flat_map(|verbs| mem.iter().map(move |mem| [verbs.as_path(), mem.as_path()]));
    let found = pairs.find(|pair| compiled(*pair, &program).status.success());
    found.unwrap_or_else(|| panic!("no pair of {verbs:?} and {mem:?} compiles {USED}"))
}
