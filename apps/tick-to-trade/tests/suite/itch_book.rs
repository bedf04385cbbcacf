//! The ITCH book against two oracles: the generator's own book, and a naive one of maps under
//! arbitrary messages.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use tick_to_trade::book::{BookError, BookSpec, Level, OrderBooks};
use tick_to_trade::generator::{Generator, GeneratorSpec};
use tick_to_trade::itch::encode::{self, Header, NewOrder};
use tick_to_trade::itch::{self, Message, Side, Symbol};
use tick_to_trade::mold::Packet;

const SIDES: [Side; 2] = [Side::Buy, Side::Sell];

fn feed_books(generator: &mut Generator, books: &mut OrderBooks, frames: usize) -> [u64; 256] {
    let mut counts = [0; 256];
    let mut buffer = [0; 1500];
    for frame_number in 0..frames {
        let frame = generator.write_frame(20, frame_number as u64, &mut buffer).unwrap();
        let packet = Packet::parse(&buffer[..frame.len_bytes]).unwrap();
        assert_eq!((packet.sequence(), packet.count()), (frame.sequence, frame.count));
        for bytes in packet.messages() {
            let message = itch::parse(bytes).unwrap();
            counts[usize::from(bytes[0])] += 1;
            let change = books.apply(&message).unwrap();
            if let Some(change) = change {
                assert_eq!(books.book(change.book).unwrap().stock_locate(), message.stock_locate());
            }
        }
    }
    counts
}

fn assert_equal_to_truth(generator: &Generator, books: &OrderBooks, instruments: u16) {
    for locate in 1..=instruments {
        let book = books.book(books.by_locate(locate).unwrap()).unwrap();
        for side in SIDES {
            let truth = generator.truth(locate, side).map(|l| Level {
                price_e4: l.price_e4,
                orders: l.orders,
                shares: l.shares,
            });
            assert!(book.levels(side).eq(truth), "locate {locate} {side:?}");
        }
        let (bid, ask) = (book.best(Side::Buy), book.best(Side::Sell));
        if let (Some(bid), Some(ask)) = (bid, ask) {
            assert!(bid.price_e4 < ask.price_e4, "a generated book never crosses");
        }
    }
    assert_eq!(books.live_orders(), generator.live_orders());
}

#[test]
fn a_generated_day_rebuilds_the_generators_book() {
    for seed in 0..4 {
        let spec = GeneratorSpec { seed, instruments: 5, live_orders: 300 };
        let mut generator = Generator::new(spec);
        let mut books = OrderBooks::new(BookSpec { instruments: 5, orders: 5 * 450, levels_per_side: 2048 });
        let mut total = [0u64; 256];
        for _ in 0..20 {
            let counts = feed_books(&mut generator, &mut books, 100);
            total.iter_mut().zip(counts).for_each(|(t, c)| *t += c);
            assert_equal_to_truth(&generator, &books, 5);
        }
        for tag in b"SRHAFECXDUPBI" {
            assert!(total[usize::from(*tag)] > 0, "no {:?} in 40,000 messages", *tag as char);
        }
        assert!(books.books().iter().all(|b| b.is_trading()));
    }
}

