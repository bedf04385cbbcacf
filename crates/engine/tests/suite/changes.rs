//! Ports that change their attributes while packets go through them: no packet is lost or
//! overtaken.

use std::time::{Duration, Instant};

use verbline_engine::{ChangeOutcome, ChangedPort, Ended, Running, Runtime};
use verbline_plan::Plan;

use crate::common::{PATIENCE, assert_clean, one_lcore, plan, registry, until};

const COUNT: u64 = 20_000;

/// A source that sends over a pair of ports, faster than one packet a millisecond; `told`: keys of
/// the sending port.
fn text(transport: &str, told: &str, count: u64) -> String {
    let stages = format!(
        r#"
        [port.out]
        lcore = "only"
        device = "nic0"
        transport = "{transport}"
        peer = "port.in"
        tx_depth_wr = 128
        {told}
        [port.in]
        lcore = "only"
        device = "nic0"
        pool = "p"
        transport = "{transport}"
        peer = "port.out"
        rx_depth_wr = 256
        next = "stage.sink"
        [stage.gen]
        use = "generator"
        lcore = "only"
        pool = "p"
        out = {{ out = "port.out" }}
        params = {{ count = {count}, gap_us = 20 }}
        [stage.sink]
        use = "sink"
        lcore = "only"
        "#
    );
    one_lcore("event", &stages)
}

fn loaded(text: &str) -> Plan {
    plan(&registry(), text)
}

fn start(plan: &Plan) -> Running {
    Runtime::build(plan, &registry()).unwrap().start().unwrap()
}

#[track_caller]
fn assert_taken(changed: &[ChangedPort]) {
    assert!(changed.iter().all(|one| matches!(one.outcome, ChangeOutcome::Taken { .. })), "{changed:?}");
}

/// Changes a running port over and over; returns how often.
fn changed_over_and_over(transport: &str, told: [&str; 2]) -> u32 {
    let plans = told.map(|told| loaded(&text(transport, told, COUNT)));
    let running = start(&plans[0]);
    let (deadline, mut changes) = (Instant::now() + PATIENCE, 0);
    while running.wait(Some(Duration::from_millis(1))) == Ended::TimedOut {
        assert!(Instant::now() < deadline);
        let changed = running.change_ports(&plans[1 - changes as usize % 2]).unwrap();
        assert!(changed.iter().all(|one| one.port == "out") && !changed.is_empty(), "{changed:?}");
        assert_taken(&changed);
        changes += 1;
    }
    let report = running.stop().unwrap();
    assert_clean(&report);
    let sink = report.stage("sink").unwrap();
    assert_eq!((sink.packets_in, sink.counter("gaps")), (COUNT, Some(0)), "{report:#?}");
    changes
}

#[test]
fn a_connection_that_is_drained_and_changed_over_and_over_loses_nothing() {
    let drained = "timeout = 17\nretry_cnt = 3\nrnr_retry = 6\ntraffic_class = 104\nmin_rnr_timer = 12";
    assert!(changed_over_and_over("rc", [drained, "timeout = 18"]) > 5);
    assert!(changed_over_and_over("uc", ["hop_limit = 3", "traffic_class = 8"]) > 5);
}

#[test]
fn datagrams_go_by_another_path_and_with_another_q_key() {
    assert!(changed_over_and_over("ud", ["hop_limit = 3", "traffic_class = 8\nservice_level = 1"]) > 5);
    // The sender learns the Q_Key that the receiver's plan sets. Packets under way meanwhile are
    // lost.
    let keyed =
        |qkey: &str| text("ud", "", 1 << 40).replace("rx_depth_wr = 256", &format!("rx_depth_wr = 256\n{qkey}"));
    let running = start(&loaded(&keyed("")));
    let seen = |running: &Running| running.snapshot().stage("sink").unwrap().packets_in;
    until(&running, |report| report.stage("sink").unwrap().packets_in > 0);
    for qkey in ["qkey = 77", "qkey = 78", ""] {
        let changed = running.change_ports(&loaded(&keyed(qkey))).unwrap();
        assert_eq!(changed.iter().map(|one| one.port.as_str()).collect::<Vec<_>>(), ["in"], "{changed:?}");
        assert_taken(&changed);
        // More packets than were on their way.
        let before = seen(&running) + 512;
        until(&running, |report| report.stage("sink").unwrap().packets_in > before);
    }
    assert_clean(&running.stop().unwrap());
}

