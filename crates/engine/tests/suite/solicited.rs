//! Lcores that only solicited messages wake: the others wait, for as long as the plan says at most,
//! and what an lcore waits for itself still wakes it.

use crate::common::{assert_clean, lacks_cpus, registry, run};
use verbline_engine::Report;

/// Far more than any message takes, and far less than a test has time for.
const WAIT: &str = "400ms";

/// A source on one lcore that sends `count` messages, one every `gap_us`, to another lcore, asleep.
fn text(solicited: bool, wait: Option<&str>, count: u64, gap_us: u64) -> String {
    let wait = wait.map_or(String::new(), |wait| format!("unsolicited_wait = \"{wait}\""));
    format!(
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
    )
}

fn stream(solicited: bool, wait: Option<&str>, count: u64, gap_us: u64) -> Report {
    let report = run(&registry(), &text(solicited, wait, count, gap_us)).unwrap();
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

/// The peer has one place to receive into, and takes its time: each send completes late, and frees
/// the only place of the send queue. An lcore that solicited messages alone woke would wait for
/// each.
#[test]
fn two_lcores_of_which_one_is_woken_by_completions_of_its_own_sends() {
    if lacks_cpus(2) {
        return;
    }
    const COUNT: u64 = 100;
    let text = text(false, None, COUNT, 0)
        .replace("[lcore.a]", &format!("[lcore.a]\nunsolicited_wait = \"{WAIT}\""))
        .replace("_depth_wr = 512", "_depth_wr = 1")
        .replace("gap_us = 0", "polite = true, patient = true")
        .replace("use = \"sink\"", "use = \"sink\"\nparams = { work_us = 3000 }");
    // Waiting for each would take longer than the run has.
    let report = run(&registry(), &text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().packets_in, COUNT, "{report:#?}");
    assert!(report.lcore("a").unwrap().woken_by("completion") > COUNT / 4, "{report:#?}");
}
