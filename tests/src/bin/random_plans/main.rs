//! Random valid plans, run and judged: `./x random-plans`.
//!
//! Plans run in child processes, so that a crash or a hang is a fault like any other and ends one
//! plan only. A fault is shrunk to a smaller plan that is faulty too, which is kept as a file that
//! `--plan` runs again. Remains of plans in the process that ran them are a fault as well.
#![forbid(unsafe_code)]

mod child;
mod left;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use verbline::prelude::Machine;
use verbline_tests::random::{draw, shrink, verdict, with_least_pools};

use child::{Child, Verdict};

/// Runs random valid plans and holds each run to what must be true of every run: packets are
/// accounted for place by place, arrive in order, none is left behind, no wake-up is lost.
#[derive(Debug, Parser)]
#[command(name = "random-plans", max_term_width = 80)]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// How many plans, a seed each.
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// For how long instead, e.g. 1h.
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "count")]
    time: Option<Duration>,
    /// Only plans whose text has this, e.g. listen_with; other seeds are passed over, 1000 in a row
    /// at most.
    #[arg(long, value_name = "WORD", conflicts_with = "plan")]
    with: Option<String>,
    /// Runs this plan, once or `--count` times, instead of random ones.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Prints the plan of `--seed` instead of running it.
    #[arg(long)]
    show: bool,
    /// Where the plan of a fault is kept.
    #[arg(long, default_value = "target/random-plans", value_name = "FOLDER")]
    keep: PathBuf,
    /// Runs the plans that it reads from its standard input.
    #[arg(long, hide = true)]
    child: bool,
}

/// A plan is tried so often while a fault is shrunk: what goes wrong once may not at the next try.
const TRIES: usize = 2;
/// The most plans that are tried to shrink a fault, and the longest that this may take.
const SHRINK_PLANS_MAX: usize = 200;
const SHRINK_TIME_MAX: Duration = Duration::from_secs(60);
/// The most seeds in a row whose plans lack the word that is asked for: the rarest key of a plan is
/// drawn more often.
const PASSED_OVER_MAX: u64 = 1_000;
/// A child is replaced after this many plans, and its remains are judged. The process's tables
/// double now and then, in each of the first five hundred plans.
const PLANS_A_CHILD: u64 = 1_000;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if args.child {
        child::serve(verdict)
    } else if args.show {
        plan_of(args.seed).map(|text| print!("{text}"))
    } else if let Some(path) = &args.plan {
        again(path, args.count)
    } else {
        search(&args)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("random-plans: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn plan_of(seed: u64) -> Result<String, String> {
    static MACHINE: LazyLock<Machine> = LazyLock::new(Machine::detect);
    with_least_pools(&draw(seed), &MACHINE)
}

/// Runs one plan from a file.
fn again(path: &std::path::Path, count: u64) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut child = Child::start()?;
    for _ in 0..count {
        if let Verdict::Fault(fault) = child.judge(&text)? {
            return Err(fault);
        }
    }
    child.leak().map_or(Ok(()), Err)?;
    println!("{count} runs of {}: no fault", path.display());
    if let growths @ [_, ..] = &*child.heap_growths() {
        println!("each further hundred runs left this many bytes of heap behind: {growths:?}");
    }
    Ok(())
}

/// Runs plans until a fault is found or all are done.
fn search(args: &Args) -> Result<(), String> {
    let began = Instant::now();
    let bar = ProgressBar::new(args.time.map_or(args.count, |time| time.as_secs().max(1)));
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").expect("a fixed template"));
    let (mut plans, mut seed, mut passed_over) = (0, args.seed, 0);
    let mut child = Child::start()?;
    // At least one plan: a run of none proves nothing.
    while plans == 0 || args.time.map_or(plans < args.count, |time| began.elapsed() < time) {
        let text = plan_of(seed)?;
        if let Some(word) = args.with.as_ref().filter(|word| !text.contains(*word)) {
            (seed, passed_over) = (seed + 1, passed_over + 1);
            if passed_over < PASSED_OVER_MAX {
                continue;
            }
            bar.finish_and_clear();
            return Err(format!(
                "no plan of the {PASSED_OVER_MAX} seeds from {} on has `{word}`, and {plans} plans before were run; \
                 write `--with` as it stands in a plan, which `--show --seed N` prints",
                seed - passed_over
            ));
        }
        passed_over = 0;
        if let Verdict::Fault(fault) = child.judge(&text)? {
            bar.finish_and_clear();
            return Err(report(args, seed, &fault));
        }
        (plans, seed) = (plans + 1, seed + 1);
        if plans % PLANS_A_CHILD == 0 {
            // The leak is of many plans, not of one: `--plan FILE --count 500` tells whether one
            // plan causes it.
            if let Some(leak) = child.leak() {
                bar.finish_and_clear();
                return Err(format!("up to seed {seed}: {leak}"));
            }
            child = Child::start()?;
        }
        bar.set_position(args.time.map_or(plans, |_| began.elapsed().as_secs()));
        bar.set_message(format!("{plans} plans"));
    }
    bar.finish_and_clear();
    println!("{plans} plans from seed {} in {:.1?}: no fault", args.seed, began.elapsed());
    Ok(())
}

/// Shrinks the plan of a seed that is faulty, keeps it, and says how to run it again.
fn report(args: &Args, seed: u64, fault: &str) -> String {
    let headline = fault.lines().next().unwrap_or_default();
    eprintln!("random-plans: seed {seed} is faulty ({headline}); looking for a smaller plan");
    let began = Instant::now();
    let machine = Machine::detect();
    let mut last = (plan_of(seed).unwrap_or_default(), fault.to_owned());
    shrink(seed, SHRINK_PLANS_MAX, |draft| {
        if began.elapsed() > SHRINK_TIME_MAX {
            return false;
        }
        let Ok(text) = with_least_pools(draft, &machine) else { return false };
        let found = (0..TRIES).find_map(|_| match Child::start().and_then(|mut child| child.judge(&text)) {
            Ok(Verdict::Fault(fault)) => Some(fault),
            Ok(Verdict::Good) | Err(_) => None,
        });
        let is_faulty = found.is_some();
        last = found.map_or_else(|| last.clone(), |fault| (text, fault));
        is_faulty
    });
    let (text, fault) = last;
    let path = args.keep.join(format!("seed-{seed}.toml"));
    let kept = std::fs::create_dir_all(&args.keep).and_then(|()| std::fs::write(&path, text));
    let kept = kept.map_or_else(|error| error.to_string(), |()| "kept".to_owned());
    format!(
        "seed {seed}: {fault}\n\nthe plan ({kept}): {}\nagain:  ./x random-plans --plan {} --count 20",
        path.display(),
        path.display()
    )
}
