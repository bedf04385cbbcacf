//! The load as a judge: its findings about a faulty target.

use std::time::{Duration, Instant};

use nvme_load::NvmeLoad;
use serde_json::{Map, Value};
use verbline::cli::App;
use verbline::engine::{PortReport, Running};
use verbline_tests::two_lcores;

use crate::common::liar::{Asked, BLOCK, Lies, Serving};
use crate::interruptions::{goes_on, halves, start};
use verbline_nvme::opcode;

/// It sends all of the block.
const HONEST: Lies = Lies { sends: |_| 0..BLOCK, refuses: &[], ignores: &[] };

/// Keep-alive time-outs: one that passes within a test, and one that does not even on a busy
/// machine.
const SHORT_MS: u32 = 100;
const LONG_MS: u32 = 60_000;

/// Runs a load of one queue, one command at a time, for this many commands. Returns its findings,
/// and the requests that the target received.
fn judged(port: u16, lies: Lies, commands: u64) -> Option<(Map<String, Value>, Asked)> {
    let (load, running, serving) = begun(port, lies, LONG_MS)?;
    goes_on(&running, commands);
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    let json = load.outcome(&report).json;
    // What is told at the end is seen while the run lasts.
    let stage = report.stage("load").expect("a stage of the plan");
    let seen = ["failed", "mismatches"].map(|counter| stage.counter(counter).map(Value::from));
    assert_eq!(seen, [Some(json["counts"]["failed"].clone()), Some(json["mismatches"].clone())]);
    Some((json, serving.end()))
}

/// A load of one queue, one command at a time, and its target.
fn begun(port: u16, lies: Lies, keep_alive_ms: u32) -> Option<(NvmeLoad, Running, Serving)> {
    two_lcores(["load", "load"])?;
    let serving = Serving::begin(port, lies);
    let (_, text) = halves(port, "", &format!("discover = false\nkeep_alive_ms = {keep_alive_ms}\n"));
    let [depth, share, flush, queues] =
        ["depth = 1\n", "read_share = 0.9\n", "flush_every = 4\n", "connections = 1\nrx_shared_wr = 256"];
    // Commands under way at the stop are waited for.
    let text = text.replace("drain = \"0s\"", "drain = \"2s\"");
    let text = text.replace("depth = 32\n", depth).replace("read_share = 0.7\n", share);
    let text = text.replace("flush_every = 64\n", flush).replace("connections = 4\nrx_shared_wr = 256", queues);
    let load = NvmeLoad::default();
    let running = start(&load, &text);
    Some((load, running, serving))
}

