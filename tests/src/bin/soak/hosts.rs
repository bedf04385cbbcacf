//! A target and its hosts, each a process of its own, while blocks move from one namespace to
//! another, the plan is read again and again, and hosts are killed and come back.
//!
//! Every host verifies each block that it reads. One host is left alone, and must never notice
//! anything. Blocks move to another number while a host writes them: a host of the new number finds
//! only its own writes. Two hosts end in each round, one by SIGKILL and one by SIGTERM, and come
//! back at the same address.

mod plans;

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use verbline_tests::{Program, report_faults};

use crate::judge::{Finding, consistent, handles, level};
use crate::live::number;
use crate::process::{Process, STOP_MAX};
use crate::progress::Progress;
use crate::sample::Sample;
use crate::shipped::{blocks, none, some};
use crate::soaked::{Outcome, Soaked};

use plans::{IN_FILE, IN_MEMORY, KEPT, MOVING, Plans};

/// The soak's name in the table.
pub(crate) const NAME: &str = "nvme-hosts";
const UNIT: &str = "commands";

/// A host without enough answers after this time is not served.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The number of answered commands after which a host counts as served.
const SERVED: u64 = 500;
/// How long a host goes on after its blocks have moved, and how long all hosts are left alone.
const LEFT: Duration = Duration::from_secs(1);
/// Connections of a host, by its plan: an admin connection, and four more. Then the number of
/// hosts.
const CONNECTIONS: u64 = 1 + 4;
const HOSTS: u64 = 4;
/// Reload signals in a round for an unchanged plan.
const RELOADS: usize = 10;

/// A host: its process, the number of its address, and its namespace.
struct Host {
    process: Process,
    place: usize,
    nsid: u32,
}

/// The counts so far.
#[derive(Default)]
struct Seen {
    rounds: usize,
    killed: u64,
    stopped: u64,
    refused: u64,
    verified: u64,
}

/// All running processes.
struct Stage<'a> {
    load: &'a Path,
    plans: Plans,
    /// The program that asks for the target's report so far.
    of_target: Program,
    target: Process,
    kept: Host,
    moving: Host,
    /// The hosts of the namespaces in a file and in memory.
    killed: [Host; 2],
    seen: Seen,
}

/// Runs the soak for `time`, or one round, and judges it.
pub(crate) fn soak(programs: &Path, time: Duration, progress: &Progress) -> Soaked {
    let mut soaked = Soaked::new(NAME, UNIT, time);
    soaked.outcome = match run(programs, time, progress, &mut soaked) {
        Ok(findings) => Outcome::Judged(findings),
        Err(why) => Outcome::Broken(why),
    };
    soaked
}

fn run(programs: &Path, time: Duration, progress: &Progress, soaked: &mut Soaked) -> Result<Vec<Finding>, String> {
    let program = |name: &str| {
        let path = programs.join(name);
        path.canonicalize().map_err(|error| format!("{}: {error}; build it", path.display()))
    };
    let (target, load) = (program("nvme-target")?, program("nvme-load")?);
    let folder = tempfile::tempdir().map_err(|error| format!("a folder: {error}"))?;
    let mut stage = Stage::new(&target, &load, folder.path())?;
    let begun = Instant::now();
    while stage.seen.rounds == 0 || begun.elapsed() < time {
        let what = ["move", "reload", "kill"];
        progress.shows(begun.elapsed(), Some(what[0]));
        stage.blocks_move()?;
        progress.shows(begun.elapsed(), Some(what[1]));
        stage.plan_is_read_again()?;
        progress.shows(begun.elapsed(), Some(what[2]));
        stage.hosts_end()?;
        progress.shows(begun.elapsed(), None);
        std::thread::sleep(LEFT);
        stage.dead_are_gone()?;
        soaked.disturbances.extend(what);
        soaked.samples.extend(stage.sample(begun.elapsed()));
        stage.seen.rounds += 1;
    }
    stage.end(&soaked.samples)
}

