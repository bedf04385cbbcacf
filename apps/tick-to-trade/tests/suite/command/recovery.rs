//! Messages lost on both channels are recovered, by retransmission or by snapshots; and the run
//! itself reports whether every book equals the exchange's.

use serde_json::Value;
use verbline_tests::unwrapped;

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
    // A book whose announcement was lost is not known to be wrong.
    assert!(books == [8, 0] && number(&json["books"], "stale") > 0, "{shown}");
    assert!(number(&json["recovery"], "given_up") > 0, "{shown}");
}

/// A plan with another session than the feed's: nothing of the feed is followed, and the report
/// gives the reason. An impossible session is refused at its key.
#[test]
fn two_lcores_follow_no_session_but_the_one_that_is_named() {
    let Some(run) = generated("700ms", &["stage.arbiter.params.session=NOBODY"]) else { return };
    let shown = run.run().exited(1);
    let (said, warned) = (unwrapped(&shown.stdout), unwrapped(&shown.stderr));
    assert!(said.contains("ticks were neither received nor dropped on purpose: stage.arbiter dropped"), "{shown}");
    assert!(said.contains("packets of another session than the one that it follows"), "{shown}");
    assert!(!said.contains("rx_depth_wr"), "no queue was too short: {shown}");
    assert!(warned.contains("which the plan does not name: no book is right now"), "{shown}");
    for name in ["NOBODYATALL", "\u{e9}", "\"\""] {
        let shown = run.with(["--set", &format!("stage.arbiter.params.session={name}")]).run().exited(2);
        assert!(unwrapped(&shown.stderr).contains("a MoldUDP64 session is 1 to 10 ASCII characters"), "{shown}");
    }
}
