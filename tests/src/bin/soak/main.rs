//! `./x soak`: runs the shipped plans for a while, does to each what machines and operators do in a
//! day, and judges whether it went on as it began.
//!
//! A soak of a plan has three parts. For a quarter of its time nothing disturbs it, for half of it
//! one disturbance follows another ([`timetable`]), and in the last quarter it is left alone again.
//! The last quarter is compared with the first ([`judge`]).
#![forbid(unsafe_code)]

mod disturb;
mod fresh;
mod hosts;
mod judge;
mod live;
mod plan_run;
mod process;
mod progress;
mod sample;
mod shipped;
mod show;
mod soaked;
mod timetable;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use progress::Progress;
use shipped::{Shipped, shipped};
use soaked::{Soaked, soak};

const TEACHES: &str = "\
What is done to each plan, in the middle half of its time and one after another:
  pause      kill -STOP, and -CONT up to six seconds later
  neighbour  a thread that spins on the CPU of one of its lcores
  ctrl-s     its terminal is stopped
  unread     nobody reads its standard error, which is full
  limits     prlimit: no new descriptor, no file written, nothing locked
  reload     SIGUSR1, again and again

With --hosts, again and again, while one host is left alone:
  move       a namespace's blocks get another number, while a host writes them;
             a host of the new number finds its own writes alone
  reload     SIGUSR1, ten times
  kill       of two hosts one gets SIGKILL and one SIGTERM; both come back

What must hold, each a line of `--json`:
  exit       it ends within 30 s of SIGTERM, with exit code 0
  report     it has the published shape, every sum in it is right, no failure
  values     all books, blocks or values are right, and there are some
  rate       as fast in the last quarter as in the first, for the time that its
             lcores had their CPUs (tick-to-trade: as many orders for its ticks);
             \"busy\" where others had most of that time, and it went on;
             one that is slower is compared with fresh runs, in turn, five times
  memory     no more resident in the last quarter than in the first
  handles    no more descriptors and threads than in the first

Examples:
  ./x soak                              a minute of each plan
  ./x soak --plan kv --for 1h           an hour of one
  ./x soak --hosts --for 1h             an hour of a target and its hosts
  ./x soak --programs target/release    programs built in another profile

Exit codes:
  0    all that was run held
  1    something did not hold, or a plan could not be run
  2    the command line is wrong";

/// Runs the shipped plans for a while under disturbances, and judges whether each ends as it began
#[derive(Debug, Parser)]
#[command(name = "soak", bin_name = "./x soak", max_term_width = 80, after_help = TEACHES)]
struct Args {
    /// How long each plan runs, 8 s at least
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = time)]
    time: Duration,
    /// Only this plan of config/; may be repeated
    #[arg(long = "plan", value_name = "NAME", value_parser = shipped::names())]
    plans: Vec<String>,
    /// Instead: an NVMe target and its hosts, each a process of its own
    #[arg(long, conflicts_with = "plans")]
    hosts: bool,
    /// Where the apps' programs are
    #[arg(long, value_name = "FOLDER", default_value = "target/debug", overrides_with = "programs")]
    programs: PathBuf,
    /// Print one JSON document to standard output, and no table
    #[arg(long)]
    json: bool,
}

/// In less time each quarter is too short to compare.
const TIME_MIN: Duration = Duration::from_secs(8);

fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; write e.g. 30s, 10m or 1h"))?;
    match time < TIME_MIN {
        true => Err(format!("the first and the last quarter of {text} are too short to compare; 8s is the least")),
        false => Ok(time),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let soaked = soak_chosen(&args);
    match args.json {
        true => println!("{}", show::json(&soaked, &args.programs, args.time)),
        false => print!("{}", show::table(&soaked, &args.programs, args.time)),
    }
    match soaked.iter().all(Soaked::is_good) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// A soak to run: its name and its function.
type Run = Box<dyn Fn(&Path, &Progress) -> Soaked>;

fn soak_chosen(args: &Args) -> Vec<Soaked> {
    let time = args.time;
    let of_plan = |plan: Shipped| -> (&'static str, Run) {
        (plan.name, Box::new(move |programs, progress| soak(&plan, programs, time, progress)))
    };
    let chosen: Vec<(&str, Run)> = match args.hosts {
        true => vec![(hosts::NAME, Box::new(move |programs, progress| hosts::soak(programs, time, progress)))],
        false => shipped().into_iter().filter(|plan| plan.is_among(&args.plans)).map(of_plan).collect(),
    };
    let mut progress = Progress::new(chosen.len(), time);
    let soak_one = |(name, run): (&str, Run)| {
        progress.begins(name);
        let soaked = run(&args.programs, &progress);
        progress.ended(soaked.name, soaked.verdict(), &show::reasons(&soaked));
        soaked
    };
    let soaked = chosen.into_iter().map(soak_one).collect();
    progress.clear();
    soaked
}
