//! FORTS books under losses and early or late snapshots: a live book always equals the true one.

use proptest::prelude::*;
use tick_to_trade::book::{DepthBook, DepthLevel};
use tick_to_trade::fast::{
    Action, BooksError, BooksSpec, Decimal, Entry, EntryOutcome, EntryType, FORTS_DEPTH, FortsBooks, Message,
    SnapshotOutcome, Trust,
};
use tick_to_trade::itch::Side;

const ID: u64 = 49_634_118;

fn entry(rpt_seq: u32, action: Action, side: Side, price: i64, size: i64) -> Entry {
    let entry_type = if side == Side::Buy { EntryType::Bid } else { EntryType::Offer };
    Entry {
        action,
        entry_type,
        security_id: Some(ID),
        rpt_seq,
        price: Some(Decimal { mantissa: price, exponent: 0 }),
        size: Some(size),
        ..Entry::default()
    }
}

/// A day of one instrument: an entry for each step, and the book after it; index 0 is the empty
/// book.
fn day(steps: &[(bool, i64, i64)]) -> (Vec<Entry>, Vec<DepthBook<FORTS_DEPTH>>) {
    let mut book = DepthBook::new();
    let mut entries = Vec::new();
    let mut truth = vec![book.clone()];
    for (i, &(sells, price, size)) in steps.iter().enumerate() {
        let side = if sells { Side::Sell } else { Side::Buy };
        let level = DepthLevel { price: price * 100_000, size };
        let is_there = book.levels(side).iter().any(|l| l.price == level.price);
        let action = match (is_there, size % 2) {
            (false, _) => Action::New,
            (true, 0) => Action::Change,
            (true, _) => Action::Delete,
        };
        match action {
            Action::New => drop(book.insert(side, level).unwrap()),
            Action::Change => drop(book.change(side, level).unwrap()),
            _ => drop(book.delete(side, level.price).unwrap()),
        }
        entries.push(entry(i as u32 + 1, action, side, price, size));
        truth.push(book.clone());
    }
    (entries, truth)
}

/// The snapshot after `rpt_seq` entries; increment `n` carries entry `n`.
fn snapshot(rpt_seq: usize, book: &DepthBook<FORTS_DEPTH>) -> Message {
    let mut message = Message::new();
    message.security_id = Some(ID);
    message.rpt_seq = rpt_seq as u32;
    message.last_msg_seq_num_processed = rpt_seq as u32;
    for side in [Side::Buy, Side::Sell] {
        for level in book.levels(side) {
            message.entries.push(entry(0, Action::New, side, level.price / 100_000, level.size));
        }
    }
    message
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_live_book_is_the_true_book(
        // At most five prices per side, so that nothing is cut off and the entries describe the
        // whole book.
        steps in prop::collection::vec((any::<bool>(), 1i64..=5, 1i64..100), 1..120),
        lost in prop::collection::vec(prop::bool::weighted(0.2), 1..40),
        snapshots in prop::collection::vec((0usize..130, -6isize..12), 0..20),
        held_entries in 0u16..20,
    ) {
        let (entries, truth) = day(&steps);
        let mut books = FortsBooks::new(BooksSpec { instruments: 1, held_entries });
        let mut pending_gap = false;
        let check = |books: &FortsBooks| {
            for book in books.books() {
                if book.trust() == Trust::Live {
                    assert_eq!(book.depth(), &truth[book.rpt_seq() as usize], "at {}", book.rpt_seq());
                }
            }
        };
        for (i, entry) in entries.iter().enumerate() {
            // The arbiter reports a gap before the messages behind it.
            if lost[i % lost.len()] {
                pending_gap = true;
            } else {
                if std::mem::take(&mut pending_gap) {
                    books.gap(i as u64);
                    prop_assert!(books.books().iter().all(|b| b.trust() != Trust::Live));
                }
                books.apply_entry(i as u32 + 1, entry).unwrap();
                check(&books);
            }
            // A snapshot of `at` comes `delay` entries after it was taken, or before its increments
            // have come.
            for &(at, delay) in &snapshots {
                if at < truth.len() && at as isize + delay == i as isize {
                    let (_, outcome) = books.apply_snapshot(&snapshot(at, &truth[at])).unwrap();
                    prop_assert_ne!(outcome, SnapshotOutcome::Different);
                    check(&books);
                }
            }
        }
        // A snapshot of the end always recovers the book.
        let end = truth.len() - 1;
        books.gap(end as u64);
        books.apply_snapshot(&snapshot(end, &truth[end])).unwrap();
        check(&books);
        prop_assert_eq!((books.books()[0].trust(), books.books()[0].rpt_seq()), (Trust::Live, end as u32));
        prop_assert_eq!(books.counts().different, 0);
    }
}

