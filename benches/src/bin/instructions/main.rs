//! Compares the instruction counts of the hot path with stored ones:
//! `./x instructions [--row NAME] [--write] [--list]`.
//!
//! Time varies with the machine's load, instructions do not: callgrind counts each subject at two
//! sizes, and the difference is the cost of an operation. A row of over 3 % more than stored in
//! `benches/instructions.toml` fails, by name (exit 1). `--write` stores the counts, for an
//! intended change.
//!
//! Counts depend on the compiler and the profile: they are stored for the release profile of this
//! repository, along with the tools' versions. The counted program has the profile `counted`, which
//! leaves crates that no row executes unoptimized; counts are the same.

#![forbid(unsafe_code)]

mod baseline;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use verbline_benches::callgrind;
use verbline_benches::ours::counted::{FEED, SUBJECTS, Subject};

use baseline::Baseline;

/// Counts instructions of the hot path and compares them with the stored ones.
#[derive(Debug, Parser)]
#[command(name = "instructions", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Count this row only (may be given several times)
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,

    /// Store what was counted
    #[arg(long)]
    write: bool,

    /// Say what the rows count, and count nothing
    #[arg(long)]
    list: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Do a row's work this many times: what callgrind runs
    Run { row: String, count: u64 },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::Run { row, count }) => subject(row).map(|subject| {
            (subject.run)(*count);
            true
        }),
        None if arguments.list => {
            SUBJECTS.iter().for_each(|subject| println!("{:<14} {}", subject.name, subject.what));
            Ok(true)
        }
        None => check(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("instructions: {message}");
            ExitCode::from(2)
        }
    }
}

fn subject(name: &str) -> Result<&'static Subject, String> {
    let found = SUBJECTS.iter().find(|subject| subject.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = SUBJECTS.iter().map(|subject| subject.name).collect();
        format!("no row is called `{name}`; there are {}", names.join(", "))
    })
}

/// Instructions of one operation.
fn count(subject: &Subject) -> Result<f64, String> {
    /// Runs of each size.
    const RUNS: usize = 3;
    let exe = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let run = |count: u64| callgrind::instructions(subject.within, &exe, &["run", subject.name, &count.to_string()]);
    callgrind::per_operation(subject.counts, RUNS, run).map_err(|error| error.to_string())
}

/// Counts and prints the rows. Returns whether every row passes.
fn check(arguments: &Arguments) -> Result<bool, String> {
    let chosen: Vec<&Subject> = match &arguments.rows[..] {
        [] => SUBJECTS.iter().collect(),
        names => names.iter().map(|name| subject(name)).collect::<Result<_, _>>()?,
    };
    let mut baseline = Baseline::read()?;
    let mut feed = None;
    let mut failed = Vec::new();
    println!("{:<14} {:>12} {:>12} {:>9}", "row", "counted", "stored", "change");
    for subject in chosen {
        let mut counted = count(subject)?;
        if subject.name.starts_with("itch-") && subject.name != FEED {
            if feed.is_none() {
                feed = Some(count(self::subject(FEED)?)?);
            }
            counted -= feed.unwrap_or(0.0);
        }
        let verdict = baseline.judge(subject.name, counted);
        println!("{:<14} {counted:>12.1} {verdict}", subject.name);
        if !verdict.is_good() {
            failed.push(format!("{} ({verdict})", subject.name));
        }
        baseline.set(subject.name, counted);
    }
    let tools = tools::versions();
    if arguments.write {
        baseline.keep(|name| SUBJECTS.iter().any(|subject| subject.name == name));
        baseline.counted_with = tools;
        baseline.write()?;
        println!("stored in {}", baseline::path().display());
        return Ok(true);
    }
    if !failed.is_empty() {
        complain(&failed, &baseline.counted_with, &tools);
    }
    Ok(failed.is_empty())
}

fn complain(failed: &[String], counted_with: &str, tools: &str) {
    println!(
        "FAILED: these take over {} % more instructions than stored in {}, or are not stored there:",
        baseline::RISE_PERCENT,
        baseline::path().display()
    );
    failed.iter().for_each(|row| println!("    {row}"));
    if counted_with != tools {
        println!("The stored ones were counted with {counted_with}; these with {tools}, which may be all of it.");
    }
    println!("If it is meant: ./x instructions --write");
}
