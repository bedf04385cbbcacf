//! The report's account of outside influence on a run: that it was stopped, moved, robbed or
//! refused; and of harmless things that it must not blame.

use std::process::Command;
use std::time::Duration;

use crate::common::desk::{self, Gate, caller, counts, server};
use crate::common::peers::Peers;
use crate::common::{assert_clean, fed, lacks_cpus, one_lcore, plan, registry, run, until};
use core_affinity::CoreId;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use verbline_engine::{Report, Running, Runtime};
use verbline_plan::Machine;

/// Stops this process like `kill -STOP`, and resumes it after this time.
fn stop_this_process(seconds: &str) {
    let script = "kill -STOP $PPID; sleep $0; kill -CONT $PPID";
    let status = Command::new("sh").args(["-c", script, seconds]).status().unwrap();
    assert!(status.success(), "{status}");
}

fn started(text: &str) -> Running {
    let registry = registry();
    Runtime::build(&plan(&registry, text), &registry).unwrap().start().unwrap()
}

/// One polling lcore with next to nothing to do.
fn idler() -> String {
    one_lcore("poll", &fed("count = 1000000, gap_us = 1000", "use = \"sink\""))
}

/// Returns a report's warnings with this code.
fn warned(report: &Report, code: &str) -> Vec<String> {
    report.warnings().iter().filter(|warning| warning.code == code).map(ToString::to_string).collect()
}

#[test]
fn a_pause_of_the_process_is_no_fault_of_the_queue_pairs_that_were_closing() {
    let gate = Gate::default();
    let registry = desk::gated(&gate);
    let text = server(7391, "connections_max = 8\nrx_shared_wr = 256\ntx_depth_wr = 16\n");
    let running = Runtime::build(&plan(&registry, &text), &registry).unwrap().start().unwrap();
    let mut peers = Peers::new(7391);
    let all: Vec<_> = (0..5).map(|_| peers.ask().unwrap()).collect();
    for peer in &all {
        peers.round_trip(*peer, b"hello");
    }
    let served = |report: &Report| report.stage("desk").and_then(|desk| desk.counter("served"));
    peers.send(all[0], b"nap");
    until(&running, |report| served(report) == Some(6));
    // The lcore hears of none of these before it has slept, and the process stops meanwhile.
    for peer in &all[1..] {
        peers.leave(*peer);
    }
    std::thread::sleep(Duration::from_millis(200));
    stop_this_process("1.5");
    gate.open(true);
    until(&running, |report| counts(report).closed == 4);
    let report = running.stop().unwrap();
    assert_eq!(counts(&report).forced, 0, "{:?}", counts(&report));
    assert_clean(&report);
}

#[test]
fn a_process_that_was_stopped_is_told_so() {
    let running = started(&idler());
    until(&running, |report| report.lcore("only").is_some_and(|lcore| lcore.loops > 0));
    stop_this_process("2");
    let report = running.stop().unwrap();
    let lcore = report.lcore("only").unwrap();
    assert!(lcore.stall_max_ns >= 1_900_000_000, "{lcore:?}");
    if lcore.queued_ns.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI has /proc with schedstat");
        return eprintln!("skipped: the kernel doesn't tell how long threads wait");
    }
    let [warning] = &warned(&report, "stolen-time")[..] else { panic!("{report:#?}") };
    assert!(warning.contains("the process was stopped (SIGSTOP"), "{warning}");
}

#[test]
fn two_lcores_worth_of_cpus_an_lcore_that_was_moved_is_told_with_both() {
    if lacks_cpus(2) {
        return;
    }
    let cpus: Vec<u32> = Machine::detect().cpus.into_iter().collect();
    let (first, second) = (cpus[0], cpus[1]);
    let running = started(&idler());
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let is_it = |thread: &std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.trim() == "vl-only")
    };
    let thread = threads.into_iter().find(is_it).unwrap().file_name().into_string().unwrap();
    let thread = Pid::from_raw(thread.parse().unwrap());
    let mut set = CpuSet::new();
    set.set(second as usize);
    sched_setaffinity(thread, &set).unwrap();
    let cpu = |report: &Report| report.lcore("only").map(|lcore| (lcore.cpu, lcore.plan_cpu, lcore.cpus_allowed));
    let moved = Some((second as usize, first as usize, 1));
    until(&running, |report| cpu(report) == moved);
    let report = running.stop().unwrap();
    assert_eq!(cpu(&report), moved, "after its end too");
    let said = format!("lcore only was pinned to CPU {first}, and is pinned to CPU {second}");
    assert!(warned(&report, "lcore-moved")[0].contains(&said), "{report:#?}");
}

/// Pins the thread to the first CPU, the lcore's.
fn pin() {
    let first = Machine::detect().cpus.first().map(|cpu| CoreId { id: *cpu as usize });
    assert!(first.is_some_and(core_affinity::set_for_current), "{first:?} is allowed");
}

#[test]
fn two_lcores_worth_of_work_on_one_cpu_names_who_else_is_pinned_there() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let over = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        // Relaxed, all: nothing else is passed by it.
        let thief = || {
            pin();
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let sleeper = || {
            pin();
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        std::thread::Builder::new().name("thief".into()).spawn_scoped(scope, thief).unwrap();
        std::thread::Builder::new().name("sleeper".into()).spawn_scoped(scope, sleeper).unwrap();
        let running = started(&idler());
        std::thread::sleep(Duration::from_millis(600));
        let report = running.stop().unwrap();
        over.store(true, Ordering::Relaxed);
        report
    });
    let [warning] = &warned(&report, "stolen-time")[..] else { panic!("{report:#?}") };
    assert!(warning.contains("; also pinned to that CPU: "), "{warning}");
    assert!(warning.contains("thread thief of this process"), "{warning}");
    assert!(!warning.contains("sleeper"), "it took nothing: {warning}");
}

#[test]
fn a_drain_budget_of_nothing_is_enough_for_nothing() {
    let text = one_lcore("event", &fed("count = 10, gap_us = 0", "use = \"sink\""));
    let text = text.replace("idle = \"event\"", "idle = \"event\"\ndrain = \"0s\"");
    let report = run(&registry(), &text).unwrap();
    assert_clean(&report);
}

#[test]
fn two_lcores_that_want_more_connections_than_there_are_places_hear_of_it() {
    if lacks_cpus(2) {
        return;
    }
    let keys = "connections_max = 2\nrx_shared_wr = 64\ntx_depth_wr = 16\n";
    let text = server(7392, keys) + &caller(7392, "connections = 3\nnext = \"drop\"\n");
    let running = desk::start(&text);
    let caller = |report: &Report| report.port("caller").and_then(|port| port.connections.clone()).unwrap();
    until(&running, |report| caller(report).opened >= 2 && caller(report).rejected_by_peer > 0);
    let report = running.stop().unwrap();
    assert_eq!((caller(&report).role, counts(&report).role), ("connects", "listens"));
    let [warning] = &warned(&report, "not-connected")[..] else { panic!("{report:#?}") };
    assert!(warning.contains("port caller had 2 of its 3 connections open at most"), "{warning}");
    let words = caller(&report).last_error.unwrap();
    assert!(warning.contains(&format!("; the last time: {words}; ")), "{warning}");
}
