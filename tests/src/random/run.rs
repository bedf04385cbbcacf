//! One random plan, run in this process.

use std::net::{Ipv4Addr, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use verbline::engine::Ended;
use verbline::plan::Stage;
use verbline::prelude::*;
use verbline_softnic::counters::take_due_marks;
use verbline_softnic::wire;

use super::draft::Draft;
use super::gate::Gate;
use super::judge;
use super::judge::{kept_from_cpus, kept_ns};
use super::judge_pairs::Facts;
use super::marks::{ALONE, GROUPS, PATIENCE, SECTION, WATCHER, WIRE_ADDRESS};
use super::meddler::Meddler;
use super::memory::MemorySums;
use super::pairs::sides;
use super::stages::registry;
use super::taps::{Pushed, Pusher, Taps};
use super::watches::{Sockets, Writer};
use crate::report_faults;

/// The longest wait on a machine on which other programs keep the lcores from their CPUs.
const PATIENCE_MAX: Duration = Duration::from_secs(30);
/// What a datagram has in front, in the headroom of its receive.
const HEADROOM_UD: u64 = 40;
/// How long a plan without an end runs.
const ENDLESS: Duration = Duration::from_millis(15);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunParams {
    /// Whether its sources end by themselves.
    ends: bool,
    pushers: Vec<Pusher>,
    writer: Option<Writer>,
    meddler: Option<Meddler>,
    /// It has a process of its own, which is held to its sums of memory.
    #[serde(default)]
    alone: bool,
    /// Its other part runs in another process: 0 for the client, 1 for the server, which ends
    /// after it.
    side: Option<u8>,
    #[serde(default, rename = "pair")]
    _pair: Option<String>,
}

/// Limits the process to exactly the plan's sum of descriptors, until it is dropped.
struct LimitedDescriptors(Rlimit);

impl LimitedDescriptors {
    fn to(descriptors: u64) -> Result<LimitedDescriptors, String> {
        let before = getrlimit(Resource::Nofile);
        let limit = Rlimit { current: Some(descriptors), ..before };
        setrlimit(Resource::Nofile, limit).map_err(|errno| format!("no limit of {descriptors}: {errno}"))?;
        Ok(LimitedDescriptors(before))
    }
}

impl Drop for LimitedDescriptors {
    fn drop(&mut self) {
        // It was the limit before, so setting it is allowed.
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}

/// The text of a draft for these CPUs, with as many packets in each pool, and as much headroom, as
/// the plan's sums ask for.
///
/// # Errors
/// The plan's faults: a draft is always valid, so any fault of it counts.
pub fn with_least_pools(draft: &Draft, machine: &Machine) -> Result<String, String> {
    let cpus: Vec<u32> = machine.cpus.iter().copied().collect();
    let loader = loader_on(machine);
    // Both pools have as many as the larger one needs: the smaller one of the two has some to
    // spare.
    let inspection = loader.inspect_str("random.toml", &draft.text(&cpus, 1, HEADROOM_UD));
    let most = |of: &str| inspection.sums.iter().filter(|sum| sum.of.starts_with(of)).map(|sum| sum.needed).max();
    let needed = most("pool.").ok_or_else(|| inspection.diagnostics.to_string())?.max(1);
    let text = draft.text(&cpus, needed, most("headroom of pool.").unwrap_or(0).max(HEADROOM_UD));
    let valid = |loader: &Loader, text: &str| match loader.load_str("random.toml", text) {
        Ok(_) => Ok(()),
        Err(faults) => Err(format!("{faults}\n{text}")),
    };
    match sides(&text, 1) {
        None => valid(&loader, &text)?,
        // No process has the memory and the descriptors of the whole plan.
        Some(sides) => {
            valid(&loader_on(&without_limits(machine)), &text)?;
            sides.iter().try_for_each(|side| valid(&with_own_pools(loader_on(machine), side), side))?;
        }
    }
    Ok(text)
}

fn without_limits(machine: &Machine) -> Machine {
    Machine {
        memlock_bytes: None,
        memory_bytes: u64::MAX,
        memory_grant: None,
        address_space_bytes: None,
        data_bytes: None,
        descriptors_max: None,
        ..machine.clone()
    }
}

fn loader_on(machine: &Machine) -> Loader {
    Loader::new(registry(&Taps::default(), &Gate::default(), &Sockets::default()).catalog(), machine.clone())
}

/// A loader that gives each pool no more packets than this part of a plan needs, if it is one.
fn with_own_pools(loader: Loader, text: &str) -> Loader {
    if !is_side(text) {
        return loader;
    }
    let sums = loader.inspect_str("random.toml", text).sums;
    let pools = sums.into_iter().filter(|sum| sum.of.starts_with("pool."));
    loader.sets(pools.map(|sum| format!("{}.packets={}", sum.of, sum.needed.max(1))))
}

/// The plan with this process's own address and groups. Where it has an address, its packets go
/// through a socket, and from then on those of all plans of the process.
fn by_own_address(text: &str) -> Result<String, String> {
    let number = process::id();
    let text = text.replace(GROUPS, &format!("239.{}.{}.", 2 + (number >> 8) % 250, number % 256));
    if !text.contains(WIRE_ADDRESS) {
        return Ok(text);
    }
    let own = Ipv4Addr::new(127, 0x80 | (number >> 16) as u8 & 0x7f, (number >> 8) as u8, number as u8);
    wire::attach("soft0", own.into()).map_err(|error| error.to_string())?.carry_own();
    Ok(text.replace(WIRE_ADDRESS, &own.to_string()))
}

/// Whether the plan of this text runs in a process that has run no other one, and runs no other
/// after it.
pub fn is_alone(text: &str) -> bool {
    text.lines().any(|line| line == ALONE)
}

/// Whether the text is that of one of two processes.
pub fn is_side(text: &str) -> bool {
    text.contains("\nside = ")
}

/// Runs the plan of this text to its end.
///
/// # Errors
/// It was refused, it failed, its sources did not end by themselves, or injectors tell otherwise
/// than the threads that pushed.
pub fn run(text: &str) -> Result<(Plan, Report), String> {
    run_without(text, 0)
}

/// The same, with fewer file descriptors than the plan's sum says, by this many.
///
/// # Errors
/// Those of [`run`], and what goes wrong for want of descriptors.
pub fn run_without(text: &str, descriptors: u64) -> Result<(Plan, Report), String> {
    let text = &*by_own_address(text)?;
    let taps = Taps::default();
    let gate = Gate::default();
    let sockets = Sockets::default();
    let registry = registry(&taps, &gate, &sockets);
    let on = |machine| with_own_pools(Loader::new(registry.catalog(), machine), text);
    let loader = on(Machine::detect());
    let plan = loader.load_str("random.toml", text).map_err(|faults| faults.to_string())?;
    let section = plan.section(SECTION).ok_or_else(|| format!("the plan has no section [{SECTION}]"))?;
    let RunParams { ends, pushers, writer, meddler, alone, side, .. } =
        section.parse().map_err(|fault| fault.to_string())?;
    // A run without sources has no end of its own: one of two processes may have none.
    let kinds = registry.catalog().kinds;
    let is_source = |stage: &Stage| kinds.iter().any(|kind| kind.name == stage.kind && kind.spec.source);
    let ends = ends && plan.stages().iter().any(is_source);
    // The section names the injectors of the other process, too.
    let is_here = |name: &str| plan.injectors().iter().any(|injector| injector.name == name);
    let pushers: Vec<Pusher> = pushers.into_iter().filter(|pusher| is_here(&pusher.name)).collect();
    let writer = writer.filter(|_| plan.stages().iter().any(|stage| stage.name == format!("s{WATCHER}")));
    // The server's ports are down once the client is gone, and take no change.
    let meddler = meddler.filter(|_| side != Some(1));
    // Reads the schema's file, for which the run leaves no descriptor.
    drop(report_faults(&serde_json::Value::Null));
    // A lower limit would be raised by the run.
    let _taken: Vec<UdpSocket> = (0..descriptors).map_while(|_| UdpSocket::bind("127.0.0.1:0").ok()).collect();
    let _limited = LimitedDescriptors::to(plan.descriptors_max())?;
    let memory = alone.then(|| MemorySums::of(on, text));
    let threads = pushers.iter().map(Pusher::threads).sum::<u64>() + 2;
    memory.iter().try_for_each(|sums| sums.limit(threads))?;
    let running = Runtime::build(&plan, &registry).and_then(Runtime::start).map_err(|error| error.to_string())?;
    let start = |pusher: &Pusher| running.injector(&pusher.name).map(|injector| pusher.start(&injector, &taps));
    let threads: Vec<Vec<JoinHandle<Pushed>>> =
        pushers.iter().map(start).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let writing = writer.map(|writer| writer.start(&sockets));
    let is_over = AtomicBool::new(false);
    let locked = memory.as_ref().and_then(MemorySums::locked_fault);
    let (ended, mut faults) = thread::scope(|scope| {
        let meddle = |meddler: &Meddler| meddler.meddle((text, &plan, &loader), &running, &is_over);
        let meddling = meddler.as_ref().map(|meddler| scope.spawn(move || meddle(meddler)));
        let ended = if ends { wait_patiently(&running) } else { running.wait(Some(ENDLESS)) };
        if side == Some(1) {
            until_told();
        }
        is_over.store(true, Ordering::Relaxed);
        let panicked = |_| vec!["the meddler panicked".to_owned()];
        (ended, meddling.map_or_else(Vec::new, |meddling| meddling.join().unwrap_or_else(panicked)))
    });
    let stopped = running.stop();
    sockets.end();
    let late = writing.map_or(Ok(0), JoinHandle::join).unwrap_or(u64::MAX);
    let report = stopped.map_err(|error| error.to_string())?;
    if late > 0 && !kept_from_cpus(&report) {
        faults.push(format!("{late} waits for sockets that were as long as a safety time-out"));
    }
    for (pusher, threads) in pushers.iter().zip(threads) {
        let pushed: Result<Vec<Pushed>, _> = threads.into_iter().map(JoinHandle::join).collect();
        match (pushed, report.injector(&pusher.name)) {
            (Ok(pushed), Some(told)) => faults.extend(pusher.faults(&pushed, told, kept_from_cpus(&report))),
            _ => faults.push(format!("injector.{}: a thread panicked, or the report has it not", pusher.name)),
        }
    }
    faults.extend(gate.faults(&report));
    faults.extend(locked);
    faults.extend(memory.as_ref().and_then(MemorySums::resident_fault));
    if ends && !matches!(ended, Ended::SourcesDone | Ended::Interrupted) {
        faults.insert(0, format!("its sources have not ended within {PATIENCE:?}: {ended:?}"));
    }
    if faults.is_empty() { Ok((plan, report)) } else { Err(format!("{}\n{report:#?}", faults.join("\n"))) }
}

/// Waits until the parent says that the client is gone.
fn until_told() {
    // If the parent is gone, there is nothing to wait for.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Waits until its sources have ended. Time in which others kept an lcore from its CPU does not
/// count; a run that is still kept from it after half a minute is stopped, and has done nothing
/// wrong.
fn wait_patiently(running: &Running) -> Ended {
    let kept = || running.snapshot().lcores.iter().map(kept_ns).max().map_or(Duration::ZERO, Duration::from_nanos);
    let (began, mut left) = (Instant::now(), PATIENCE);
    loop {
        let ended = running.wait(Some(left));
        let elapsed = began.elapsed();
        left = (PATIENCE + kept()).saturating_sub(elapsed);
        if ended != Ended::TimedOut || left.is_zero() {
            return ended;
        }
        if elapsed >= PATIENCE_MAX {
            return Ended::Interrupted;
        }
        left = left.min(PATIENCE_MAX - elapsed);
    }
}

/// Runs the plan of this text, and returns the violated conditions.
///
/// # Errors
/// The run went wrong, or its report is not what it must be.
pub fn verdict(text: &str) -> Result<Facts, String> {
    take_due_marks();
    let (plan, report) = run(text)?;
    let mut faults = judge(&plan, &report);
    let marks = take_due_marks().into_iter().filter(|mark| mark.most > mark.cqe.into());
    faults.extend(marks.map(|mark| format!("a completion queue may get more than it was asked for: {mark:?}")));
    if faults.is_empty() { Ok(Facts::of(&plan, &report)) } else { Err(format!("{}\n{report:#?}", faults.join("\n"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::draw;

    // Regression: the sums of the whole plan, which no process runs, refused it.
    #[test]
    fn each_process_of_a_pair_is_held_to_its_own_sums() {
        let mut machine = Machine { cpus: [0, 1].into(), cpu_quota: None, ..Machine::detect() };
        (machine.descriptors_max, machine.memory_grant) = (Some(1 << 20), None);
        let texts = (0..).filter_map(|seed| Some((seed, with_least_pools(&draw(seed), &machine).ok()?)));
        let (seed, sides) = texts.filter_map(|(seed, text)| Some((seed, sides(&text, 1)?))).next().expect("a pair");
        let needed = |machine: &Machine, of: &str| {
            let sums = |side: &String| {
                let loader = with_own_pools(loader_on(machine), side);
                let sums = loader.inspect_str("random.toml", side).sums;
                sums.into_iter().filter(|sum| sum.of.starts_with(of)).map(|sum| sum.needed).sum::<u64>()
            };
            sides.iter().map(sums).max().expect("two")
        };
        let descriptors = needed(&machine, "file descriptors");
        machine.descriptors_max = Some(descriptors);
        with_least_pools(&draw(seed), &machine).expect("each side has enough");
        machine.descriptors_max = Some(descriptors - 1);
        with_least_pools(&draw(seed), &machine).expect_err("a side lacks one");
        machine.descriptors_max = None;
        machine.address_space_bytes = Some(u64::MAX);
        let bytes = needed(&machine, "address space");
        machine.address_space_bytes = Some(bytes);
        with_least_pools(&draw(seed), &machine).expect("each side has enough");
    }

    // Regression: once a plan had given the process an address, a plan without one had packets of
    // another process's plan.
    #[test]
    fn a_plan_without_an_address_has_groups_of_this_process_too() {
        let own = by_own_address(&format!("send_to = \"{GROUPS}1\"")).unwrap();
        let number = process::id();
        assert_eq!(own, format!("send_to = \"239.{}.{}.1\"", 2 + (number >> 8) % 250, number % 256));
    }
}
