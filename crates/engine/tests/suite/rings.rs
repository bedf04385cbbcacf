//! Whole runs over rings between two lcores: hand-off, sleep and wake, backpressure, and the timers
//! that bound a sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{OUT, assert_clean, lacks_cpus, registry, run, run_for, two_lcores, tx_to_rx};
use verbline_engine::{Next, Outputs, Stage, StageSpec};
use verbline_mem::Batch;

/// A generator on one lcore, a sink on the other, a ring between them.
fn hand_off(depth: u32, producer: &str, consumer: &str, generator: &str, sink: &str) -> String {
    let [a, b] = [producer, consumer].map(|keys| format!("burst = 8\n{keys}"));
    let rest = format!(
        r#"
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
    );
    two_lcores([&a, &b], [2048, 64], &rest)
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
    // On a busy machine some packets come together, but far from all.
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
    let rest = r#"
        [ring.r]
        to = "port.tx"
        depth = 64
        [stage.gen]
        use = "generator"
        lcore = "a"
        pool = "p"
        out = { out = "ring.r" }
        params = { count = 5000, polite = true, size_bytes = 300 }
        [stage.sink]
        use = "sink"
        lcore = "b"
    "#;
    let rest = tx_to_rx("b", 16, "next = \"drop\"") + rest;
    let text = two_lcores(["idle = \"adaptive\""; 2], [4096, 512], &rest);
    let report = run(&registry(), &text).unwrap();
    assert_clean(&report);
    assert_eq!(report.stage("sink").unwrap().counter("seen"), Some(5000), "{report:#?}");
    assert!(report.drops.is_empty(), "a ring keeps what a port has no room for: {:?}", report.drops);
}

/// The number of packets in each ring of the test below.
const FILLED: u64 = 40;

/// Fills its ring at once, with packets that carry its number, and reports that a turn later.
struct Filler {
    number: u64,
    is_full: bool,
    filled: Arc<AtomicU64>,
}

impl Stage for Filler {
    fn process(&mut self, _: &mut Batch, _: &mut Outputs<'_>) {}

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.is_full {
            // Release pairs with the Acquire in `Late`: this lcore's published packets are visible
            // there.
            self.filled.fetch_add(1, Ordering::Release);
            return Next::Done;
        }
        self.is_full = true;
        for _ in 0..FILLED {
            let mut packet = out.alloc().expect("a packet");
            packet.set_mark(self.number);
            assert!(out.send(OUT, packet));
        }
        Next::Busy
    }
}

/// Takes its first batch so slowly that all rings are full by then, and records all batches.
struct Late {
    filled: Arc<AtomicU64>,
    batches: Arc<Mutex<Vec<Vec<u64>>>>,
}

impl Stage for Late {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        let patience = Instant::now() + Duration::from_secs(20);
        // Acquire pairs with the Release in `Filler`.
        while self.filled.load(Ordering::Acquire) < 3 && Instant::now() < patience {
            std::thread::yield_now();
        }
        self.batches.lock().unwrap().push(input.iter().map(|packet| packet.mark()).collect());
        input.clear();
    }
}

/// The plan's rings do not stand in the order of their priorities.
#[test]
fn two_lcores_the_most_urgent_ring_that_has_something_comes_first() {
    if lacks_cpus(2) {
        return;
    }
    let (filled, batches) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let mut registry = registry();
    let spec = StageSpec { outputs: &["out"], source: true, summary: "fills a ring", ..StageSpec::default() };
    let count = Arc::clone(&filled);
    registry.stage("filler", spec, move |context| {
        let number = context.name().trim_start_matches("filler").parse()?;
        Ok(Box::new(Filler { number, is_full: false, filled: Arc::clone(&count) }))
    });
    let spec = StageSpec { summary: "comes late", ..StageSpec::default() };
    let seen = Arc::clone(&batches);
    registry
        .stage("late", spec, move |_| Ok(Box::new(Late { filled: Arc::clone(&filled), batches: Arc::clone(&seen) })));
    let mut text = hand_off(64, "", "", "", "");
    text.truncate(text.find("[ring.r]").unwrap());
    text = text.replacen("burst = 8", "burst = 64", 1) + "[stage.late]\nuse = \"late\"\nlcore = \"b\"\n";
    for (number, priority) in [(2, 0), (0, 9), (1, 3)] {
        text += &format!(
            "[ring.r{number}]\nto = \"stage.late\"\ndepth = 64\npriority = {priority}\n\
             [stage.filler{number}]\nuse = \"filler\"\nlcore = \"a\"\npool = \"p\"\n\
             out = {{ out = \"ring.r{number}\" }}\n"
        );
    }
    let report = run(&registry, &text).unwrap();
    assert_clean(&report);
    let (mut left, mut mixed) = ([FILLED; 3], 0);
    for (at, batch) in batches.lock().unwrap().iter().enumerate() {
        let first = left.iter().position(|left| *left > 0).expect("there was more");
        match batch.iter().all(|number| *number == batch[0]) {
            false => mixed += 1,
            // Not all rings were full when the first batch came.
            true => assert!(at == 0 || batch[0] == first as u64, "batch {at} is of ring {}: {left:?}", batch[0]),
        }
        batch.iter().for_each(|number| left[*number as usize] -= 1);
    }
    assert_eq!(left, [0; 3]);
    // About once in sixteen turns the other rings get a burst as well, and such a turn is timed.
    assert!(mixed <= report.stage("late").unwrap().timed, "{mixed} of several rings");
}