impl Stage<'_> {
    fn new<'a>(target: &Path, load: &'a Path, folder: &Path) -> Result<Stage<'a>, String> {
        let plans = Plans::new(folder)?;
        let of_target = Program::new(target).with(plans.of_target()).listening_in(folder);
        let mut target = Process::start(&of_target)?;
        let host = |target: &mut Process, place, nsid| Host::start(load, &plans, target, place, nsid);
        let kept = host(&mut target, 0, KEPT)?;
        let moving = host(&mut target, 1, MOVING[0])?;
        let killed = [host(&mut target, 3, IN_FILE)?, host(&mut target, 4, IN_MEMORY)?];
        Ok(Stage { load, plans, of_target, target, kept, moving, killed, seen: Seen::default() })
    }

    /// Gives the moving blocks the other number, while the host of the old one writes on and is
    /// refused from then on. A host of the new number begins beside it.
    fn blocks_move(&mut self) -> Result<(), String> {
        let to = MOVING[(self.seen.rounds + 1) % 2];
        self.plans.move_to(to)?;
        self.target.signal(Signal::USR1)?;
        let place = 1 + (self.seen.rounds + 1) % 2;
        let new = Host::start(self.load, &self.plans, &mut self.target, place, to)?;
        std::thread::sleep(LEFT);
        let old = std::mem::replace(&mut self.moving, new);
        let (report, _) = old.process.stopped()?;
        // The host's commands fail, and nothing else: it never finds a block that it did not write.
        let faults = report_faults(&report);
        if !faults.is_empty() {
            return Err(format!("the host whose blocks moved: {}", faults.join("; ")));
        }
        none(&report, &["/mismatches", "/balance", "/counts/unasked", "/counts/malformed"])
            .and_then(|()| {
                self.seen.refused += some(&report, "/counts/failed")?;
                self.seen.verified += some(&report, "/verified")?;
                Ok(())
            })
            .map_err(|why| format!("the host whose blocks moved: {why}"))
    }

    fn plan_is_read_again(&mut self) -> Result<(), String> {
        for _ in 0..RELOADS {
            self.target.signal(Signal::USR1)?;
            std::thread::sleep(LOOK_EVERY);
        }
        self.kept.goes_on(&mut self.target)
    }

    /// Kills one of the two hosts and stops the other, in turn; both come back.
    fn hosts_end(&mut self) -> Result<(), String> {
        let kills = self.seen.rounds % 2;
        self.killed[kills].process.signal(Signal::KILL)?;
        self.seen.killed += 1;
        let (place, nsid) = (self.killed[kills].place, self.killed[kills].nsid);
        self.killed[kills].process.finish(STOP_MAX).ok_or("a host goes on after SIGKILL")?;
        self.killed[kills] = Host::start(self.load, &self.plans, &mut self.target, place, nsid)?;
        let (place, nsid) = (self.killed[1 - kills].place, self.killed[1 - kills].nsid);
        // The address of a finished host is free for the next.
        self.killed[1 - kills].process.signal(Signal::TERM)?;
        let ended = self.killed[1 - kills].process.finish(STOP_MAX);
        let new = match ended {
            Some(_) => Host::start(self.load, &self.plans, &mut self.target, place, nsid)?,
            None => return Err(format!("a host of namespace {nsid} goes on {STOP_MAX:.0?} after SIGTERM")),
        };
        let old = std::mem::replace(&mut self.killed[1 - kills], new);
        self.seen.verified += right(old, "a host that was stopped")?;
        self.seen.stopped += 1;
        self.kept.goes_on(&mut self.target)
    }

    /// Waits until the target has released every dead host. A killed host says nothing, so the
    /// target finds out by its silence. Until then it holds the resources of the host's
    /// connections.
    fn dead_are_gone(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let report = self.of_target.live(None).unwrap_or_default();
            let ports = report["ports"].as_array().into_iter().flatten();
            let open: u64 = ports.filter_map(|port| port["connections"]["open"].as_u64()).sum();
            if open == HOSTS * CONNECTIONS {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "the target has {open} connections {PATIENCE:.0?} after the last host came, and {HOSTS} hosts of \
                     {CONNECTIONS} each are there"
                ));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn sample(&self, at: Duration) -> Option<Sample> {
        let sample = Sample::of(self.target.id())?;
        Some(Sample { at, done: number(&self.target.shown(), UNIT)?, ..sample })
    }

    /// Stops all processes, and judges them.
    fn end(mut self, samples: &[Sample]) -> Result<Vec<Finding>, String> {
        let kept = right(self.kept, "the host that is left alone");
        let mut others = right(self.moving, "the host of blocks that moved").map(|verified| (1, verified));
        for host in self.killed {
            let verified = right(host, "a host that had been killed");
            others = others.and_then(|(hosts, sum)| Ok((hosts + 1, sum + verified?)));
        }
        self.seen.verified += kept.as_ref().unwrap_or(&0) + others.as_ref().map_or(0, |(_, verified)| *verified);
        let Seen { rounds, killed, stopped, refused, verified } = self.seen;
        let target = self.target.stopped().and_then(|(report, is_good)| judged(&report, is_good));
        let quarter = (samples.len() / 4).max(1);
        let (first, last) = (&samples[..quarter], &samples[samples.len() - quarter..]);
        Ok(vec![
            Finding::of("kept", kept.map(|verified| format!("{verified} blocks right"))),
            Finding::of("others", others.map(|_| format!("{killed} killed, {stopped} stopped"))),
            Finding::of("moved", Ok(format!("{rounds} times, {refused} commands refused"))),
            Finding::of("target", target),
            Finding::of("memory", level(first, last)),
            Finding::of("handles", handles(first, last)),
            Finding::of("values", Ok(format!("{verified} blocks right, {rounds} rounds"))),
        ])
    }
}

