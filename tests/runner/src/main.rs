//! What `./x test` runs: builds the tests, runs every program, and says what failed, hung, was
//! skipped or was slow. Nothing stops at the first failure.
//!
//! Programs whose tests pin lcores have the machine to themselves, one test at a time; the others
//! run side by side, one a CPU. A crate says in its manifest that its tests pin lcores:
//! `[package.metadata.tests] lcores = true`.
#![forbid(unsafe_code)]

mod build;
mod program;
mod queue;
mod summary;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::build::{Built, Error, MODELS};
use crate::program::Limits;
use crate::summary::Summary;

/// Runs the tests: all of them, or those of some crates.
#[derive(Debug, Parser)]
#[command(
    name = "x test",
    after_help = "\
Examples:
  ./x test                       all crates, in some minutes
  ./x test engine                the tests of crates/engine
  ./x test engine -- timers::    those of its tests whose names contain `timers::`
  ./x test --all                 also the models of protocols between threads, and what takes long
Environment:
  VERBLINE_TEST_TIMEOUT          seconds after which a test hangs (default 300)"
)]
struct Arguments {
    /// The crates whose tests run, by package or folder name (default: all)
    #[arg(value_name = "CRATE")]
    crates: Vec<String>,
    /// The same, as cargo spells it
    #[arg(short, long = "package", value_name = "CRATE")]
    packages: Vec<String>,
    /// Also runs the loom models and what takes long, as CI does
    #[arg(long)]
    all: bool,
    /// Builds the tests, and runs none
    #[arg(long)]
    no_run: bool,
    /// Names the tests, and runs none
    #[arg(long)]
    list: bool,
    /// Runs only the tests whose names contain one of these
    #[arg(last = true, value_name = "NAME")]
    names: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(passed) => ExitCode::from(u8::from(!passed)),
        Err(error) => {
            eprintln!("x test: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Error> {
    let mut summary = Summary::begun();
    let crates = build::packages(arguments.crates.iter().chain(&arguments.packages))?;
    let mut programs = summary.step("building", || build::tests(&crates))?;
    if arguments.all {
        for model in MODELS.iter().filter(|model| crates.is_empty() || model.of_one_of(&crates)) {
            programs.extend(summary.step("building models", || build::model(model))?);
        }
    }
    if arguments.no_run {
        return Ok(true);
    }
    if arguments.list {
        return list(&programs, &arguments.names).map(|()| true);
    }
    let limits = Limits {
        test: hangs_after(),
        interrupted: interrupted()?,
        names: arguments.names.clone(),
        long: arguments.all,
    };
    let (alone, beside): (Vec<Built>, Vec<Built>) = programs.into_iter().partition(|program| program.lcores);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for (step, programs, at_once) in [("tests side by side", beside, cpus), ("tests on lcores", alone, 1)] {
        let begun = Instant::now();
        let ended = queue::run(programs, at_once, &limits, |ended| summary.ended(ended));
        summary.took(step, begun.elapsed());
        ended?;
    }
    if arguments.names.is_empty() {
        let documented = summary.step("examples in the documentation", || build::documentation(&crates))?;
        summary.documented(&documented);
    }
    Ok(summary.print(arguments.all))
}

fn list(programs: &[Built], names: &[String]) -> Result<(), Error> {
    for program in programs {
        for test in program::names(program, names)? {
            println!("{} {test}", program.title());
        }
    }
    Ok(())
}

/// A test that takes longer hangs, however busy the machine.
fn hangs_after() -> Duration {
    let given = std::env::var("VERBLINE_TEST_TIMEOUT").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(300))
}

/// Becomes true when a person, or what started this, wants it to end.
fn interrupted() -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(Error::Signals)?;
    }
    Ok(flag)
}
