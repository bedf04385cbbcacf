//! Whole runs over rings between two lcores: hand-off, sleep and wake, backpressure, and the timers
//! that bound a sleep.

mod common;

use std::time::Duration;

use common::{assert_clean, lacks_cpus, registry, run, run_for};

/// A generator on one lcore, a sink on the other, a ring between them.
fn hand_off(depth: u32, producer: &str, consumer: &str, generator: &str, sink: &str) -> String {
    format!(
        r#"
        [lcore.a]
        cpu = "allowed:0"
        burst = 8
        {producer}
        [lcore.b]
        cpu = "allowed:1"
        burst = 8
        {consumer}
        [device.nic0]
        provider = "soft"
        name = "soft0"
        [pool.p]
        device = "nic0"
        packets = 2048
        data_bytes = 64
        pages = "4KiB"
        [ring.r]
        to = "stage.sink"
        depth = {depth}
        [stage.gen]
        use = "generator"
        lcore = "a"
        pool = "p"
        out = {{ out = "ring.r" }}
        params = {{ {generator} }}
        [stage.sink]
        use = "sink"
        lcore = "b"
        params = {{ {sink} }}
        "#
    )
}

#[test]
fn two_lcores_hand_off_everything_in_order() {
    if lacks_cpus(2) {
        return;
    }
    let poll = "idle = \"poll\"";
    let report = run(&registry(), &hand_off(64, poll, poll, "count = 200000, polite = true", "")).unwrap();
    assert_clean(&report);
    let sink = report.stage("sink").unwrap();
    assert_eq!((sink.counter("seen"), sink.counter("gaps")), (Some(200_000), Some(0)));
    let ring = report.ring("r").unwrap();
    assert_eq!((ring.pushed, ring.popped, ring.depth), (200_000, 200_000, 64));
    assert!((1..=64).contains(&ring.most) && (ring.full == 0 || ring.most == 64), "{ring:?}");
    assert!(report.drops.is_empty(), "{:?}", report.drops);
}

#[test]
fn two_lcores_asleep_are_woken_by_ring_and_by_timer_and_never_rescued() {
    if lacks_cpus(2) {
        return;
    }
    // Half a second at a rate at which both sleep between any two packets.
    let event = "idle = \"event\"";
    let report = run(&registry(), &hand_off(64, event, event, "count = 250, gap_us = 2000", "")).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().counter("seen"), Some(250));
    let (a, b) = (report.lcore("a").unwrap(), report.lcore("b").unwrap());
    // On a busy machine some packets come together; far from all do.
    assert!(a.woken_by("timer") >= 50, "the generator sleeps until each packet is due: {a:?}");
    assert!(b.woken_by("ring") >= 50, "each packet wakes the sink: {b:?}");
    // A bell may also meet the look after arming, or the stop.
    let most = b.woken_by("ring") + b.woken_by("control") + b.armed_in_vain;
    assert!((b.woken_by("ring")..=most).contains(&a.bells), "a bell for each sleep that a ring ended: {a:?} {b:?}");
}

// One always-readable wake source makes a core spin for ever, silently (SPDK #3350, #3552, #3771).
#[test]
fn two_lcores_without_work_sleep_through() {
    if lacks_cpus(2) {
        return;
    }
    let event = "idle = \"event\"";
    let text = hand_off(64, event, event, "count = 100, gap_us = 60000000", "");
    let report = run_for(&registry(), &text, Duration::from_millis(300)).unwrap();
    assert_clean(&report);
    for lcore in &report.lcores {
        assert!((1..10).contains(&lcore.sleeps), "asleep until control calls: {lcore:?}");
    }
}

#[test]
fn two_lcores_adaptive_do_not_sleep_within_the_budget() {
    if lacks_cpus(2) {
        return;
    }
    let adaptive = "idle = \"adaptive\"\nspin = \"10s\"\ndwell = \"20ms\"";
    // Packets come faster than the budget runs out: nobody sleeps until they end.
    let report = run(&registry(), &hand_off(64, adaptive, adaptive, "count = 100, gap_us = 500", "")).unwrap();
    assert_clean(&report);
    let b = report.lcore("b").unwrap();
    assert_eq!((b.sleeps, b.spin_ns, b.dwell_ns), (0, 10_000_000_000, 20_000_000), "{b:?}");
}

#[test]
fn two_lcores_count_what_a_slow_consumer_has_no_room_for() {
    if lacks_cpus(2) {
        return;
    }
    let poll = "idle = \"poll\"";
    let report = run(&registry(), &hand_off(4, poll, poll, "count = 3000", "work_us = 50")).unwrap();
    assert_clean(&report);
    let (generator, sink) = (report.stage("gen").unwrap(), report.stage("sink").unwrap());
    let refused = generator.counter("refused").unwrap();
    assert!(refused > 0, "a ring of 4 overflows: {report:#?}");
    assert_eq!(report.dropped("ring_full"), refused);
    assert_eq!(sink.counter("seen").unwrap() + refused, 3000);
    assert_eq!(generator.packets_out, 3000 - refused);
    let ring = report.ring("r").unwrap();
    assert!(ring.full > 0 && (ring.most, ring.depth) == (4, 4), "a full ring leaves its trace: {ring:?}");
    assert_eq!(report.drops.len(), 1, "{:?}", report.drops);
    assert_eq!((report.drops[0].place.as_str(), report.drops[0].reason.as_str()), ("ring.r", "ring_full"));
}

// Packets must not stay behind when traffic stops (ixy#21), nor be stranded behind a full ring.
#[test]
fn two_lcores_empty_a_full_ring_when_traffic_stops() {
    if lacks_cpus(2) {
        return;
    }
    let event = "idle = \"event\"";
    let text = hand_off(2, event, event, "count = 500, polite = true", "work_us = 20");
    let report = run(&registry(), &text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().counter("seen"), Some(500));
    assert!(report.drops.is_empty(), "{:?}", report.drops);
}

#[test]
fn two_lcores_hand_packets_to_a_port_of_another_lcore() {
    if lacks_cpus(2) {
        return;
    }
    let text = r#"
        [lcore.a]
        cpu = "allowed:0"
        idle = "adaptive"
        [lcore.b]
        cpu = "allowed:1"
        idle = "adaptive"
        [device.nic0]
        provider = "soft"
        name = "soft0"
        [pool.p]
        device = "nic0"
        packets = 4096
        data_bytes = 512
        pages = "4KiB"
        [ring.r]
        to = "port.tx"
        depth = 64
        [stage.gen]
        use = "generator"
        lcore = "a"
        pool = "p"
        out = { out = "ring.r" }
        params = { count = 5000, polite = true, size_bytes = 300 }
        [port.tx]
        lcore = "b"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.rx"
        rx_depth_wr = 8
        tx_depth_wr = 16
        next = "drop"
        [port.rx]
        lcore = "b"
        device = "nic0"
        pool = "p"
        transport = "rc"
        peer = "port.tx"
        rx_depth_wr = 64
        tx_depth_wr = 0
        next = "stage.sink"
        [stage.sink]
        use = "sink"
        lcore = "b"
    "#;
    let report = run(&registry(), text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().counter("seen"), Some(5000), "{report:#?}");
    assert!(report.drops.is_empty(), "a ring keeps what a port has no room for: {:?}", report.drops);
}