impl Host {
    /// Starts a host, and waits until it is served. A namespace may take a while to appear: a host
    /// that finds none is started again.
    fn start(load: &Path, plans: &Plans, target: &mut Process, place: usize, nsid: u32) -> Result<Host, String> {
        // Shorter and longer than a capsule's data, and than a page.
        let block_bytes = match nsid {
            KEPT => 4096,
            IN_MEMORY => 65_536,
            IN_FILE => 16_384,
            _ => 8192,
        };
        let begun = Instant::now();
        loop {
            let process = Process::start(&Program::new(load).with(plans.of_host(place, nsid, block_bytes)))?;
            let mut host = Host { process, place, nsid };
            match host.is_served(target, begun) {
                Ok(true) => return Ok(host),
                Ok(false) => {}
                Err(why) => return Err(format!("{why}; it said:\n{}", host.process.said().1)),
            }
        }
    }

    /// Waits until the host is served. False if it has ended instead.
    fn is_served(&mut self, target: &mut Process, begun: Instant) -> Result<bool, String> {
        while number(&self.process.shown(), UNIT).is_none_or(|done| done < SERVED) {
            if target.ended().is_some() {
                return Err("the target has ended by itself".to_owned());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("a host of namespace {} is not served after {PATIENCE:.0?}", self.nsid));
            }
            if self.process.ended().is_some() {
                return Ok(false);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    /// Waits until the host has had more commands answered.
    fn goes_on(&mut self, target: &mut Process) -> Result<(), String> {
        let done = |process: &Process| number(&process.shown(), UNIT).unwrap_or(0);
        let (before, begun) = (done(&self.process), Instant::now());
        while done(&self.process) <= before {
            if begun.elapsed() > PATIENCE || self.process.ended().is_some() || target.ended().is_some() {
                let shown = self.process.shown();
                return Err(format!("the host that is left alone does not go on; it shows:\n{shown}"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

/// Stops a host that must have found everything right. Returns the number of verified blocks.
fn right(host: Host, who: &str) -> Result<u64, String> {
    let (report, is_good) = host.process.stopped().map_err(|why| format!("{who}: {why}"))?;
    let verified = consistent(&report).and_then(|_| blocks(&report)).and_then(|_| some(&report, "/verified"));
    match verified {
        Ok(verified) if is_good => Ok(verified),
        Ok(_) => Err(format!("{who} has failed, and its report is good")),
        Err(why) => Err(format!("{who}: {why}")),
    }
}

/// Judges the target's report: commands must have had to wait, or the soak showed less than it
/// should.
fn judged(report: &Value, is_good: bool) -> Result<String, String> {
    consistent(report)?;
    let counters = report["stages"].as_array().into_iter().flatten().filter_map(|stage| stage["counters"].as_array());
    let waited =
        counters.flatten().find(|counter| counter["name"] == "waited").and_then(|counter| counter["value"].as_u64());
    match waited {
        Some(waited @ 1..) if is_good => Ok(format!("{waited} commands waited")),
        Some(1..) => Err("it has failed, and its report is good".to_owned()),
        _ => Err("no command had to wait".to_owned()),
    }
}
