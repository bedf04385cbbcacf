//! The effects of single messages on a follower's books.

use tick_to_trade::book::BookSpec;
use tick_to_trade::itch::encode::{self, Header, NewOrder};
use tick_to_trade::itch::{Side, Symbol};
use tick_to_trade::mold::{Packet, Session, Writer};
use tick_to_trade::recovery::{Follower, FollowerSpec};

use crate::recovery;

const SESSION: Session = *b"VERBLINE00";
const STOCK: Symbol = Symbol(*b"VRBL    ");

const SPEC: FollowerSpec = FollowerSpec {
    books: BookSpec { instruments: 1, orders: 16, levels_per_side: 16 },
    held_messages: 64,
    ..recovery::SPEC
};

fn header(stock_locate: u16) -> Header {
    Header { stock_locate, ..Header::default() }
}

fn message(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let len_bytes = write(&mut bytes).unwrap();
    bytes.truncate(len_bytes);
    bytes
}

fn directory(locate: u16) -> Vec<u8> {
    message(|out| encode::stock_directory(out, header(locate), STOCK))
}

fn add(locate: u16, reference: u64) -> Vec<u8> {
    let order = NewOrder { reference, side: Side::Buy, shares: 7, stock: STOCK, price_e4: 100 };
    message(|out| encode::add_order(out, header(locate), order))
}

fn frame(first: u64, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0; 1_400];
    let mut writer = Writer::new(&mut out, &SESSION, first).unwrap();
    messages.iter().for_each(|message| writer.push(message).unwrap());
    let len_bytes = writer.finish();
    out.truncate(len_bytes);
    out
}

fn take(follower: &mut Follower, frame: &[u8]) {
    follower.take(&Packet::parse(frame).unwrap(), 0, 1, &mut |_, _, _, _| ());
}

/// A message longer than any type puts its book in doubt, whether it comes in order or is held
/// behind a gap.
#[test]
fn a_message_that_is_too_long_puts_its_book_in_doubt() {
    let mut too_long = add(1, 2);
    too_long.resize(60, 0);
    for is_held in [false, true] {
        let mut follower = Follower::new(SPEC);
        take(&mut follower, &frame(1, &[directory(1), add(1, 1)]));
        let missing = frame(3, &[add(1, 3)]);
        let behind = frame(4, std::slice::from_ref(&too_long));
        if is_held {
            take(&mut follower, &behind);
            assert!(!follower.is_live());
            follower.take_again(&Packet::parse(&missing).unwrap(), 2, &mut |_, _, _, _| ());
        } else {
            take(&mut follower, &missing);
            take(&mut follower, &behind);
        }
        let counts = follower.counts();
        assert_eq!((counts.malformed, counts.suspected, follower.stale_books()), (1, 1, 1), "{is_held}: {counts:?}");
    }
}

/// Messages of an instrument without room contradict no book.
#[test]
fn no_message_of_an_instrument_that_is_not_followed_is_a_contradiction() {
    let mut follower = Follower::new(SPEC);
    let of_second = [
        directory(2),
        add(2, 1),
        message(|out| encode::order_cancel(out, header(2), 1, 3)),
        message(|out| encode::order_replace(out, header(2), 1, 2, 5, 200)),
        message(|out| encode::order_executed(out, header(2), 2, 1, 1)),
        message(|out| encode::order_delete(out, header(2), 2)),
    ];
    take(&mut follower, &frame(1, &[directory(1), add(1, 9)]));
    take(&mut follower, &frame(3, &of_second));
    let counts = follower.counts();
    assert_eq!((counts.unfollowed, counts.contradictions, counts.suspected), (6, 0, 0), "{counts:?}");
    assert!(follower.is_live() && counts.adds_up(), "{counts:?}");
}

/// A change of an order under another instrument's locate code is false for one of the two: either
/// book may lack a change, and neither takes this one.
#[test]
fn a_change_under_another_locate_code_puts_both_books_in_doubt() {
    let spec = FollowerSpec { books: BookSpec { instruments: 2, ..SPEC.books }, ..SPEC };
    let of_second = [
        message(|out| encode::order_cancel(out, header(2), 1, 3)),
        message(|out| encode::order_replace(out, header(2), 1, 4, 5, 200)),
        message(|out| encode::order_executed(out, header(2), 1, 1, 1)),
        message(|out| encode::order_executed_with_price(out, header(2), 1, 1, 1, 90)),
        message(|out| encode::order_delete(out, header(2), 1)),
    ];
    for change in of_second {
        let mut follower = Follower::new(spec);
        take(&mut follower, &frame(1, &[directory(1), directory(2), add(1, 1), add(2, 2)]));
        let before = follower.books().images();
        take(&mut follower, &frame(5, &[change]));
        assert_eq!(follower.books().images(), before);
        let counts = follower.counts();
        assert_eq!((counts.contradictions, counts.suspected, follower.stale_books()), (1, 2, 2), "{counts:?}");
    }
}
