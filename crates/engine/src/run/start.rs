//! Starts the lcores, and runs each lcore's thread from its first instruction to its last.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use core_affinity::CoreId;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use verbline_plan::IdlePolicy;

use crate::control::device_events::Watch;
use crate::control::panic_hook;
use crate::control::run_control::{Control, Phase};
use crate::errors::error::{EngineError, Place};
use crate::errors::guarded::join_until;
use crate::errors::{guarded, no_thread};
use crate::lcore::poll_loop::{Lcore, LcoreParts};
use crate::run::observed::Observed;
use crate::run::stop::{LcoreThread, RunningInner, STOP_LIMIT};
use crate::run::thread_registration::Seat;
use crate::setup::assemble::Built;
use crate::stats::counter::Shared;
use crate::stats::kernel_time;
use crate::stats::neighbours::Neighbours;
use crate::stats::report::FailureReport;

/// Connects the ports that are not connected yet, starts all lcores, and releases them once every
/// one is ready.
pub(crate) fn start(built: Built) -> Result<RunningInner, EngineError> {
    start_with(built, pin)
}

/// Pins the thread of the lcore of this name to a CPU.
type Pin = fn(&str, u32, Place) -> Result<(), EngineError>;

fn start_with(mut built: Built, pin: Pin) -> Result<RunningInner, EngineError> {
    panic_hook::install().map_err(|source| EngineError::Process {
        call: "starting the thread that writes what lcores say as they panic",
        source,
        remedy: no_thread::remedy(),
    })?;
    built.connect(|| false)?;
    built.arm()?;
    let Built { lcores, places, control, injectors, connections, mut stats, watched, known, sources, drain, .. } =
        built;
    let count = lcores.len();
    let mut threads = Vec::with_capacity(count);
    let mut failed = None;
    for (parts, at) in lcores.into_iter().zip(&places) {
        match spawn(parts, at, &control, pin) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if failed.is_none() {
        control.wait(None, |progress| progress.ready + progress.refused.len() == count, |_| ());
        failed = control.with(|progress| progress.refused.pop());
    }
    let watch = match failed {
        None => Watch::start(watched, Arc::clone(&control)).map_err(|source| EngineError::Process {
            call: "starting the thread that watches the devices' events",
            source,
            remedy: "free file descriptors or threads (ulimit -n, ulimit -u)",
        }),
        Some(error) => Err(error),
    };
    let watch = watch.inspect_err(|_| abandon(&control, &mut threads))?;
    stats.kernel = kernel_time::Thieves::now();
    stats.neighbours = Neighbours::now();
    let started_ns = stats.clock.now_ns();
    control.update(|progress| progress.go = true);
    let (statuses, events, shared) = (connections.statuses(), watch.counts(), Arc::clone(&control));
    let observed = Arc::new(Observed { control: shared, stats, connections: statuses, events, started_ns });
    let (watch, stuck, known) = (Some(watch), Vec::new(), Mutex::new(known));
    Ok(RunningInner { control, injectors, connections, observed, known, threads, stuck, watch, sources, drain })
}

/// Ends threads that have not begun to run their lcore.
fn abandon(control: &Control, threads: &mut Vec<LcoreThread>) {
    control.advance(Phase::Ending);
    control.update(|progress| progress.go = true);
    let limit = Instant::now() + STOP_LIMIT;
    for LcoreThread { thread, .. } in threads.drain(..) {
        // A thread that panicked has counted itself as refused; one that drops its stages for
        // longer than this is left behind.
        let _ = join_until(thread, Some(limit));
    }
}

fn spawn(parts: LcoreParts, at: &Place, control: &Arc<Control>, pin: Pin) -> Result<LcoreThread, EngineError> {
    let (name, place, shared) = (parts.name.clone(), at.clone(), Arc::clone(control));
    let stages = parts.nodes.iter().map(|node| node.name.clone()).collect();
    // Linux cuts a thread's name at 15 bytes.
    let named = std::thread::Builder::new().name(format!("vl-{name}"));
    match named.spawn(move || live(parts, place, &shared, pin)) {
        Ok(thread) => Ok(LcoreThread { name, stages, thread }),
        Err(source) => Err(EngineError::System {
            at: at.clone(),
            lcore: name,
            call: "starting its thread",
            source,
            remedy: no_thread::remedy(),
        }),
    }
}

/// Runs an lcore's thread. If it can't run, it is counted as refused before the app's values are
/// dropped: the wait for it must not depend on the app.
fn live(parts: LcoreParts, at: Place, control: &Arc<Control>, pin: Pin) {
    let (index, name, cpu, policy) = (parts.index, parts.name.clone(), parts.cpu, parts.budget.policy);
    panic_hook::this_is_an_lcore();
    let mut seat = Seat::new(Arc::clone(control), &name, at.clone());
    if let Err(error) = pin(&name, cpu, at) {
        return seat.refuse(error);
    }
    hear_no_signals(&name);
    if policy != IdlePolicy::Poll {
        exact_timers();
    }
    let stats = Shared::clone(&parts.stats);
    let mut lcore = Lcore::bind(parts, Arc::clone(control));
    verbline_verbs::prepare_thread();
    // Before the start: from there on an lcore that does not get its CPU is kept from it. 0 if the
    // kernel doesn't tell: then it won't tell for the report either, which says so.
    stats.queued_at_start_ns.set(kernel_time::queued_ns(None).unwrap_or(0));
    seat.ready();
    control.wait(None, |progress| progress.go, |_| ());
    stats.thread_id.set(rustix::thread::gettid().as_raw_nonzero().get() as u64);

    // After a panic the lcore is only asked for the running stage, and dismantled.
    let failure = match guarded::call(|| lcore.run()) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => {
            Some(FailureReport { lcore: name.clone(), stage: None, panicked: false, message: error.to_string() })
        }
        Err(said) => Some(panicked(&name, lcore.running_stage(), said)),
    };
    stats.queued_at_end_ns.set(kernel_time::queued_ns(None).unwrap_or(0));
    let (cpu, cpus) = kernel_time::allowed_cpus(None).unwrap_or_default();
    stats.cpu_at_end.set(cpu as u64);
    stats.cpus_at_end.set(cpus as u64);
    if let Some(failure) = failure {
        control.fail(failure);
    }
    // Before the app's values are dropped, which may take long.
    control.lcore_ended(index);
    let failed = |failure| control.update(|progress| progress.failures.push(failure));
    let of_stage = |stage: &str, said| failed(panicked(&name, Some(stage), format!("as it was dropped: {said}")));
    if let Err(said) = guarded::call(|| lcore.tear_down(of_stage)) {
        failed(panicked(&name, None, said));
    }
}

