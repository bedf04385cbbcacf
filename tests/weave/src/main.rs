//! Plants every small fault of a list in one build, each behind a switch, and runs the tests that
//! reach it: `tests/mutants` calls this. A fault needs no build of its own, and tests that never
//! reach it are not run.

mod build;
mod source;
mod tests;
mod weave;

use build::{Build, Planted};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tests::{End, Test};
use weave::Fault;

const USAGE: &str = "usage: weave TREE LIST OUT PACKAGE [loom] ARGUMENT…
TREE      a copy of the workspace, which is changed
LIST      what `cargo mutants --list --json` printed there
OUT       a folder for results; faults that a run before this one found are not tried again
PACKAGE   the one with the faults; several with commas between
ARGUMENT  of `cargo test`, e.g. `--package NAME --tests`: the tests that are shown the faults; `loom`: as models
environment: WEAVE_JOBS, how many tests run at a time (1); WEAVE_MINUTES, when to stop; WEAVE_SKIP, a test to leave out
exit code: 0 every fault that was tried was found; 1 some were not; 2 bad usage; 3 they could not be tried";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [tree, list, out, packages, arguments @ ..] = args.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (build, arguments) = match arguments {
        [first, rest @ ..] if first == "loom" => (Build::Loom, rest),
        all => (Build::Tests, all),
    };
    match run(Path::new(tree), Path::new(list), Path::new(out), build, packages, arguments) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("weave: {error}");
            ExitCode::from(3)
        }
    }
}

fn run(
    tree: &Path,
    list: &Path,
    out: &Path,
    build: Build,
    packages: &str,
    arguments: &[String],
) -> Result<usize, String> {
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let faults = read(list)?;
    let planted = build::plant(tree, &faults, build, packages)?;
    println!("weave: {} faults are in, {} don't compile", planted.places.len(), planted.unviable.len());
    let mut tests = tests::build(tree, build, arguments)?;
    let all = tests.len();
    for name in tests::survey(&mut tests, out) {
        println!("weave: without a fault this test fails here, so it is not asked: {name}");
    }
    println!("weave: {} of {all} tests come by a fault", tests.len());
    let results = out.join("results.jsonl");
    show(&faults, &planted, &tests, &results)?;
    Ok(summary(&faults, &planted, &results))
}

fn read(list: &Path) -> Result<Vec<Fault>, String> {
    let text = fs::read_to_string(list).map_err(|error| format!("{}: {error}", list.display()))?;
    let entries: Vec<Value> = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", list.display()))?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let place = |value: &Value| {
        let number = |key| value[key].as_u64().unwrap_or(1) as usize;
        (number("line"), number("column"))
    };
    Ok((1..)
        .zip(&entries)
        .map(|(id, entry)| Fault {
            id,
            name: word(&entry["name"]),
            file: word(&entry["file"]),
            genre: word(&entry["genre"]),
            replacement: word(&entry["replacement"]),
            start: place(&entry["span"]["start"]),
            end: place(&entry["span"]["end"]),
        })
        .collect())
}

/// The result of a fault.
#[derive(Clone)]
enum Fate {
    Found { by: String, hung: bool },
    Missed { asked: usize },
}

/// Turns the faults on, one at a time, on as many threads as `WEAVE_JOBS` says.
fn show(faults: &[Fault], planted: &Planted, tests: &[Test], path: &Path) -> Result<(), String> {
    let known = known(path);
    let log = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let log = Mutex::new(log);
    let by_place = tests::by_place(tests);
    let left: Vec<&Fault> = faults
        .iter()
        .filter(|fault| planted.places.contains_key(&fault.id) && known.get(&fault.name) != Some(&true))
        .collect();
    let finds = Mutex::new(HashMap::new());
    let (next, jobs) = (AtomicUsize::new(0), number("WEAVE_JOBS").unwrap_or(1));
    let ends = number("WEAVE_MINUTES").map(|minutes| Instant::now() + Duration::from_secs(60 * minutes as u64));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            // Relaxed: the counter hands out numbers, and no memory goes with them.
            scope.spawn(|| {
                while let Some(fault) = left.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if ends.is_some_and(|ends| Instant::now() > ends) {
                        break;
                    }
                    let asked = by_place.get(&planted.places[&fault.id]).map_or(&[][..], Vec::as_slice);
                    let fate = fate(fault, tests, asked.to_vec(), &finds);
                    note(&log, fault, &fate);
                }
            });
        }
    });
    Ok(())
}

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// The number of faults that a test has found in a file.
type Finds = Mutex<HashMap<(String, usize), u32>>;

