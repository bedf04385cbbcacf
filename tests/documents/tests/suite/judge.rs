//! Whether a command does what a reader expects of it.

use std::fs;
use std::path::{Path, PathBuf};

use verbline_tests::{recording, root};

use crate::checkout::Checkout;
use crate::commands::{Command, Mark};

pub(crate) enum Verdict {
    /// With the evidence.
    Holds(String),
    Fault(String),
}

/// Verbs that finish at once. All others build, measure, or test.
const AT_ONCE: [&str; 6] = ["run", "check", "graph", "keys", "devices", "help"];

/// Long enough to connect on a busy machine. A reader's run takes ten seconds.
const RUN_FOR: &str = "--for 2s";

/// The sources behind the driver's other verbs, which declare their options.
const HANDED_TO: [(&str, &[&str]); 13] = [
    ("asan", &["x"]),
    ("bench", &["benches/src/bin", "x"]),
    ("conformance", &["crates/verbs/conformance/src"]),
    ("fresh", &["tests/fresh"]),
    ("fuzz", &["fuzz/run"]),
    ("headers", &["tests/fresh"]),
    ("instructions", &["benches/src/bin/instructions"]),
    ("mutants", &["tests/mutants", "tests/weave/src"]),
    ("random-plans", &["tests/src/bin/random_plans"]),
    ("random-steps", &["x"]),
    ("soak", &["tests/src/bin/soak"]),
    ("test", &["tests/runner/src"]),
    ("test-rdma", &["tests/guest"]),
];

pub(crate) fn judge(command: &Command, checkout: &Checkout) -> Verdict {
    let code = match command.mark {
        Some(Mark::NotRun(why)) => return Verdict::Holds(format!("not run: it {why}")),
        Some(Mark::Exit(code)) => code,
        None => 0,
    };
    let words: Vec<&str> = command.text.split_whitespace().collect();
    let program = words.iter().position(|word| *word == "cargo" || word.ends_with("/x"));
    match program.map(|at| (words[at], &words[at + 1..])) {
        Some(("cargo", arguments)) => of_cargo(arguments),
        // Only the driver lists its verbs.
        Some((_, [] | ["…"])) => run("./x help", code, checkout),
        Some((_, [verb, arguments @ ..])) if !AT_ONCE.contains(verb) => of_the_driver(verb, arguments),
        _ => at_once(&command.text, code, checkout),
    }
}

/// Runs the command, with values in place of the placeholders.
fn at_once(text: &str, code: i32, checkout: &Checkout) -> Verdict {
    let mut line = text.replace("PLAN", "config/tick-to-trade.toml").replace('…', "");
    if line.contains("PATH") {
        let Some(dir) = recording() else { return Verdict::Holds("not run: the recorded feed is not here".to_owned()) };
        let dir = dir.canonicalize().unwrap_or(dir);
        line = line.replace("PATH", &dir.display().to_string());
    }
    if line.split_whitespace().any(|word| word == "run") && !line.contains("--for") {
        line = format!("{line} {RUN_FOR}");
    }
    run(&line, code, checkout)
}

fn run(line: &str, code: i32, checkout: &Checkout) -> Verdict {
    let finished = checkout.run(line);
    match finished.status.code() == Some(code) {
        true => Verdict::Holds(format!("run as `{line}`: exit code {code}")),
        false => Verdict::Fault(format!("exit code {code} is expected of `{line}`:\n{finished}")),
    }
}

/// Checks only the packages and targets that the command names; cargo itself is not ours.
fn of_cargo(arguments: &[&str]) -> Verdict {
    let named =
        arguments.windows(2).filter(|pair| ["-p", "--package", "--example", "--bin", "--test"].contains(&pair[0]));
    for pair in named {
        let is_there = match pair[0] {
            "-p" | "--package" => declares("", "Cargo.toml", &format!("name = \"{}\"", pair[1])),
            "--test" => {
                declares("", &format!("{}.rs", pair[1]), "") || declares("", &format!("tests/{}/main.rs", pair[1]), "")
            }
            _ => declares("", &format!("{}.rs", pair[1]), "") || declares("", &format!("{}/main.rs", pair[1]), ""),
        };
        if !is_there {
            return Verdict::Fault(format!("nothing is called {}", pair[1]));
        }
    }
    Verdict::Holds("not run, since it builds: what it names is there".to_owned())
}

/// Checks that the driver's help has the verb, and that the driver or the program behind the verb
/// declares the options.
fn of_the_driver(verb: &str, arguments: &[&str]) -> Verdict {
    let help = fs::read_to_string(root().join("x")).expect("the driver");
    if !help.lines().any(|line| line.starts_with(&format!("./x {verb} "))) {
        return Verdict::Fault(format!("`./x help` has no {verb}"));
    }
    let places = HANDED_TO.iter().find(|(known, _)| *known == verb).map_or(&["x"][..], |(_, places)| places);
    // Words behind `--` are for another program.
    let options = arguments.iter().take_while(|word| **word != "--").filter(|word| word.starts_with("--"));
    for option in options {
        let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
        if !places.iter().any(|place| declares_option(&root().join(place), name)) {
            return Verdict::Fault(format!("none of {places:?} declares --{name}"));
        }
    }
    Verdict::Holds("not run, since it builds or takes minutes: verb and options are there".to_owned())
}

/// Whether a file at or below `place` has `--name` in a script, or declares it to clap.
fn declares_option(place: &Path, name: &str) -> bool {
    let field = format!("{}:", name.replace('-', "_"));
    let is_declared = |text: &str| {
        let declared = |line: &str| {
            let line = line.trim_start();
            let line = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub(super) ")).unwrap_or(line);
            line.starts_with(&field)
        };
        text.contains(&format!("--{name}"))
            || text.contains(&format!("long = \"{name}\""))
            || text.lines().any(declared)
    };
    files(place).iter().filter_map(|file| fs::read_to_string(file).ok()).any(|text| is_declared(&text))
}

/// Whether a file below the folder, whose path ends so, has this text.
fn declares(folder: &str, end: &str, text: &str) -> bool {
    let ends_so = |file: &&PathBuf| file.to_string_lossy().ends_with(&format!("/{end}"));
    files(&root().join(folder))
        .iter()
        .filter(ends_so)
        .any(|file| fs::read_to_string(file).is_ok_and(|has| has.contains(text)))
}

/// The file, or all files below the folder except build output.
fn files(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let is_ours = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name != "target" && !name.starts_with('.'))
    };
    let entries = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_ours);
    entries.flat_map(|path| files(&path)).collect()
}

#[test]
fn a_verb_or_an_option_that_is_not_there_is_a_fault() {
    let is_fault = |verb, arguments: &[&str]| matches!(of_the_driver(verb, arguments), Verdict::Fault(_));
    assert!(is_fault("walk", &[]) && is_fault("fuzz", &["--quickly"]) && is_fault("soak", &["--forever"]));
    assert!(!is_fault("fuzz", &["--planted"]) && !is_fault("random-plans", &["--seed", "7", "--for", "1h"]));
    assert!(!is_fault("test", &["engine", "--", "--not-ours"]) && !is_fault("bench", &["peers", "--markdown"]));
    let is_fault = |arguments: &[&str]| matches!(of_cargo(arguments), Verdict::Fault(_));
    assert!(is_fault(&["test", "-p", "verbline-enginge"]) && is_fault(&["run", "--example", "ecko"]));
    assert!(!is_fault(&["run", "-p", "verbline", "--example", "echo"]));
}
