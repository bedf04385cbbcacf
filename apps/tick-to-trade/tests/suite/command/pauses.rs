//! A process that is stopped for a while: its feed continues where it was.

use std::time::Duration;

use rustix::process::Signal;

use crate::command::generated;
use crate::command::report::{assert_accounted, number};

/// The feed of the pause, published at once, would need four times the trader's receives.
#[test]
fn two_lcores_lose_no_tick_by_a_pause_of_both() {
    const PAUSE: Duration = Duration::from_secs(4);
    let sets = ["port.md_a.rx_depth_wr=1024", "port.md_b.rx_depth_wr=1024"];
    let Some(run) = generated("7s", &sets) else { return };
    let started = run.with(["--json"]).start();
    started.await_lcores(&["exchange", "trader"]);
    std::thread::sleep(Duration::from_secs(1));
    started.signal(Signal::STOP);
    std::thread::sleep(PAUSE);
    started.signal(Signal::CONT);
    let shown = started.finish().exited(0);
    let json = shown.json();
    assert_accounted(&json, &shown);
    let skipped_ns = number(&json, "feed_skipped_ns");
    assert!(u128::from(skipped_ns) > PAUSE.as_nanos() * 9 / 10, "{shown}");
}
