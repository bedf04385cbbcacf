//! The recorded day of the Moscow Exchange, played by the shipped plan: every message, every
//! snapshot.

use std::fs;

use serde_json::Value;
use tick_to_trade::fast::{MessageKind, MoexFeed};
use verbline_tests::{Program, recording, two_lcores};

use crate::command::feed_files::changed;
use crate::command::report::number;
use crate::command::{PATIENT, app};

/// The shipped plan on the recording, faster than shipped, with queues that hold all of it, so that
/// no stall loses anything.
fn replay(sets: &[&str]) -> Option<Program> {
    replay_for("10m", sets)
}

fn replay_for(time: &str, sets: &[&str]) -> Option<Program> {
    let dir = format!("feed.dir={}", recording()?.display());
    let run = app().with(["run", "config/moex-replay.toml", "--for", time]).with(two_lcores(["exchange", "trader"])?);
    let roomy = ["md_a", "md_b", "md_snapshots"].map(|port| format!("port.{port}.rx_depth_wr=16384"));
    let common = ["feed.speed=250", "pool.packets.packets=65536", PATIENT, &dir];
    let all = common.into_iter().chain(roomy.iter().map(String::as_str)).chain(sets.iter().copied());
    Some(run.with(all.flat_map(|set| ["--set", set])).with(["--json"]))
}

fn forts(json: &Value, keys: [&str; 6]) -> [u64; 6] {
    keys.map(|key| number(&json["forts"], key))
}

const KEYS: [&str; 6] =
    ["increments", "entries", "rpt_seq_breaks", "snapshots_equal", "snapshots_compared", "snapshots_different"];

/// The instruments of the recording.
const BOOKS: u64 = 11;

#[test]
fn two_lcores_merge_the_recording_without_a_loss() {
    let Some(run) = replay(&[]) else { return };
    let shown = run.run().exited(0);
    let json = shown.json();
    assert_eq!(
        ["ticks_published", "ticks_received", "gaps", "ticks_missing", "late"].map(|key| number(&json, key)),
        [8_112, 8_112, 0, 0, 0]
    );
    assert_eq!(forts(&json, KEYS), [8_112, 22_117, 0, 6_370, 6_370, 0], "{shown}");
    let forts = ["malformed", "contradictions", "books_recovered"].map(|key| number(&json["forts"], key));
    assert_eq!(forts, [0, 0, BOOKS], "each book once, by its first snapshot: {shown}");
    assert_eq!(number(&json["packets"], "held"), 0, "{shown}");
    assert_eq!(json["drops"], serde_json::json!([]), "{shown}");
}

#[test]
fn two_lcores_recover_from_what_both_channels_lost() {
    let Some(run) = replay(&["feed.drop_a=0.1", "feed.drop_b=0.1"]) else { return };
    let shown = run.run().exited(0);
    let json = shown.json();
    let both = number(&json["dropped_on_purpose"], "both");
    let gaps = number(&json, "gaps");
    assert!(both > 0 && (1..=both).contains(&gaps), "{shown}");
    assert_eq!(number(&json, "ticks_missing") + number(&json, "late"), both, "{shown}");
    assert_eq!(number(&json, "ticks_received"), 8_112 - both, "{shown}");

    let [increments, entries, breaks, equal, compared, different] = forts(&json, KEYS);
    assert_eq!(increments, 8_112 - both, "{shown}");
    assert!(entries < 22_117 && breaks > 0, "{shown}");
    assert_eq!((equal, different), (compared, 0), "every snapshot after a recovery is equal: {shown}");
    assert!(equal > 5_000, "the books are up most of the time: {shown}");
    assert!(number(&json["forts"], "books_recovered") > 0, "{shown}");
    assert_eq!(number(&json["packets"], "held"), 0, "{shown}");
}

#[test]
fn two_lcores_account_for_a_channel_that_is_lost_whole() {
    // Channel B of the recording has all but 24 of the messages.
    let Some(run) = replay(&["feed.drop_a=1.0"]) else { return };
    let shown = run.run().exited(0);
    let json = shown.json();
    let both = number(&json["dropped_on_purpose"], "both");
    assert_eq!((both, number(&json, "received_a")), (24, 0), "{shown}");
    assert_eq!(number(&json, "ticks_missing"), both, "{shown}");
    let [.., equal, compared, different] = forts(&json, KEYS);
    assert!(equal == compared && different == 0, "{shown}");
}