/// Runs test after test, until one finds the fault. The result counts only if the test passes
/// without the fault.
fn fate(fault: &Fault, tests: &[Test], mut asked: Vec<usize>, finds: &Finds) -> Fate {
    let key = |index: usize| (fault.file.clone(), index);
    let known = finds.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // Tests that found the most of this file's faults per time go first.
    let cost = |index: &usize| tests[*index].takes / (1 + known.get(&key(*index)).copied().unwrap_or(0));
    asked.sort_by_key(cost);
    for index in &asked {
        let test = &tests[*index];
        let mut end = test.run(fault.id, None, test.limit());
        if end == End::Hung {
            // Once more, with more time: the machine may have been busy.
            end = test.run(fault.id, None, test.limit() * 2);
        }
        if end != End::Passed && test.run(0, None, test.limit()) == End::Passed {
            *finds.lock().unwrap_or_else(PoisonError::into_inner).entry(key(*index)).or_default() += 1;
            return Fate::Found { by: test.name.clone(), hung: end == End::Hung };
        }
    }
    Fate::Missed { asked: asked.len() }
}

fn note(log: &Mutex<File>, fault: &Fault, fate: &Fate) {
    let line = match fate {
        Fate::Found { by, hung } => json!({"name": fault.name, "found_by": by, "hung": hung}),
        Fate::Missed { asked } => json!({"name": fault.name, "asked": asked}),
    };
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = writeln!(log, "{line}") {
        eprintln!("weave: a result was not written: {error}");
    }
}

/// The results of earlier runs: for each fault, whether it was found.
fn known(path: &Path) -> HashMap<String, bool> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|line| Some((line["name"].as_str()?.to_owned(), line["found_by"].is_string())))
        .collect()
}

/// Prints the score and the missed faults. Returns the number of missed faults.
fn summary(faults: &[Fault], planted: &Planted, path: &Path) -> usize {
    let known = known(path);
    let (mut found, mut missed, mut equal) = (0, 0, 0);
    for fault in faults {
        match known.get(&fault.name) {
            Some(true) => found += 1,
            Some(false) if is_equivalent(fault, &planted.sources) => equal += 1,
            Some(false) => {
                missed += 1;
                println!("missed: {}", fault.name);
            }
            None => {}
        }
    }
    for id in &planted.unswitched {
        println!("not tried, for no switch can stand there: {}", faults[*id as usize - 1].name);
    }
    println!(
        "weave: {found} of {} faults were found; {equal} more change nothing (tests/weave/equivalent)",
        found + missed
    );
    missed
}

/// Whether the list of equivalent faults contains this one: its file, its name, and a part of its
/// line.
fn is_equivalent(fault: &Fault, sources: &HashMap<String, String>) -> bool {
    let line = sources.get(&fault.file).and_then(|text| text.lines().nth(fault.start.0 - 1)).unwrap_or_default();
    include_str!("../equivalent").lines().any(|entry| {
        let mut columns = entry.split('\t');
        let (file, what, text) = (columns.next(), columns.next().unwrap_or("?"), columns.next().unwrap_or("?"));
        file == Some(&fault.file) && fault.name.contains(what) && line.contains(text)
    })
}