#[test]
fn a_seed_is_a_feed() {
    let run = |seed| {
        let mut generator = Generator::new(GeneratorSpec { seed, ..GeneratorSpec::default() });
        let mut buffer = [0; 1400];
        let mut bytes = Vec::new();
        for _ in 0..200 {
            let frame = generator.write_frame(30, 5, &mut buffer).unwrap();
            bytes.extend_from_slice(&buffer[..frame.len_bytes]);
        }
        bytes
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Regression: timestamps of an exchange that ran for days were not times of day, and wrapped
/// during the fourth.
#[test]
fn messages_of_a_later_day_have_the_time_of_that_day() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    for (at_ns, of_day_ns) in
        [(0, 0), (23 * HOUR_NS, 23 * HOUR_NS), (25 * HOUR_NS + 7, HOUR_NS + 7), (80 * HOUR_NS, 8 * HOUR_NS)]
    {
        let (mut generator, mut buffer) = (Generator::new(GeneratorSpec::default()), [0; 72]);
        let frame = generator.write_frame(1, at_ns, &mut buffer).unwrap();
        let first = Packet::parse(&buffer[..frame.len_bytes]).unwrap().messages().next().unwrap().to_vec();
        let Message::SystemEvent(first) = itch::parse(&first).unwrap() else { panic!("a day begins by an event") };
        assert_eq!(first.timestamp_ns(), of_day_ns);
    }
}

#[test]
fn a_frame_takes_what_fits() {
    let mut generator = Generator::new(GeneratorSpec::default());
    assert!(generator.write_frame(1, 0, &mut [0; 19]).is_err());
    assert_eq!(generator.write_frame(10, 0, &mut [0; 71]).unwrap().count, 0);
    assert_eq!(generator.sequence(), 1);
    assert_eq!(generator.write_frame(10, 0, &mut [0; 72]).unwrap().count, 1);
    assert_eq!(generator.sequence(), 2);
}

/// The effect of messages on a book, as simply as possible.
#[derive(Default)]
struct Oracle {
    orders: HashMap<u64, (usize, Side, u32, u32)>,
    levels: [[BTreeMap<u32, (u32, u64)>; 2]; 2],
}

impl Oracle {
    fn add(&mut self, reference: u64, book: usize, side: Side, price: u32, shares: u32) {
        self.orders.insert(reference, (book, side, price, shares));
        let level = self.levels[book][side as usize].entry(price).or_default();
        *level = (level.0 + 1, level.1 + u64::from(shares));
    }

    fn take(&mut self, reference: u64, shares: u32) {
        let (book, side, price, have) = self.orders[&reference];
        let levels = &mut self.levels[book][side as usize];
        let level = levels.get_mut(&price).unwrap();
        level.1 -= u64::from(shares);
        if have == shares {
            self.orders.remove(&reference);
            level.0 -= 1;
            if level.0 == 0 {
                levels.remove(&price);
            }
        } else {
            self.orders.get_mut(&reference).unwrap().3 -= shares;
        }
    }

    /// The locate code of a change: that of its order.
    fn locate_of(&self, op: &Op) -> u16 {
        match op {
            Op::Add { locate, .. } => *locate,
            Op::Execute { reference, .. }
            | Op::Cancel { reference, .. }
            | Op::Delete { reference }
            | Op::Replace { reference, .. } => self.orders.get(reference).map_or(1, |order| order.0 as u16 + 1),
        }
    }

    fn best(&self, book: usize, side: Side) -> Option<(u32, u64)> {
        let levels = &self.levels[book][side as usize];
        let best = if side == Side::Buy { levels.last_key_value() } else { levels.first_key_value() };
        best.map(|(&price, &(_, shares))| (price, shares))
    }
}

const ORDERS: u32 = 12;
const LEVELS: u32 = 5;

#[derive(Debug, Clone)]
enum Op {
    Add { reference: u64, locate: u16, side: Side, price: u32, shares: u32, mpid: bool },
    Execute { reference: u64, shares: u32, price: Option<u32>, prints: bool },
    Cancel { reference: u64, shares: u32 },
    Delete { reference: u64 },
    Replace { reference: u64, new: u64, price: u32, shares: u32 },
}

fn op() -> impl Strategy<Value = Op> {
    let reference = 0u64..20;
    let shares = 0u32..6;
    // Prices near and far, at both ends of the range.
    let price = prop_oneof![0u32..12, (u32::MAX - 3)..=u32::MAX];
    let side = prop_oneof![Just(Side::Buy), Just(Side::Sell)];
    prop_oneof![
        5 => (reference.clone(), 1u16..4, side, price.clone(), shares.clone(), any::<bool>())
            .prop_map(|(reference, locate, side, price, shares, mpid)| {
                Op::Add { reference, locate, side, price, shares, mpid }
            }),
        2 => (reference.clone(), shares.clone(), prop::option::of(price.clone()), any::<bool>())
            .prop_map(|(reference, shares, price, prints)| Op::Execute { reference, shares, price, prints }),
        1 => (reference.clone(), shares.clone()).prop_map(|(reference, shares)| Op::Cancel { reference, shares }),
        2 => reference.clone().prop_map(|reference| Op::Delete { reference }),
        2 => (reference.clone(), reference, price, shares)
            .prop_map(|(reference, new, price, shares)| Op::Replace { reference, new, price, shares }),
    ]
}

fn encode(op: &Op, locate: u16, out: &mut [u8]) -> usize {
    let h = Header { stock_locate: locate, ..Header::default() };
    let stock = Symbol(*b"X       ");
    match *op {
        Op::Add { reference, side, price, shares, mpid, .. } => {
            let order = NewOrder { reference, side, shares, stock, price_e4: price };
            if mpid { encode::add_order_mpid(out, h, order, *b"ABCD") } else { encode::add_order(out, h, order) }
        }
        Op::Execute { reference, shares, price: None, .. } => encode::order_executed(out, h, reference, shares, 1),
        Op::Execute { reference, shares, price: Some(price), prints } => {
            let n = encode::order_executed_with_price(out, h, reference, shares, 1, price);
            out[31] = if prints { b'Y' } else { b'N' };
            n
        }
        Op::Cancel { reference, shares } => encode::order_cancel(out, h, reference, shares),
        Op::Delete { reference } => encode::order_delete(out, h, reference),
        Op::Replace { reference, new, price, shares } => encode::order_replace(out, h, reference, new, shares, price),
    }
    .unwrap()
}

/// The expected answer of the book; updates the oracle if the book takes the message.
fn expect(oracle: &mut Oracle, op: &Op) -> Result<Option<(u32, u32)>, BookError> {
    match *op {
        Op::Add { reference, locate, .. } if locate > 2 => Err(BookError::UnknownInstrument { reference, locate }),
        Op::Add { reference, shares: 0, .. } => Err(BookError::NoShares { reference }),
        Op::Add { reference, locate, side, price, shares, .. } => {
            let book = usize::from(locate) - 1;
            let levels = &oracle.levels[book][side as usize];
            if oracle.orders.contains_key(&reference) {
                return Err(BookError::DuplicateOrder { reference });
            }
            if oracle.orders.len() == ORDERS as usize {
                return Err(BookError::OrdersFull { reference, limit: ORDERS });
            }
            if levels.len() == LEVELS as usize && !levels.contains_key(&price) {
                return Err(BookError::LevelsFull { reference, limit: LEVELS });
            }
            oracle.add(reference, book, side, price, shares);
            Ok(None)
        }
        Op::Execute { reference, shares, .. } | Op::Cancel { reference, shares } => {
            let Some(&(_, _, own_price, have)) = oracle.orders.get(&reference) else {
                return Err(BookError::UnknownOrder { reference });
            };
            if shares == 0 {
                return Err(BookError::NoShares { reference });
            }
            if shares > have {
                return Err(BookError::TooManyShares { reference, have, take: shares });
            }
            oracle.take(reference, shares);
            Ok(match *op {
                // What a cross reports in bulk is no trade of its own.
                Op::Execute { price: Some(_), prints: false, .. } => None,
                Op::Execute { price, .. } => Some((price.unwrap_or(own_price), shares)),
                _ => None,
            })
        }
        Op::Delete { reference } => {
            let &(_, _, _, have) = oracle.orders.get(&reference).ok_or(BookError::UnknownOrder { reference })?;
            oracle.take(reference, have);
            Ok(None)
        }
        Op::Replace { new, shares: 0, .. } => Err(BookError::NoShares { reference: new }),
        Op::Replace { reference, new, price, shares } => {
            let &(book, side, _, have) = oracle.orders.get(&reference).ok_or(BookError::UnknownOrder { reference })?;
            if new != reference && oracle.orders.contains_key(&new) {
                return Err(BookError::DuplicateOrder { reference: new });
            }
            oracle.take(reference, have);
            let levels = &oracle.levels[book][side as usize];
            if levels.len() == LEVELS as usize && !levels.contains_key(&price) {
                return Err(BookError::LevelsFull { reference: new, limit: LEVELS });
            }
            oracle.add(new, book, side, price, shares);
            Ok(None)
        }
    }
}

proptest! {
    #[test]
    fn any_messages_leave_the_book_of_the_oracle(ops in prop::collection::vec(op(), 0..300)) {
        let mut books = OrderBooks::new(BookSpec { instruments: 2, orders: ORDERS, levels_per_side: LEVELS });
        let mut oracle = Oracle::default();
        let mut out = [0; 50];
        for locate in [1, 2] {
            let header = Header { stock_locate: locate, ..Header::default() };
            let n = encode::stock_directory(&mut out, header, Symbol(*b"X       ")).unwrap();
            prop_assert_eq!(books.apply(&itch::parse(&out[..n]).unwrap()), Ok(None));
        }
        for op in ops {
            let before: Vec<_> = (0..4).map(|i| oracle.best(i / 2, SIDES[i % 2])).collect();
            let locate = oracle.locate_of(&op);
            let expected = expect(&mut oracle, &op);
            let n = encode(&op, locate, &mut out);
            let got = books.apply(&itch::parse(&out[..n]).unwrap());
            match (expected, got) {
                (Err(expected), got) => prop_assert_eq!(got, Err(expected)),
                (Ok(execution), got) => {
                    let change = got.unwrap().unwrap();
                    prop_assert_eq!(change.execution, execution);
                    let at = usize::from(change.book) * 2 + change.side as usize;
                    // `top` may be set needlessly (a replace with the same price and shares), but
                    // must never be missing.
                    if oracle.best(usize::from(change.book), change.side) != before[at] {
                        prop_assert!(change.top);
                    }
                }
            }
            prop_assert_eq!(books.live_orders(), oracle.orders.len());
            for (index, sides) in oracle.levels.iter().enumerate() {
                for side in SIDES {
                    let book = books.book(index as u16).unwrap();
                    let level = |(price_e4, total): (&u32, &(u32, u64))| {
                        Level { price_e4: *price_e4, orders: total.0, shares: total.1 }
                    };
                    let levels = &sides[side as usize];
                    let expected: Vec<_> = match side {
                        Side::Buy => levels.iter().rev().map(level).collect(),
                        Side::Sell => levels.iter().map(level).collect(),
                    };
                    prop_assert_eq!(book.levels(side).collect::<Vec<_>>(), expected);
                    prop_assert_eq!(book.best(side), book.levels(side).next());
                }
            }
        }
    }

    /// Any bytes parse to a message or an error, and any message is applied or refused.
    #[test]
    fn arbitrary_bytes_never_panic(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..60),
        tag in prop::sample::select(b"SRHAFECXDUPQBIYLVWKJhNO".to_vec()),
    ) {
        let mut books = OrderBooks::new(BookSpec { instruments: 1, orders: 4, levels_per_side: 2 });
        for mut bytes in messages {
            bytes.resize(usize::from(itch::LEN_BYTES[usize::from(tag)]), 1);
            bytes[0] = tag;
            if let Ok(message) = itch::parse(&bytes) {
                let _ = books.apply(&message);
                let _ = format!("{message:?}");
            }
        }
    }
}

#[test]
fn bounds_and_repeats_of_the_directory() {
    let mut books = OrderBooks::new(BookSpec { instruments: 1, orders: 4, levels_per_side: 2 });
    let mut out = [0; 50];
    let mut announce = |books: &mut OrderBooks, locate| {
        let n = encode::stock_directory(
            &mut out,
            Header { stock_locate: locate, ..Header::default() },
            Symbol(*b"Y       "),
        );
        books.apply(&itch::parse(&out[..n.unwrap()]).unwrap())
    };
    assert_eq!(announce(&mut books, 9), Ok(None));
    assert_eq!(announce(&mut books, 9), Ok(None));
    assert_eq!(announce(&mut books, 10), Err(BookError::InstrumentsFull { locate: 10, limit: 1 }));
    assert_eq!(books.books().len(), 1);
    assert!(!books.books()[0].is_trading());
    let n =
        encode::trading_action(&mut out, Header { stock_locate: 9, ..Header::default() }, Symbol(*b"Y       "), b'T');
    let message = itch::parse(&out[..n.unwrap()]).unwrap();
    assert!(matches!(message, Message::TradingAction(_)));
    assert_eq!(books.apply(&message), Ok(None));
    assert!(books.books()[0].is_trading());
}
