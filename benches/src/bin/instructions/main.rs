//! Instruction counts of the hot path, held against those that are stored: `cargo run --release -p verbline-benches
//! --bin instructions -- [--row NAME] [--write]`.
//!
//! Time varies with the machine's load, instructions do not: callgrind counts each subject at two sizes, and the
//! difference is what an operation takes. A row that takes over 3 % more than stored in `benches/instructions.toml`
//! fails, with its name (exit 1). `--write` stores what was counted, for a change that is meant.
//!
//! Counts depend on the compiler and the profile: they are stored for the release profile of this repository.

#![forbid(unsafe_code)]

mod baseline;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use verbline_benches::callgrind;
use verbline_benches::ours::counted::{FEED, SUBJECTS, Subject};

use baseline::{Baseline, Verdict};

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

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Do a row's work so many times: what callgrind runs
    Run { row: String, count: u64 },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::Run { row, count }) => subject(row).map(|subject| {
            (subject.run)(*count);
            true
        }),
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
    /// Of each size.
    const RUNS: usize = 2;
    let exe = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let run = |count: u64| callgrind::instructions(&exe, &["run", subject.name, &count.to_string()]);
    callgrind::per_operation(subject.counts, RUNS, run).map_err(|error| error.to_string())
}

/// Counts, prints, and says whether no row takes too many.
fn check(arguments: &Arguments) -> Result<bool, String> {
    let chosen: Vec<&Subject> = match &arguments.rows[..] {
        [] => SUBJECTS.iter().collect(),
        names => names.iter().map(|name| subject(name)).collect::<Result<_, _>>()?,
    };
    let mut baseline = Baseline::read()?;
    let mut feed = None;
    let mut risen = Vec::new();
    println!("{:<16} {:>12} {:>12} {:>8}  an operation is", "row", "counted", "stored", "change");
    for subject in chosen {
        let mut counted = count(subject)?;
        if subject.name.starts_with("itch-") && subject.name != FEED {
            if feed.is_none() {
                feed = Some(count(self::subject(FEED)?)?);
            }
            counted -= feed.unwrap_or(0.0);
        }
        let verdict = baseline.judge(subject.name, counted);
        println!("{:<16} {counted:>12.1} {verdict}  {}", subject.name, subject.what);
        if matches!(verdict, Verdict::Risen { .. }) {
            risen.push(subject.name);
        }
        baseline.set(subject.name, counted);
    }
    if arguments.write {
        baseline.write()?;
        println!("stored in {}", baseline::path().display());
        return Ok(true);
    }
    if !risen.is_empty() {
        println!(
            "FAILED: {} take more than {} % more instructions than stored",
            risen.join(", "),
            baseline::RISE_PERCENT
        );
    }
    Ok(risen.is_empty())
}
