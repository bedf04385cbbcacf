//! Plans that are read again while a run goes on.

use std::time::Duration;

use super::retries::{loaded, port};
use super::{STOP_LIMIT, end, lcores, registry, seen, source, start_with, wait_for};
use crate::control::change::ChangeOutcome;
use crate::setup::assemble::build;
use crate::stats::report::Report;

/// The port takes the attributes as soon as it is drained, and so does a connection that replaces
/// its own.
#[test]
fn a_port_that_is_not_drained_in_time_runs_with_what_the_plan_says_then() {
    let text = |keys: &str| {
        lcores(&["a"], "event")
            + &port("told", &format!("peer = \"port.usual\"\n{keys}"))
            + &port("usual", "peer = \"port.told\"")
            + &source("one", "a", "stage.end", "id = 0, count = 1")
            + &end("end", "a", "work_us = 400_000")
    };
    let [before, after] = ["retry_cnt = 5", "retry_cnt = 2"].map(|keys| loaded(&text(keys)));
    let mut running = start_with(build(&before, &registry()).unwrap(), |_, _, _| Ok(())).unwrap();
    // The lcore is in its stage, and handles nothing else.
    wait_for(&running, |report| seen(report, "end", 0) == 1);
    let sleeps = |report: &Report| report.lcore("a").unwrap().sleeps;
    let slept = sleeps(&running.snapshot());
    let changed = running.change_ports_within(&after, Duration::from_millis(50)).unwrap();
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].outcome, ChangeOutcome::Draining);
    // It has left the stage.
    wait_for(&running, |report| sleeps(report) > slept);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(running.change_ports_within(&after, Duration::from_secs(5)).unwrap(), [], "it has it");
    let back = running.change_ports_within(&before, Duration::from_secs(5)).unwrap();
    assert!(matches!(back[0].outcome, ChangeOutcome::Taken { .. }), "{back:?}");
    running.stop(STOP_LIMIT).unwrap();
}