/// Waits for the second keep-alive: the first one has been answered by then, or has expired.
#[track_caller]
fn await_keep_alives(serving: &Serving) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while serving.asked().keep_alives < 2 {
        assert!(Instant::now() < deadline, "{:?}", serving.asked());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A good status with no data, or a part of it, while the memory of the command still holds the
/// block from an earlier read.
#[test]
fn two_lcores_data_that_never_came_is_not_verified() {
    let Some((json, _)) = judged(7960, HONEST, 60) else { return };
    assert!(json["verified"].as_u64() > Some(0) && json["mismatches"] == 0, "{json:?}");
    let lies: [fn(u32) -> _; 3] = [
        |read| if read == 1 { 0..BLOCK } else { 0..0 },
        |read| if read == 1 { 0..BLOCK } else { 0..BLOCK - 512 },
        |read| if read == 1 { 0..BLOCK } else { 512..BLOCK },
    ];
    for (port, sends) in (7961..).zip(lies) {
        let Some((json, _)) = judged(port, Lies { sends, ..HONEST }, 60) else { return };
        assert!(json["mismatches"].as_u64() > Some(20), "at {port}: {json:?}");
    }
}

/// A refused event request is not repeated, nor counted as an event. A failed Flush is not counted
/// as flushed.
#[test]
fn two_lcores_what_is_refused_is_neither_repeated_nor_counted_as_done() {
    let refuses = &[opcode::admin::ASYNC_EVENT_REQUEST, opcode::io::FLUSH];
    let Some((json, asked)) = judged(7965, Lies { refuses, ..HONEST }, 100) else { return };
    let counts = &json["counts"];
    assert_eq!((asked.event_requests, &counts["events"], &counts["flushed"]), (1, &0.into(), &0.into()), "{json:?}");
    assert!(counts["failed"].as_u64() > Some(0), "{json:?}");
}

/// A keep-alive that is refused has kept nothing alive.
#[test]
fn two_lcores_a_keep_alive_that_fails_is_none_that_was_answered() {
    for (port, refuses) in [(7966, &[][..]), (7967, &[opcode::admin::KEEP_ALIVE])] {
        let Some((load, running, serving)) = begun(port, Lies { refuses, ..HONEST }, SHORT_MS) else { return };
        goes_on(&running, 10);
        await_keep_alives(&serving);
        let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
        let outcome = load.outcome(&report);
        serving.end();
        let [kept, not_kept] = ["kept_alive", "not_kept_alive"].map(|key| outcome.json["counts"][key].as_u64());
        assert_eq!((kept > Some(0), not_kept > Some(0)), (refuses.is_empty(), !refuses.is_empty()), "{outcome:?}");
        let says = outcome.failures.iter().any(|failure| failure.contains("keep-alives failed"));
        assert_eq!(says, !refuses.is_empty(), "{outcome:?}");
    }
}

/// Regression: a keep-alive without an answer was sent again under the same identifier, and nothing
/// was said. Now one is under way at a time, and the connections end with the time-out.
#[test]
fn two_lcores_a_keep_alive_without_an_answer_ends_the_connections_and_fails_the_run() {
    let lies = Lies { ignores: &[opcode::admin::KEEP_ALIVE], ..HONEST };
    let Some((load, running, serving)) = begun(7969, lies, SHORT_MS) else { return };
    goes_on(&running, 10);
    await_keep_alives(&serving);
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    let outcome = load.outcome(&report);
    let asked = serving.end();
    let counted = |key: &str| outcome.json["counts"][key].as_u64().expect("a count");
    let (connected, expired) = (counted("connected"), counted("keep_alive_expired"));
    assert!(expired > 0 && counted("kept_alive") == 0, "{outcome:?}");
    assert!((expired..=expired + 1).contains(&u64::from(asked.keep_alives)), "one at a time: {asked:?}, {outcome:?}");
    assert!(connected > 1 && u64::from(asked.connections) >= 2 * connected, "{asked:?}, {outcome:?}");
    let says = outcome.failures.iter().any(|failure| failure.contains("keep-alives got no answer within"));
    assert!(says, "{outcome:?}");
}

/// A target that is gone long before the end: the time without it is time of the run.
#[test]
fn two_lcores_a_stall_at_the_end_lowers_the_rate() {
    let Some((load, running, serving)) = begun(7968, HONEST, LONG_MS) else { return };
    goes_on(&running, 60);
    let from = Instant::now();
    serving.end();
    std::thread::sleep(Duration::from_millis(500));
    let stalled = from.elapsed();
    let report = running.stop().unwrap_or_else(|error| panic!("{error}"));
    let json = load.outcome(&report).json;
    let measured: u64 = ["read", "write"].iter().filter_map(|way| json["latency_ns"][way]["commands"].as_u64()).sum();
    assert!(
        json["iops"].as_f64() < Some(measured as f64 / stalled.as_secs_f64()),
        "{measured} in {stalled:?}: {json:?}"
    );
}

/// Waits until a Read or Write is under way that nobody answers, beside the request for events. A
/// pause of either end in which no capsule moves is none.
#[track_caller]
fn await_unanswered(running: &Running) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let capsules = || {
        let report = running.snapshot();
        let all = |count: fn(&PortReport) -> u64| report.ports.iter().map(count).sum::<u64>();
        [all(|port| port.tx_packets), all(|port| port.rx_packets)]
    };
    let mut before = capsules();
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let now = capsules();
        if now == before && now[0] > now[1] + 1 {
            return;
        }
        assert!(Instant::now() < deadline, "{now:?}");
        before = now;
    }
}

/// Regression: a target that vanished so late that its connections ended in the drain left a run
/// that had succeeded.
#[test]
fn two_lcores_a_target_that_vanishes_as_the_run_stops_fails_it() {
    let Some((load, running, serving)) = begun(7970, HONEST, LONG_MS) else { return };
    goes_on(&running, 60);
    serving.go_deaf();
    await_unanswered(&running);
    let observer = running.observer();
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !observer.is_stopping() {
                std::thread::yield_now();
            }
            // Until the load has been told.
            std::thread::sleep(Duration::from_millis(100));
            serving.end()
        });
        running.stop().unwrap_or_else(|error| panic!("{error}"))
    });
    let outcome = load.outcome(&report);
    let says = outcome.failures.iter().any(|failure| failure.contains("the target was lost after the stop"));
    assert!(says && outcome.json["balance"] == 0, "{outcome:?}");
}
