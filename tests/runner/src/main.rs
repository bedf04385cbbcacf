//! The program behind `./x test`: builds the tests, runs every program, and reports the tests that
//! failed, hung, were skipped or were slow. It does not stop at the first failure.
//!
//! A test that pins an lcore has a CPU to itself, and one whose name begins with `two_lcores_` has
//! all of them; the others run side by side, and so does one of which `slow-tests` says that it
//! waits. A crate says in its manifest that its tests pin
//! lcores: `[package.metadata.tests] lcores = true`.
#![forbid(unsafe_code)]

mod build;
mod pauses;
mod program;
mod queue;
mod summary;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::build::{Built, Error, MODELS};
use crate::pauses::Pauses;
use crate::program::Limits;
use crate::queue::{Job, Lanes};
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
  ./x test --pauses 300 kv       whether the tests of apps/kv hold on a busy machine
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
    /// Pauses processes of the tests at random, each time for up to MS milliseconds: a test that
    /// fails by it may fail wherever the machine is busy
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pauses: Option<u64>,
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
    let limits = Limits { test: hangs_after(), cpus: queue::cpus()?, interrupted: interrupted()? };
    let folders = programs.iter().filter_map(Built::profile_folder).collect();
    let jobs = Jobs::of(programs, arguments)?;
    let pauses = arguments.pauses.map(|longest_ms| Pauses::begin(longest_ms, folders));
    // Tests that wait do so beside those on one lcore.
    for (step, mut jobs) in [
        ("tests without an lcore, side by side", vec![(jobs.beside, Lanes::Shared)]),
        ("tests on one lcore, one a CPU", vec![(jobs.one_lcore, Lanes::Pinned), (jobs.waiting, Lanes::Waiting)]),
        ("tests on two lcores, one after another", vec![(jobs.two_lcores, Lanes::One)]),
    ] {
        jobs.retain(|(jobs, _)| !jobs.is_empty());
        if jobs.is_empty() {
            continue;
        }
        println!("{step}:");
        let begun = Instant::now();
        let ended = queue::run(jobs, &limits, |ended| summary.ended(ended));
        summary.took(step, begun.elapsed());
        ended?;
    }
    summary.paused(pauses.map(Pauses::end));
    if arguments.names.is_empty() {
        let documented = summary.step("examples in the documentation", || build::documentation(&crates))?;
        summary.documented(&documented);
    }
    Ok(summary.print(arguments.all))
}

/// The jobs to run, by the CPUs that they need.
#[derive(Default)]
struct Jobs {
    beside: Vec<Job>,
    one_lcore: Vec<Job>,
    waiting: Vec<Job>,
    two_lcores: Vec<Job>,
}

/// The tests of a job that pins lcores: enough to be worth a process, and few enough that all lanes
/// end at nearly the same time.
const TESTS_A_JOB: usize = 12;

impl Jobs {
    fn of(programs: Vec<Built>, arguments: &Arguments) -> Result<Jobs, Error> {
        let mut jobs = Jobs::default();
        for program in programs {
            let mut tests = program::names(&program, &arguments.names)?;
            // A test named by the user always runs.
            tests.retain(|test| arguments.all || !arguments.names.is_empty() || !program::is_long(&program, test));
            let waits = |test: &mut String| program::waits(&program, test);
            jobs.waiting
                .extend(tests.extract_if(.., waits).map(|test| Job { program: program.clone(), tests: vec![test] }));
            if !program.lcores {
                jobs.beside.extend((!tests.is_empty()).then_some(Job { program, tests }));
                continue;
            }
            let needs_two =
                |test: &String| test.rsplit("::").next().is_some_and(|name| name.starts_with("two_lcores_"));
            let (two, one): (Vec<String>, Vec<String>) = tests.into_iter().partition(needs_two);
            let of = |tests: &[String]| Job { program: program.clone(), tests: tests.to_vec() };
            jobs.one_lcore.extend(one.chunks(TESTS_A_JOB).map(of));
            jobs.two_lcores.extend(two.chunks(TESTS_A_JOB).map(of));
        }
        Ok(jobs)
    }
}

fn list(programs: &[Built], names: &[String]) -> Result<(), Error> {
    for program in programs {
        for test in program::names(program, names)? {
            println!("{} {test}", program.title());
        }
    }
    Ok(())
}

/// The time after which a test counts as hung, however busy the machine.
fn hangs_after() -> Duration {
    let given = std::env::var("VERBLINE_TEST_TIMEOUT").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(300))
}

/// Becomes true when a person, or the process that started this one, wants it to end.
fn interrupted() -> Result<Arc<AtomicBool>, Error> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(Error::Signals)?;
    }
    Ok(flag)
}