#[test]
fn one_key_that_cannot_change_keeps_all_as_they_were() {
    let told = ["path_mtu = 1024", "path_mtu = 512\ntimeout = 17", "path_mtu = 1024\ntimeout = 17"];
    let [before, refused, fine] = told.map(|told| loaded(&text("rc", told, 1 << 40)));
    let running = start(&before);
    let faults = running.change_ports(&refused).unwrap_err();
    let codes: Vec<_> = faults.errors().map(|fault| fault.code()).collect();
    assert_eq!(codes, ["not-while-running"]);
    let taken = |plan| running.change_ports(plan).unwrap().iter().map(|one| one.keys.len()).collect::<Vec<_>>();
    assert_eq!(taken(&fine), [1], "the time-out of before was not taken");
    assert!(taken(&fine).is_empty());
    assert_clean(&running.stop().unwrap());
}

/// A stage holds up the lcore, so that the change begins after the caller's time-out of 5 s: for
/// long enough that the change is asked for in time on a busy machine, too.
#[test]
fn what_is_not_done_in_time_is_said_and_done_later() {
    let busy =
        |told: &str| text("rc", told, 1).replace("use = \"sink\"", "use = \"sink\"\nparams = { work_us = 9_000_000 }");
    let running = start(&loaded(&busy("")));
    until(&running, |report| report.port("in").unwrap().rx_packets > 0);
    let changed = running.change_ports(&loaded(&busy("retry_cnt = 2"))).unwrap();
    assert_eq!(changed[0].outcome, ChangeOutcome::Draining);
    assert_eq!(running.wait(Some(PATIENCE)), Ended::SourcesDone);
    assert_taken(&running.change_ports(&loaded(&busy("retry_cnt = 3"))).unwrap());
    assert_clean(&running.stop().unwrap());
}

#[test]
fn a_port_that_is_paused_holds_what_it_sends_and_loses_nothing() {
    // Without an end: on a busy machine the source sends a great many packets before the pause.
    let texts = ["", "traffic_class = 104\nmin_rnr_timer = 9"].map(|told| text("rc", told, 1 << 40));
    let running = start(&loaded(&texts[0].replace("gap_us = 20", "polite = true")));
    let seen = || running.snapshot().stage("sink").unwrap().packets_in;
    until(&running, |report| report.stage("sink").unwrap().packets_in > 100);
    let paused = running.pause_port("out").unwrap();
    // Packets sent before arrive; then no more do, however long one waits.
    let holds = || {
        let before = seen();
        std::thread::sleep(Duration::from_millis(50));
        seen() == before
    };
    let mut looks = 0..20;
    assert!(looks.any(|_| holds()), "it holds what is sent");
    let before = seen();
    let again = running.pause_port("out").unwrap_err();
    assert!(matches!(&again, ChangeOutcome::Refused(why) if why == "it is paused already"), "{again:?}");
    assert_taken(&running.change_ports(&loaded(&texts[1])).unwrap());
    assert_eq!(seen(), before, "a change does not let it go on");
    assert!(matches!(paused.resume(), ChangeOutcome::Taken { .. }));
    // A dropped pause ends as well; and there is no other port to be paused.
    drop(running.pause_port("out").unwrap());
    let missing = running.pause_port("outer").unwrap_err();
    assert_eq!(missing, ChangeOutcome::Refused("the plan has no port.outer".to_owned()));
    until(&running, |report| report.stage("sink").unwrap().packets_in > before + 100);
    let report = running.stop().unwrap();
    assert_clean(&report);
    let [sent, came] = ["gen", "sink"].map(|name| report.stage(name).unwrap());
    assert_eq!((came.packets_in, came.counter("gaps")), (sent.packets_out, Some(0)), "{report:#?}");
}
