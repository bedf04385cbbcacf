//! What both channels lost comes back: by retransmission, or by snapshots; and the run itself says
//! whether every book equals the exchange's.

use serde_json::Value;

use crate::command::generated;
use crate::command::report::{assert_accounted, number};

/// A run with losses: a fiftieth of the frames is lost on both channels.
fn lossy(seconds: &str, sets: &[&str]) -> Option<Value> {
    let losses = ["feed.drop_a=0.15", "feed.drop_b=0.15", "feed.ticks_per_second=10000"];
    let run = generated(seconds, &losses.iter().chain(sets).copied().collect::<Vec<_>>())?.with(["--json"]);
    let shown = run.run().exited(0);
    let json = shown.json();
    assert_accounted(&json, &shown);
    let books = ["compared", "equal", "stale"].map(|key| number(&json["books"], key));
    assert_eq!(books, [8, 8, 0], "{shown}");
    assert!(number(&json["recovery"], "gaps") > 10, "{shown}");
    Some(json)
}

#[test]
fn two_lcores_recover_what_both_channels_lost() {
    let Some(json) = lossy("3s", &["feed.drop_answers=0.2"]) else { return };
    let recovery = |key| number(&json["recovery"], key);
    assert_eq!(recovery("missing"), number(&json, "ticks_missing"), "{json:#}");
    assert!(recovery("retransmitted") + recovery("abandoned") >= recovery("missing"), "{json:#}");
    assert!(recovery("requests_again") > 0 && recovery("stale_ns") > 0, "{json:#}");
    assert_eq!(number(&json["itch"], "contradictions") + number(&json["itch"], "crossed"), 0, "{json:#}");
}

#[test]
fn two_lcores_rebuild_books_from_snapshots() {
    for off in ["stage.book.params.gap_messages_max=0", "feed.kept_messages=2"] {
        let Some(json) = lossy("3s", &[off, "stage.book.params.tries=2"]) else { return };
        let recovery = |key| number(&json["recovery"], key);
        assert!(recovery("given_up") > 0 && recovery("books_rebuilt") > 8, "{off}: {json:#}");
        assert!(number(&json["recovery"]["served"], "snapshots") >= recovery("books_rebuilt"), "{off}: {json:#}");
    }
}

#[test]
fn two_lcores_say_that_books_are_wrong_where_nothing_recovers_them() {
    let drops = ["stage.book.out.request=drop", "stage.book.out.snapshot_request=drop"];
    let losses = ["feed.drop_a=0.3", "feed.drop_b=0.3"];
    let sets: Vec<_> = drops.iter().chain(&losses).copied().collect();
    let Some(run) = generated("1s", &sets) else { return };
    let shown = run.with(["--json"]).run().exited(1);
    let json = shown.json();
    let failures = json["failures"].to_string();
    assert!(failures.contains("8 of 8 books differ from the exchange's at the end"), "{shown}");
    let books = ["compared", "equal"].map(|key| number(&json["books"], key));
    // Of books whose announcement was lost nobody knows that they are wrong.
    assert!(books == [8, 0] && number(&json["books"], "stale") > 0, "{shown}");
    assert!(number(&json["recovery"], "given_up") > 0, "{shown}");
}
