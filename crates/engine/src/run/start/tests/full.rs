//! Packets for a full ring, and the priorities of rings.

use super::{Report, end, lcores, run, seen, source};

/// A source on `a` sends at full speed to a slow stage on `b`, over a ring of 8.
fn flood(count: u64, policy: &str) -> Report {
    let text = lcores(&["a", "b"], "event")
        + &source("one", "a", "ring.slow", &format!("id = 0, count = {count}"))
        + &format!("[ring.slow]\nto = \"stage.end\"\ndepth = 8\n{policy}\n")
        + &end("end", "b", "work_us = 100");
    run(&text)
}

fn refused(report: &Report, stage: &str) -> u64 {
    report.stage(stage).unwrap().counter("refused").unwrap()
}

#[test]
fn a_ring_that_refuses_drops_the_new() {
    let report = flood(2000, "");
    let dropped = report.dropped("ring_full");
    assert!(dropped > 0 && dropped == refused(&report, "one"), "{report:#?}");
    assert_eq!(seen(&report, "end", 0) + dropped, 2000);
}

#[test]
fn a_ring_that_drops_the_oldest_keeps_the_newest() {
    let report = flood(2000, "full = \"displace\"");
    let (seen, dropped) = (seen(&report, "end", 0), report.dropped("displaced"));
    assert_eq!((seen + dropped, refused(&report, "one")), (2000, 0), "{report:#?}");
    assert!(dropped > 0 && report.drops.len() == 1, "{:?}", report.drops);
    assert_eq!(report.stage("end").unwrap().counter("last"), Some(1999), "the newest");
}

#[test]
fn a_ring_that_holds_loses_nothing_and_its_source_waits() {
    let report = flood(400, "full = \"hold\"");
    assert_eq!((seen(&report, "end", 0), refused(&report, "one")), (400, 0), "{report:#?}");
    assert!(report.drops.is_empty() && report.ring("slow").unwrap().full > 0, "{report:#?}");
}

#[test]
fn what_is_held_back_stays_in_the_ring_before_it_which_drops() {
    let text = lcores(&["a", "b", "c"], "event")
        + &source("one", "a", "ring.first", "id = 0, count = 3000")
        + "[ring.first]\nto = \"stage.mid\"\ndepth = 16\n"
        + "[stage.mid]\nuse = \"forward\"\nlcore = \"b\"\nout = { out = \"stage.next\" }\n"
        + "[stage.next]\nuse = \"forward\"\nlcore = \"b\"\nout = { out = \"ring.last\" }\n"
        + "[ring.last]\nto = \"stage.end\"\ndepth = 4\nfull = \"hold\"\n"
        + &end("end", "c", "work_us = 100");
    let report = run(&text);
    let dropped = report.dropped("ring_full");
    assert_eq!((seen(&report, "end", 0) + dropped, dropped), (3000, refused(&report, "one")), "{report:#?}");
    let places: Vec<_> = report.drops.iter().map(|drop| drop.place.as_str()).collect();
    assert_eq!(places, ["ring.first"]);
    assert!(report.ring("last").unwrap().full > 0, "{report:#?}");
}

#[test]
fn one_lane_that_holds_holds_nobody_else() {
    let text = lcores(&["a", "b", "c"], "event")
        + &source("one", "a", "ring.slow", "id = 0, count = 300")
        + &source("two", "a", "stage.near", "id = 1, count = 300")
        + &source("three", "b", "ring.slow", "id = 2, count = 300")
        + "[ring.slow]\nto = \"stage.end\"\ndepth = 4\nfull = \"hold\"\n"
        + &end("near", "a", "")
        + &end("end", "c", "work_us = 100");
    let report = run(&text);
    assert_eq!([("end", 0), ("near", 1), ("end", 2)].map(|(stage, id)| seen(&report, stage, id)), [300; 3]);
    assert!(report.drops.is_empty(), "{:?}", report.drops);
}

#[test]
fn rings_of_less_urgency_are_not_forgotten() {
    let text = lcores(&["a", "b"], "event")
        + &source("one", "a", "ring.bulk", "id = 0, count = 500")
        + &source("two", "a", "ring.urgent", "id = 1, count = 500")
        + "[ring.bulk]\nto = \"stage.end\"\ndepth = 8\nfull = \"hold\"\n"
        + "[ring.urgent]\nto = \"stage.end\"\ndepth = 8\nfull = \"hold\"\npriority = 3\n"
        + &end("end", "b", "");
    let report = run(&text);
    assert_eq!([0, 1].map(|id| seen(&report, "end", id)), [500; 2]);
    assert!(report.drops.is_empty(), "{:?}", report.drops);
}