#[test]
fn a_gap_is_cleared_by_the_next_number_or_a_snapshot() {
    let (entries, truth) = day(&[(false, 1, 2), (false, 2, 2), (false, 3, 2), (true, 4, 2), (true, 5, 2)]);
    let mut books = FortsBooks::new(BooksSpec::default());
    assert_eq!(books.apply_entry(1, &entries[0]), Ok((0, EntryOutcome::Held)), "no snapshot yet");
    assert_eq!(books.apply_snapshot(&snapshot(0, &truth[0])), Ok((0, SnapshotOutcome::Recovered)));
    assert_eq!((books.books()[0].trust(), books.books()[0].rpt_seq()), (Trust::Live, 1));

    // The gap was about other books: the next entry follows.
    books.gap(7);
    assert_eq!(books.books()[0].trust(), Trust::Suspect);
    assert_eq!(books.apply_entry(8, &entries[1]), Ok((0, EntryOutcome::Applied { top: true })));
    assert_eq!(books.books()[0].trust(), Trust::Live);

    // The gap was about this book: entry 3 is lost.
    books.gap(9);
    assert_eq!(books.apply_entry(10, &entries[3]), Ok((0, EntryOutcome::Held)));
    assert_eq!(books.books()[0].trust(), Trust::Stale);
    assert_eq!(books.apply_snapshot(&snapshot(2, &truth[2])), Ok((0, SnapshotOutcome::TooEarly)));
    assert_eq!(books.apply_snapshot(&snapshot(3, &truth[3])), Ok((0, SnapshotOutcome::Recovered)));
    assert_eq!((books.books()[0].rpt_seq(), books.books()[0].depth()), (4, &truth[4]));
    assert_eq!(books.apply_entry(10, &entries[3]), Ok((0, EntryOutcome::Old)));

    // A snapshot that had processed the gap proves that nothing was lost; an earlier one proves
    // nothing.
    books.gap(50);
    let mut same = snapshot(4, &truth[4]);
    assert_eq!(books.apply_snapshot(&same), Ok((0, SnapshotOutcome::Equal)));
    assert_eq!(books.books()[0].trust(), Trust::Suspect);
    same.last_msg_seq_num_processed = 50;
    assert_eq!(books.apply_snapshot(&same), Ok((0, SnapshotOutcome::Equal)));
    assert_eq!(books.books()[0].trust(), Trust::Live);
}

#[test]
fn contradictions_make_a_book_stale() {
    let (entries, truth) = day(&[(false, 1, 2), (false, 2, 2)]);
    let mut books = FortsBooks::new(BooksSpec { instruments: 1, ..BooksSpec::default() });
    books.apply_snapshot(&snapshot(0, &truth[0])).unwrap();
    books.apply_entry(1, &entries[0]).unwrap();
    let delete = entry(2, Action::Delete, Side::Buy, 9, 0);
    assert!(matches!(books.apply_entry(2, &delete), Err(BooksError::Book { rpt_seq: 2, .. })));
    assert_eq!(books.books()[0].trust(), Trust::Stale);
    assert_eq!(books.apply_snapshot(&snapshot(1, &truth[1])), Ok((0, SnapshotOutcome::TooEarly)));
    books.apply_snapshot(&snapshot(2, &truth[2])).unwrap();
    assert_eq!(books.books()[0].trust(), Trust::Live);

    let wrong_place = Entry { level: Some(3), ..entry(3, Action::Change, Side::Buy, 2, 5) };
    assert!(matches!(books.apply_entry(3, &wrong_place), Err(BooksError::Book { .. })));
    books.apply_snapshot(&snapshot(3, &truth[2])).unwrap();
    let no_price = Entry { price: None, ..entry(4, Action::New, Side::Buy, 3, 5) };
    assert!(matches!(books.apply_entry(4, &no_price), Err(BooksError::Entry { rpt_seq: 4, .. })));

    let nameless = Entry { security_id: None, ..entries[0] };
    assert_eq!(books.apply_entry(5, &nameless), Err(BooksError::NoInstrument { msg_seq_num: 5 }));
    let second = Entry { security_id: Some(1), ..entries[0] };
    assert_eq!(books.apply_entry(5, &second), Err(BooksError::InstrumentsFull { security_id: 1, limit: 1 }));
}