#[test]
fn two_lcores_account_for_a_replay_that_is_ended_early() {
    // At the stop one tick is open: its copy on channel A has gone out, the one on B has not. The
    // end is announced as well, so that the trader sees its last losses.
    for time in ["150ms", "200ms"] {
        let Some(run) = replay_for(time, &["feed.drop_a=0.1", "feed.drop_b=0.1"]) else { return };
        let shown = run.run().exited(0);
        let json = shown.json();
        let [published, received, late] = ["ticks_published", "ticks_received", "late"].map(|key| number(&json, key));
        assert_eq!(published, received + late + number(&json["dropped_on_purpose"], "both"), "{shown}");
        assert!(0 < published && published < 8_112, "{shown}");
        assert_eq!(["ticks_unaccounted", "ticks_surplus"].map(|key| number(&json, key)), [0, 0], "{shown}");
        assert_eq!(json["failures"], serde_json::json!([]), "{shown}");
    }
}

/// A SequenceReset (template 49) with this number, after which the numbers continue as before: one
/// from the recording's snapshot channel, with MsgSeqNum (the last field but two) and NewSeqNo (the
/// last) replaced.
fn sequence_reset(feed: &MoexFeed, number: u32) -> Vec<u8> {
    let (_, recorded) =
        feed.snapshots.iter().find(|(datagram, _)| datagram.kind == MessageKind::SequenceReset).unwrap();
    let mut fields: Vec<_> = recorded.split_inclusive(|byte| byte & 0x80 != 0).map(<[u8]>::to_vec).collect();
    let uint = |number: u32| {
        let mut bytes = [28, 21, 14, 7, 0].map(|shift| (number >> shift) as u8 & 0x7f);
        bytes[4] |= 0x80;
        bytes[bytes.iter().take_while(|byte| **byte == 0).count()..].to_vec()
    };
    let last = fields.len() - 1;
    (fields[last - 2], fields[last]) = (uint(number), uint(number + 1));
    fields.concat()
}

/// A SequenceReset in place of an increment on both channels: no book is right until a snapshot of
/// the new numbers has come, and then all are.
#[test]
fn two_lcores_rebuild_every_book_after_a_sequence_reset() {
    let Some(dir) = changed("micex_increment_a.dat", |_| ()) else { return };
    let feed = MoexFeed::open(dir.path()).unwrap();
    let reset = 486_000;
    for (recording, file) in feed.increments.iter().zip(["micex_increment_a.dat", "micex_increment_b.dat"]) {
        let datagram = recording.datagrams.iter().find(|datagram| datagram.msg_seq_num == reset).unwrap();
        let mut bytes = recording.bytes.clone();
        bytes.splice(datagram.range.clone(), sequence_reset(&feed, reset));
        fs::write(dir.path().join(file), bytes).unwrap();
    }
    let Some(run) = replay(&[&format!("feed.dir={}", dir.path().display())]) else { return };
    let shown = run.run().exited(0);
    let json = shown.json();
    let [.., equal, compared, different] = forts(&json, KEYS);
    assert!(equal == compared && different == 0 && equal > 5_000, "{shown}");
    assert_eq!(number(&json["forts"], "books_recovered"), 2 * BOOKS, "{shown}");
}

/// Every TradingSessionStatus (template 66) of the recording reports a halt: the books are kept,
/// and nothing is traded on them.
#[test]
fn two_lcores_trade_nothing_while_the_market_is_halted() {
    let Some(dir) = changed("micex_snapshot.dat", |_| ()) else { return };
    let feed = MoexFeed::open(dir.path()).unwrap();
    let mut bytes = feed.snapshots.bytes.clone();
    for datagram in feed.snapshots.datagrams.iter().filter(|datagram| datagram.kind == MessageKind::SessionStatus) {
        // TradSesStatus is before MarketSegmentID and TradSesEvent, of a byte each.
        let status = &mut bytes[datagram.range.end - 3];
        assert_eq!(std::mem::replace(status, 0x81), 0x82, "the market was open");
    }
    fs::write(dir.path().join("micex_snapshot.dat"), bytes).unwrap();
    let Some(run) = replay(&[&format!("feed.dir={}", dir.path().display())]) else { return };
    let shown = run.run().exited(0);
    let json = shown.json();
    assert_eq!(forts(&json, KEYS), [8_112, 22_117, 0, 6_370, 6_370, 0], "{shown}");
    let strategy = ["updates", "orders_sent"].map(|key| number(&json["strategy"], key));
    assert_eq!((strategy, number(&json["forts"], "told")), ([0, 0], 0), "{shown}");
}
