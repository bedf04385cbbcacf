//! Whether an instrument trades, by the messages about it and about the day, against an oracle; and
//! trades that leave the book as it is.

use proptest::prelude::*;
use tick_to_trade::book::{BookSpec, Change, OrderBooks};
use tick_to_trade::itch::encode::{self, Header, NewOrder};
use tick_to_trade::itch::{self, Side, Symbol};

const STOCK: Symbol = Symbol(*b"X       ");
const INSTRUMENTS: u16 = 2;

fn header(stock_locate: u16) -> Header {
    Header { stock_locate, ..Header::default() }
}

fn books() -> OrderBooks {
    OrderBooks::new(BookSpec { instruments: INSTRUMENTS, orders: 8, levels_per_side: 4 })
}

/// Applies the message that `write` encodes.
fn apply(books: &mut OrderBooks, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Change> {
    let mut out = [0; 64];
    let len_bytes = write(&mut out).expect("there is room");
    books.apply(&itch::parse(&out[..len_bytes]).expect("it is ITCH")).expect("it fits the books")
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Announce { locate: u16 },
    Action { locate: u16, state: u8 },
    Halt { locate: u16, market: u8, action: u8 },
    Event { code: u8 },
    Add { locate: u16 },
}

fn op() -> impl Strategy<Value = Op> {
    let locate = 1..=INSTRUMENTS;
    prop_oneof![
        locate.clone().prop_map(|locate| Op::Announce { locate }),
        (locate.clone(), prop::sample::select(b"HPQT".to_vec()))
            .prop_map(|(locate, state)| Op::Action { locate, state }),
        (locate.clone(), prop::sample::select(b"QBX".to_vec()), prop::sample::select(b"HT".to_vec()))
            .prop_map(|(locate, market, action)| Op::Halt { locate, market, action }),
        prop::sample::select(b"OSQMEC".to_vec()).prop_map(|code| Op::Event { code }),
        locate.prop_map(|locate| Op::Add { locate }),
    ]
}

/// What is known of an instrument.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    acts: bool,
    is_halted: bool,
}

#[derive(Debug, Default)]
struct Oracle {
    known: [Option<Known>; INSTRUMENTS as usize],
    is_over: bool,
}

impl Oracle {
    fn trades(&self, locate: u16) -> bool {
        self.known[usize::from(locate) - 1].is_some_and(|known| known.acts && !known.is_halted) && !self.is_over
    }

    fn take(&mut self, op: Op) {
        let of = |oracle: &mut Oracle, locate: u16, set: &dyn Fn(&mut Known)| {
            oracle.known[usize::from(locate) - 1].iter_mut().for_each(set);
        };
        match op {
            Op::Announce { locate } => _ = self.known[usize::from(locate) - 1].get_or_insert_default(),
            Op::Action { locate, state } => of(self, locate, &|known| known.acts = state == b'T'),
            Op::Halt { locate, market: b'Q', action } => of(self, locate, &|known| known.is_halted = action == b'H'),
            Op::Event { code: b'E' | b'C' } => self.is_over = true,
            Op::Event { code: b'O' | b'S' } => self.is_over = false,
            Op::Halt { .. } | Op::Event { .. } | Op::Add { .. } => {}
        }
    }
}

proptest! {
    /// Regression: operational halts and the end of the day changed nothing, so that orders were
    /// sent which the exchange does not take.
    #[test]
    fn an_instrument_trades_while_its_exchange_takes_orders(ops in prop::collection::vec(op(), 0..60)) {
        let (mut books, mut oracle) = (books(), Oracle::default());
        for (reference, op) in (1..).zip(ops) {
            let before = [1, 2].map(|locate| oracle.trades(locate));
            oracle.take(op);
            let write = |out: &mut [u8]| match op {
                Op::Announce { locate } => encode::stock_directory(out, header(locate), STOCK),
                Op::Action { locate, state } => encode::trading_action(out, header(locate), STOCK, state),
                Op::Halt { locate, market, action } => {
                    encode::operational_halt(out, header(locate), STOCK, market, action)
                }
                Op::Event { code } => encode::system_event(out, header(0), code),
                // An order that changes nothing of this.
                Op::Add { locate } => encode::order_delete(out, header(locate), reference),
            };
            let mut out = [0; 64];
            let len_bytes = write(&mut out).expect("there is room");
            let change = books.apply(&itch::parse(&out[..len_bytes]).expect("it is ITCH")).ok().flatten();
            for locate in 1..=INSTRUMENTS {
                let book = books.by_locate(locate).and_then(|index| books.book(index));
                prop_assert_eq!(book.is_some_and(|book| book.is_trading()), oracle.trades(locate), "{:?}", op);
            }
            // A halt is told at once, so that no update of before is sent.
            if let Op::Action { locate, .. } | Op::Halt { locate, .. } = op {
                let is_halted = before[usize::from(locate) - 1] && !oracle.trades(locate);
                prop_assert_eq!(change.is_some_and(|change| change.top), is_halted, "{:?}", op);
            }
        }
    }
}

#[test]
fn trades_beside_the_book_are_told_and_leave_it_as_it_is() {
    let mut books = books();
    assert_eq!(apply(&mut books, |out| encode::stock_directory(out, header(1), STOCK)), None);
    let order = NewOrder { reference: 1, side: Side::Sell, shares: 9, stock: STOCK, price_e4: 100 };
    assert!(apply(&mut books, |out| encode::add_order(out, header(1), order)).is_some());
    let hidden = NewOrder { reference: 0, shares: 3, price_e4: 98, ..order };
    let change = apply(&mut books, |out| encode::trade(out, header(1), hidden, 1)).expect("a trade");
    assert_eq!(
        (change.top, change.side, change.execution, change.is_broken),
        (false, Side::Sell, Some((98, 3)), false)
    );
    let cross = |shares| move |out: &mut [u8]| encode::cross_trade(out, header(1), STOCK, shares, 99, 2, b'O');
    let change = apply(&mut books, cross(7)).expect("a trade");
    assert_eq!((change.top, change.execution), (false, Some((99, 7))));
    assert_eq!(apply(&mut books, cross(1 << 40)).and_then(|change| change.execution), Some((99, u32::MAX)));
    assert_eq!(apply(&mut books, cross(0)), None, "nothing was matched");
    let change = apply(&mut books, |out| encode::broken_trade(out, header(1), 2)).expect("it is told");
    assert_eq!((change.top, change.execution, change.is_broken), (false, None, true));
    assert_eq!(apply(&mut books, |out| encode::trade(out, header(2), hidden, 1)), None, "nobody announced it");
    // A cross reports some executions in bulk: they are no trades of their own.
    for (printable, execution) in [(b'Y', Some((97, 2))), (b'N', None)] {
        let change = apply(&mut books, |out| {
            let len_bytes = encode::order_executed_with_price(out, header(1), 1, 2, 3, 97)?;
            out[31] = printable;
            Some(len_bytes)
        });
        assert_eq!(change.map(|change| (change.top, change.execution)), Some((true, execution)));
    }
    let level = books.book(0).and_then(|book| book.best(Side::Sell)).expect("a level");
    assert_eq!((level.price_e4, level.shares), (100, 5));
}