/// Numbers start anew, with or without a SequenceReset: snapshots of the old numbers recover no
/// book.
#[test]
fn a_book_is_stale_from_a_reset_to_a_snapshot_of_the_new_numbers() {
    let (entries, truth) = day(&[(false, 1, 2), (false, 2, 2), (false, 3, 2), (false, 4, 2)]);
    for is_told in [true, false] {
        let mut books = FortsBooks::new(BooksSpec::default());
        let old = Message { last_msg_seq_num_processed: 900, ..snapshot(3, &truth[3]) };
        assert_eq!(books.apply_snapshot(&old), Ok((0, SnapshotOutcome::Recovered)));
        assert_eq!(books.apply_entry(901, &entries[3]), Ok((0, EntryOutcome::Applied { top: true })));
        let first = if is_told { 1 } else { 902 };
        if is_told {
            books.begin_anew(1);
            assert_eq!(books.books()[0].trust(), Trust::Stale);
        }
        assert_eq!(books.apply_entry(first, &entries[0]), Ok((0, EntryOutcome::Held)), "{is_told}");
        assert_eq!(books.books()[0].trust(), Trust::Stale);
        assert_eq!(books.apply_snapshot(&old), Ok((0, SnapshotOutcome::TooEarly)), "{is_told}");
        assert_eq!(books.apply_entry(first + 1, &entries[1]), Ok((0, EntryOutcome::Held)));
        let new = Message { last_msg_seq_num_processed: first, ..snapshot(1, &truth[1]) };
        assert_eq!(books.apply_snapshot(&new), Ok((0, SnapshotOutcome::Recovered)), "{is_told}");
        assert_eq!((books.books()[0].rpt_seq(), books.books()[0].depth()), (2, &truth[2]));
        assert_eq!(books.apply_entry(first + 2, &entries[2]), Ok((0, EntryOutcome::Applied { top: true })));
    }
}

/// An entry held for a snapshot contradicts it. The entries behind it are known to have come, so a
/// snapshot without them is outdated.
#[test]
fn a_held_entry_that_contradicts_takes_those_behind_it_along() {
    let (entries, truth) = day(&[(false, 1, 2), (false, 2, 2), (false, 3, 2), (false, 4, 2)]);
    let mut books = FortsBooks::new(BooksSpec { instruments: 1, ..BooksSpec::default() });
    let no_price = Entry { price: None, ..entries[1] };
    for (number, entry) in [(1, &entries[0]), (2, &no_price), (3, &entries[2]), (4, &entries[3])] {
        assert_eq!(books.apply_entry(number, entry), Ok((0, EntryOutcome::Held)));
    }
    let refused = books.apply_snapshot(&snapshot(1, &truth[1]));
    assert!(matches!(refused, Err(BooksError::Entry { rpt_seq: 2, .. })), "{refused:?}");
    for past in [2, 3] {
        let outcome = books.apply_snapshot(&snapshot(past, &truth[past]));
        assert_eq!((outcome, books.books()[0].trust()), (Ok((0, SnapshotOutcome::TooEarly)), Trust::Stale), "{past}");
    }
    assert_eq!(books.apply_snapshot(&snapshot(4, &truth[4])), Ok((0, SnapshotOutcome::Recovered)));
    assert_eq!((books.books()[0].rpt_seq(), books.books()[0].depth()), (4, &truth[4]));
}

/// Regression: a book that was stale, or not there, when the stream lost something was taken for
/// right after a snapshot from before the loss.
#[test]
fn a_snapshot_from_before_a_loss_leaves_its_book_suspect() {
    let (entries, truth) = day(&[(false, 10, 2), (false, 11, 2), (false, 12, 2)]);
    for is_known in [false, true] {
        let mut books = FortsBooks::new(BooksSpec::default());
        if is_known {
            books.open(ID).expect("room");
        }
        books.gap(2);
        let recovered = books.apply_snapshot(&snapshot(1, &truth[1]));
        assert_eq!(recovered, Ok((0, SnapshotOutcome::Recovered)));
        assert_eq!(books.books()[0].trust(), Trust::Suspect, "the second entry may have been lost");
        let (_, outcome) = books.apply_entry(3, &entries[2]).expect("it is held");
        assert_eq!((outcome, books.books()[0].trust()), (EntryOutcome::Held, Trust::Stale), "and was");
        let recovered = books.apply_snapshot(&snapshot(3, &truth[3]));
        assert_eq!(recovered, Ok((0, SnapshotOutcome::Recovered)));
        assert_eq!(books.books()[0].trust(), Trust::Live);
    }
}
