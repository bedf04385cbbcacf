//! Ctrl-C: the first drains, reports and exits with 0; a second one aborts.

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::Signal;
use verbline_tests::Program;

use crate::command::generated;
use crate::command::report::{assert_accounted, number};

const LCORES: [&str; 2] = ["exchange", "trader"];

/// A run that only a signal ends.
fn endless() -> Option<Program> {
    let sets = ["lcore.exchange.idle=event", "lcore.trader.idle=event"];
    Some(generated("1h", &sets)?.with(["--json"]))
}

#[test]
fn two_lcores_drain_and_report_when_asked_to_stop() {
    for signal in [Signal::INT, Signal::TERM] {
        let Some(run) = endless() else { return };
        let started = run.start();
        started.await_lcores(&LCORES);
        started.signal(signal);
        let shown = started.finish().exited(0);
        let json = shown.json();
        assert_eq!(number(&json["packets"], "held"), 0, "{shown}");
        assert!(number(&json, "elapsed_ns") < 3_600_000_000_000, "{shown}");
        if number(&json, "ticks_published") > 0 {
            assert_accounted(&json, &shown);
        }
    }
}

#[test]
fn two_lcores_are_aborted_by_a_second_signal() {
    let Some(run) = endless() else { return };
    let mut started = run.start();
    // The report does not fit the pipe and nobody reads it: an orderly end has to wait for ever.
    fcntl_setpipe_size(started.child().stdout.as_ref().expect("a pipe"), 4096).expect("a short pipe");
    started.await_lcores(&LCORES);
    started.signal(Signal::INT);
    started.await_delivery();
    started.signal(Signal::INT);
    assert_eq!(started.status().code(), Some(130));
}