fn pin(lcore: &str, cpu: u32, at: Place) -> Result<(), EngineError> {
    let id = CoreId { id: cpu as usize };
    // core_affinity's set holds 1,024 CPUs and panics beyond.
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    let refused = if allowed.contains(&id) { set_affinity(id) } else { Err(Errno::INVAL) };
    match refused {
        Ok(()) => Ok(()),
        Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::NOSYS)) => Err(EngineError::System {
            at,
            lcore: lcore.to_owned(),
            call: "pinning its thread (sched_setaffinity)",
            source: errno.into(),
            remedy: "allow sched_setaffinity(2) in the seccomp filter of this container or service (`--security-opt \
                     seccomp=PROFILE`, SystemCallFilter=)",
        }),
        Err(_) => {
            let allowed = allowed.iter().map(|core| core.id).collect();
            Err(EngineError::Pin { at, lcore: lcore.to_owned(), cpu, allowed })
        }
    }
}

/// Panics if the set, of 1,024 CPUs, has no place for it.
fn set_affinity(id: CoreId) -> rustix::io::Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(id.id);
    sched_setaffinity(None, &cpus)
}

/// Asks the kernel not to round this thread's timers: the default slack of 50 µs (prctl(2),
/// PR_SET_TIMERSLACK) is as much as a wake-up costs.
fn exact_timers() {
    if let Err(errno) = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN)) {
        tracing::warn!(%errno, "timers of this lcore are rounded to 50 µs");
    }
}

pub(crate) fn panicked(lcore: &str, stage: Option<&str>, message: String) -> FailureReport {
    FailureReport { lcore: lcore.to_owned(), stage: stage.map(str::to_owned), panicked: true, message }
}

/// Blocks signals on an lcore: a handler would run in the middle of a turn of its loop. Another
/// thread of the process receives them.
fn hear_no_signals(lcore: &str) {
    if let Err(error) = verbline_ring::signals::block() {
        tracing::warn!(%lcore, %error, "signals to the process may interrupt it");
    }
}
