//! Lcores that only solicited messages wake: the others wait, for as long as the plan says at most,
//! and what an lcore waits for itself still wakes it.

use std::time::Duration;

use crate::common::{assert_clean, lacks_cpus, registry, run};
use verbline_engine::Report;

/// Far more than any message takes, and far less than a test has time for.
const WAIT: &str = "400ms";

/// A source on one lcore that sends `count` messages, one every `gap_us`, to another lcore, asleep.
fn stream(solicited: bool, wait: Option<&str>, count: u64, gap_us: u64) -> Report {
    let wait = wait.map_or(String::new(), |wait| format!("unsolicited_wait = \"{wait}\""));
    let text = format!(
        r#"
        [lcore.a]
        cpu = "allowed:0"
        idle = "event"
        [lcore.b]
        cpu = "allowed:1"
        idle = "event"
        {wait}
        [device.nic0]
        provider = "soft"
        name = "soft0"
        [pool.p]
        device = "nic0"
        packets = 2048
        data_bytes = 256
        pages = "4KiB"
        [port.out]
        lcore = "a"
        device = "nic0"
        transport = "rc"
        peer = "port.in"
        tx_depth_wr = 512
        solicited = {solicited}
        [port.in]
        lcore = "b"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.out"
        rx_depth_wr = 512
        next = "stage.sink"
        [stage.gen]
        use = "generator"
        lcore = "a"
        pool = "p"
        out = {{ out = "port.out" }}
        params = {{ count = {count}, gap_us = {gap_us} }}
        [stage.sink]
        use = "sink"
        lcore = "b"
        "#
    );
    let report = run(&registry(), &text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().packets_in, count, "{report:#?}");
    report
}

#[test]
fn two_lcores_of_which_one_sleeps_through_what_is_not_solicited() {
    if lacks_cpus(2) {
        return;
    }
    let woken = |report: &Report| report.lcore("b").unwrap().woken_by("completion");
    // Each is a wake-up, but for those that come while it is awake.
    assert!(woken(&stream(false, None, 300, 2_000)) > 100, "all completions wake it");
    assert!(woken(&stream(true, Some(WAIT), 300, 2_000)) > 100, "solicited ones wake it");
    let quiet = stream(false, Some(WAIT), 300, 2_000);
    let lcore = quiet.lcore("b").unwrap();
    assert!(woken(&quiet) <= 3 && lcore.woken_by("timer") >= 1, "{lcore:#?}");
    assert_eq!(lcore.rescues, 0, "nothing was lost: {lcore:#?}");
}

/// A send whose completion frees the only place of a send queue: an lcore that waited for solicited
/// messages alone would wait for each.
#[test]
fn two_lcores_are_woken_by_completions_of_their_own_sends() {
    if lacks_cpus(2) {
        return;
    }
    let end = |name: &str, place: u8, peer: &str, next: &str| {
        format!(
            r#"
            [lcore.{name}]
            cpu = "allowed:{place}"
            idle = "event"
            unsolicited_wait = "{WAIT}"
            [port.{name}]
            lcore = "{name}"
            device = "nic0"
            pool = "p"
            transport = "rc"
            peer = "port.{peer}"
            rx_depth_wr = 8
            tx_depth_wr = 1
            solicited = true
            next = "stage.{next}"
            "#
        )
    };
    let text = format!(
        r#"
        {near}
        {far}
        [device.nic0]
        provider = "soft"
        name = "soft0"
        [pool.p]
        device = "nic0"
        packets = 64
        data_bytes = 1024
        pages = "4KiB"
        [stage.ping]
        use = "pinger"
        lcore = "near"
        pool = "p"
        out = {{ out = "port.near" }}
        params = {{ count = 200, size_bytes = 600 }}
        [stage.echo]
        use = "forward"
        lcore = "far"
        out = {{ out = "port.far" }}
        "#,
        near = end("near", 0, "far", "ping"),
        far = end("far", 1, "near", "echo"),
    );
    // 200 trips of which each waited would take longer than the run has.
    let report = run(&registry(), &text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("ping").unwrap().counter("trips"), Some(200), "{report:#?}");
    assert!(report.elapsed_ns < Duration::from_secs(15).as_nanos() as u64, "{} ns", report.elapsed_ns);
}
