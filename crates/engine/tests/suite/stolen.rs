//! Time taken from an lcore is told apart from time that it did not need.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{assert_clean, fed, one_lcore, registry, run_for};
use core_affinity::CoreId;
use verbline_engine::Report;
use verbline_plan::Machine;

/// One lcore with next to nothing to do.
fn plan(idle: &str) -> String {
    one_lcore(idle, &fed("count = 1000000, gap_us = 1000", "use = \"sink\""))
}

/// The report of a run beside a thread that wants all of the same CPU.
fn beside_a_thief(idle: &str) -> Report {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The CPU that `allowed:0` means.
            let first = Machine::detect().cpus.first().map(|cpu| CoreId { id: *cpu as usize });
            assert!(first.is_some_and(core_affinity::set_for_current), "{first:?} is allowed");
            // Relaxed: nothing else is passed by it.
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let report = run_for(&registry(), &plan(idle), Duration::from_millis(600));
        over.store(true, Ordering::Relaxed);
        report.unwrap()
    })
}

#[test]
fn what_another_thread_takes_is_stolen_and_not_idle() {
    let report = beside_a_thief("poll");
    assert_clean(&report);
    let lcore = report.lcore("only").unwrap();
    // The scheduler halves the CPU between the two, or gives the lcore even less if others want it
    // as well.
    assert!(lcore.stolen_share > 0.3, "{lcore:?}");
    assert!(lcore.stalls > 0 && lcore.stall_max_ns >= 1_000_000, "by whole turns of the scheduler: {lcore:?}");
    assert!(lcore.idle_share < 0.7 && lcore.busy_share < 0.1, "{lcore:?}");
    let whole = lcore.busy_share + lcore.idle_share + lcore.asleep_share + lcore.stolen_share;
    assert!((whole - 1.0).abs() < 1e-9, "{lcore:?}");
    let warnings = report.warnings();
    assert!(warnings.iter().any(|warning| warning.code == "stolen-time"), "{warnings:?}");
}

#[test]
fn waiting_for_the_cpu_after_a_sleep_is_stolen_and_not_sleep() {
    let report = beside_a_thief("event");
    assert_clean(&report);
    let lcore = report.lcore("only").unwrap();
    let Some(queued_ns) = lcore.queued_ns else {
        assert!(std::env::var_os("CI").is_none(), "CI has /proc with schedstat");
        eprintln!("skipped: the kernel doesn't tell how long threads wait");
        return;
    };
    let undisturbed_ns = lcore.sleeps * 5_000;
    assert!(lcore.stolen_ns + undisturbed_ns >= queued_ns, "{lcore:?}");
    let whole_ns = lcore.busy_ns + lcore.idle_ns + lcore.asleep_ns + lcore.stolen_ns;
    assert!(whole_ns.abs_diff(report.elapsed_ns) < report.elapsed_ns / 5, "all time is somewhere: {report:?}");
}
