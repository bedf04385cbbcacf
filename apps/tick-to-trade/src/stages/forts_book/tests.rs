//! The strategy's updates after losses, contradictions and halts.

use super::statuses::{OPEN, TRADES};
use super::*;
use crate::fast::{Action, Decimal, Entry, EntryType, Templates};

const LIVE: Mark = Mark { skip: 0, lost_before: false };

/// Templates of messages that are no increments, with the fields that the decoder keeps.
const TEMPLATES: &str = "<templates>
    <template name='Heartbeat' id='44'><uInt32 name='MsgSeqNum' id='34'/></template>
    <template name='SequenceReset' id='49'><uInt32 name='MsgSeqNum' id='34'/>
    <uInt32 name='NewSeqNo' id='36'/></template>
    <template name='SecurityStatus' id='78'><uInt32 name='MsgSeqNum' id='34'/><uInt64 name='SecurityID' id='48'/>
    <uInt32 name='SecurityTradingStatus' id='326' presence='optional'/></template></templates>";

/// A presence map with the template's bit, and the template's number.
const HEARTBEAT: [u8; 2] = [0xC0, 0x80 | 44];
const SEQUENCE_RESET: [u8; 2] = [0xC0, 0x80 | 49];
const SECURITY_STATUS: [u8; 2] = [0xC0, 0x80 | 78];

/// A small number with its stop bit.
fn field(value: u32) -> u8 {
    0x80 | u8::try_from(value).expect("it is small")
}

/// Takes an instrument's status; `None` is a status message about something else.
fn status(stage: &mut FortsBook, sequence: u32, instrument: u32, status: Option<u32>) {
    // A present optional field is encoded as its value plus one.
    let status = status.map_or(0, |status| status + 1);
    let fields = [sequence, instrument, status].map(field);
    let taken = stage.take(Some(LIVE), None, sequence, &[&SECURITY_STATUS[..], &fields].concat());
    assert!(matches!(taken, Taken::Done));
}

