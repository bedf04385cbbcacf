//! What the strategy is told of the books after losses, contradictions and halts.

use super::*;
use crate::fast::{Action, Decimal, Entry, EntryType, Templates};

const LIVE: Mark = Mark { skip: 0, lost_before: false };

/// A stage with a book of each instrument, brought to life by an empty snapshot.
fn stage(instruments: &[u64]) -> FortsBook {
    let templates = Templates::from_xml("<templates/>").expect("it is XML");
    let mut stage = FortsBook::new(Decoder::new(templates), 1, Tally::default());
    stage.session(OPEN);
    for &instrument in instruments {
        snapshot(&mut stage, instrument, 0, &[]);
    }
    stage
}

fn bid(action: Action, instrument: u64, rpt_seq: u32, price: i64) -> Entry {
    Entry {
        action,
        entry_type: EntryType::Bid,
        security_id: Some(instrument),
        rpt_seq,
        price: Some(Decimal { mantissa: price, exponent: 0 }),
        size: Some(7),
        ..Entry::default()
    }
}

fn snapshot(stage: &mut FortsBook, instrument: u64, rpt_seq: u32, entries: &[Entry]) {
    stage.message = Message {
        kind: MessageKind::Snapshot,
        security_id: Some(instrument),
        rpt_seq,
        entries: entries.to_vec(),
        ..Message::new()
    };
    stage.compare();
}

/// An increment that finds neither packet nor room for what it changes.
fn increment(stage: &mut FortsBook, sequence: u32, mark: Mark, entry: Entry) {
    stage.message = Message { kind: MessageKind::Increment, entries: vec![entry], ..Message::new() };
    stage.apply(sequence, mark);
}

/// What waits to be told: instruments, whether they are reset, and best bids.
fn told(stage: &mut FortsBook) -> Vec<(u16, bool, i64)> {
    let told = |update: &Update| (update.instrument, update.reset, update.top.bid.price / 100_000);
    stage.updates.drain().iter().map(told).collect()
}

/// Two books have changed, and none of it could be told yet, when messages are lost: either
/// book may have changed again by these. One is told once its next entry shows that it lost
/// nothing.
#[test]
fn what_waits_is_taken_back_after_a_loss_and_told_again_of_a_book_that_is_right() {
    let mut stage = stage(&[10, 11]);
    increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
    increment(&mut stage, 2, LIVE, bid(Action::New, 11, 1, 200));
    // Of the first book, which had an entry among the lost.
    increment(&mut stage, 4, Mark { lost_before: true, ..LIVE }, bid(Action::New, 10, 3, 90));
    assert_eq!(told(&mut stage), []);
    // It leaves the best level as it was.
    increment(&mut stage, 5, LIVE, bid(Action::New, 11, 2, 190));
    assert_eq!(told(&mut stage), [(1, true, 200)]);
}

#[test]
fn what_waits_is_taken_back_in_a_halt_and_told_after_it_as_the_book_is_then() {
    const HALTED: u32 = 1;
    let mut stage = stage(&[10]);
    increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
    stage.session(HALTED);
    increment(&mut stage, 2, LIVE, bid(Action::New, 10, 2, 110));
    assert_eq!(told(&mut stage), []);
    stage.session(OPEN);
    increment(&mut stage, 3, LIVE, bid(Action::New, 10, 3, 90));
    assert_eq!(told(&mut stage), [(0, false, 110)]);
    stage.session(OPEN);
    increment(&mut stage, 4, LIVE, bid(Action::New, 10, 4, 120));
    assert_eq!(told(&mut stage), [(0, false, 120)], "nothing is owed twice");
}

#[test]
fn what_waits_is_taken_back_of_a_book_that_is_contradicted() {
    let absent = bid(Action::Delete, 10, 2, 50);
    let nameless = Entry { security_id: None, ..absent };
    let unusable = Entry { price: None, ..absent };
    let behind_a_break = bid(Action::New, 10, 3, 90);
    for (contradicts, waits) in [(absent, 1), (unusable, 1), (behind_a_break, 1), (nameless, 2)] {
        let mut stage = stage(&[10, 11]);
        increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
        increment(&mut stage, 2, LIVE, bid(Action::New, 11, 1, 200));
        increment(&mut stage, 3, LIVE, contradicts);
        assert_eq!(told(&mut stage).len(), waits, "{contradicts:?}");
    }
    let mut stage = stage(&[10]);
    increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
    snapshot(&mut stage, 10, 1, &[bid(Action::New, 10, 1, 300)]);
    assert_eq!(told(&mut stage), [], "a snapshot differs");
    increment(&mut stage, 2, LIVE, bid(Action::New, 10, 2, 290));
    assert_eq!(told(&mut stage), [(0, false, 300)]);
}