/// A stage with a book for each instrument, made live by an empty snapshot.
fn stage(instruments: &[u64]) -> FortsBook {
    let templates = Templates::from_xml(TEMPLATES).expect("it is XML");
    let mut stage = FortsBook::new(Decoder::new(templates), 1, Home::default());
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

/// Applies an increment that finds neither packet nor room for its updates.
fn increment(stage: &mut FortsBook, sequence: u32, mark: Mark, entry: Entry) {
    stage.message = Message { kind: MessageKind::Increment, entries: vec![entry], ..Message::new() };
    if mark.lost_before {
        stage.lose(sequence);
    }
    stage.apply(sequence);
}

/// The waiting updates: instruments, whether they are reset, and best bids.
fn told(stage: &mut FortsBook) -> Vec<(u16, bool, i64)> {
    let told = |update: &Update| (update.instrument, update.reset, update.top.bid.price / 100_000);
    stage.updates.drain().iter().map(told).collect()
}

/// Messages are lost after two books have changed, before either update was sent: the lost messages
/// may have changed either book again. A book's update goes out once its next entry shows that it
/// lost nothing.
#[test]
fn what_waits_is_taken_back_after_a_loss_and_told_again_of_a_book_that_is_right() {
    let mut stage = stage(&[10, 11]);
    increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
    increment(&mut stage, 2, LIVE, bid(Action::New, 11, 1, 200));
    // An entry of the first book, which had another among the lost.
    increment(&mut stage, 4, Mark { lost_before: true, ..LIVE }, bid(Action::New, 10, 3, 90));
    assert_eq!(told(&mut stage), []);
    // This one leaves the best level unchanged.
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

/// A halted instrument gets no updates, even if it was halted before its book appeared.
#[test]
fn nothing_is_told_of_an_instrument_that_is_halted_and_of_the_others_all() {
    const HALTED: Option<u32> = Some(2);
    let mut stage = stage(&[10, 11]);
    increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
    increment(&mut stage, 2, LIVE, bid(Action::New, 11, 1, 200));
    status(&mut stage, 3, 10, HALTED);
    status(&mut stage, 4, 12, HALTED);
    snapshot(&mut stage, 12, 0, &[]);
    increment(&mut stage, 5, LIVE, bid(Action::New, 10, 2, 110));
    increment(&mut stage, 6, LIVE, bid(Action::New, 12, 1, 300));
    status(&mut stage, 7, 10, None);
    increment(&mut stage, 8, LIVE, bid(Action::New, 10, 3, 90));
    assert_eq!(told(&mut stage), [(1, false, 200)]);
    for instrument in 10..13 {
        status(&mut stage, 9, instrument, Some(TRADES));
    }
    increment(&mut stage, 10, LIVE, bid(Action::New, 10, 4, 80));
    increment(&mut stage, 11, LIVE, bid(Action::New, 11, 2, 190));
    increment(&mut stage, 12, LIVE, bid(Action::New, 12, 2, 290));
    assert_eq!(told(&mut stage), [(0, false, 110), (2, false, 300)]);
}

/// Updates from before a loss are as doubtful if the message behind it is no increment, or invalid.
#[test]
fn what_waits_is_taken_back_after_a_loss_in_front_of_any_message() {
    let lost = Some(Mark { lost_before: true, ..LIVE });
    let (heartbeat, other) = ([&HEARTBEAT[..], &[field(3)]].concat(), [&HEARTBEAT[..], &[field(4)]].concat());
    for (message, is_one) in [(&heartbeat[..], true), (&other, false), (&[0xFF], false)] {
        let mut stage = stage(&[10]);
        increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
        assert_eq!(matches!(stage.take(lost, None, 3, message), Taken::Done), is_one);
        assert_eq!(told(&mut stage), [], "{message:?}");
        increment(&mut stage, 4, LIVE, bid(Action::New, 10, 2, 90));
        assert_eq!(told(&mut stage), [(0, true, 100)], "{message:?}");
    }
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

/// Regression: an Empty Book entry that names no instrument, as in a reset of the market, was
/// counted as a contradiction, and all books were held to be right.
#[test]
fn a_reset_of_the_market_leaves_no_book_right_before_a_snapshot_of_after_it() {
    let mut stage = stage(&[10, 11]);
    increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
    increment(&mut stage, 2, LIVE, bid(Action::New, 11, 1, 200));
    let reset = Entry { entry_type: EntryType::EmptyBook, security_id: None, ..Entry::default() };
    increment(&mut stage, 3, LIVE, reset);
    assert!(stage.books.books().iter().all(|book| book.trust() == Trust::Stale));
    assert_eq!((told(&mut stage), stage.tally.contradictions), (vec![], 0), "what waited is void");
    increment(&mut stage, 4, LIVE, bid(Action::New, 10, 1, 90));
    assert_eq!(told(&mut stage), []);
    for (processed, outcome) in [(2, SnapshotOutcome::TooEarly), (4, SnapshotOutcome::Recovered)] {
        let entries = vec![bid(Action::New, 10, 1, 90)];
        let kind = MessageKind::Snapshot;
        let security_id = Some(10);
        let snapshot =
            Message { kind, security_id, rpt_seq: 1, last_msg_seq_num_processed: processed, entries, ..Message::new() };
        stage.message = snapshot;
        assert_eq!(stage.compare(), Some(outcome));
    }
    increment(&mut stage, 5, LIVE, bid(Action::New, 10, 2, 95));
    assert_eq!(told(&mut stage), [(0, true, 95)]);
}

/// Regression: each halted instrument without a book took the place of a book, so that instruments
/// after the first 1,024 could have none.
#[test]
fn halts_of_instruments_without_a_book_take_no_place_of_one() {
    let mut stage = stage(&[]);
    let halt = |stage: &mut FortsBook, security_id, status| {
        stage.message = Message {
            kind: MessageKind::SecurityStatus,
            security_id: Some(security_id),
            trading_status: Some(status),
            ..Message::new()
        };
        stage.security();
    };
    let most = 70_000;
    (0..most).for_each(|instrument| halt(&mut stage, instrument, 2));
    halt(&mut stage, 1, TRADES);
    assert_eq!(stage.books.books().len(), 0);
    // One that is halted, one that trades again, one that found no place, and one without a status.
    for (sequence, instrument) in (1..).zip([0, 1, most - 1, most]) {
        snapshot(&mut stage, instrument, 0, &[]);
        increment(&mut stage, sequence, LIVE, bid(Action::New, instrument, 1, 100));
    }
    assert_eq!(told(&mut stage), [], "where some found no place, a new book waits for a status");
    for instrument in [1, most - 1, most] {
        halt(&mut stage, instrument, TRADES);
        increment(&mut stage, 9, LIVE, bid(Action::New, instrument, 2, 110));
    }
    assert_eq!(told(&mut stage), [(1, false, 110), (2, false, 110), (3, false, 110)]);
}

/// Regression: a message that can't be read was dropped as if nothing had been lost, and the feed
/// did not begin anew with it.
#[test]
fn a_message_that_cannot_be_read_is_a_loss_and_the_feed_begins_anew_with_it() {
    let false_preamble = [&HEARTBEAT[..], &[field(9)]].concat();
    for message in [&[0xFF][..], &false_preamble] {
        let mut stage = stage(&[10]);
        increment(&mut stage, 1, LIVE, bid(Action::New, 10, 1, 100));
        assert!(matches!(stage.take(Some(LIVE), None, 2, message), Taken::Dropped(_)));
        assert_eq!((told(&mut stage), stage.books.books()[0].trust()), (vec![], Trust::Suspect), "{message:?}");
        increment(&mut stage, 3, LIVE, bid(Action::New, 10, 2, 110));
        assert_eq!(told(&mut stage), [(0, true, 110)], "{message:?}");

        assert!(matches!(stage.take(None, Some(Some(LIVE)), 1, message), Taken::Dropped(_)));
        assert_eq!(stage.books.books()[0].trust(), Trust::Stale, "{message:?}");
    }
}

/// The exchange starts its numbers anew in the middle of the stream, or with the first message
/// after its own restart.
#[test]
fn a_sequence_reset_starts_the_numbers_anew_wherever_it_is_in_the_stream() {
    for (mark, anew) in [(Some(LIVE), None), (None, Some(Some(LIVE)))] {
        let mut stage = stage(&[10]);
        let reset = [&SEQUENCE_RESET[..], &[field(1), field(50)]].concat();
        assert!(matches!(stage.take(mark, anew, 1, &reset), Taken::Done));
        let processed = |processed| Message {
            kind: MessageKind::Snapshot,
            security_id: Some(10),
            last_msg_seq_num_processed: processed,
            ..Message::new()
        };
        for (number, outcome) in [(48, SnapshotOutcome::TooEarly), (49, SnapshotOutcome::Recovered)] {
            stage.message = processed(number);
            assert_eq!(stage.compare(), Some(outcome), "{anew:?}");
        }
    }
}
