//! The books' updates to the strategy: the changed best levels of books that are right.

use verbline::prelude::*;

use super::settings::INSTRUMENTS_MAX;
use super::tally::ItchTally;
use super::update::{Update, Updates};
use crate::book::{Book, Change, OrderBooks};
use crate::itch::Side;
use crate::recovery::{Follower, Told};
use crate::risk::{Quote, Top};

/// Turns changes of books into updates, and keeps those not yet sent.
pub(super) struct Teller {
    /// The last trade's price per instrument; 0 if there was none yet, or it may be broken.
    last: Box<[i64]>,
    pub(super) updates: Updates,
    changes: u64,
    taken_back: u64,
    /// Times that the feed had begun anew: earlier trades then belong to no instrument.
    begun_anew: u64,
    untold: u64,
}

/// Memory that [`Teller::new`] allocates, in bytes.
pub(super) fn memory_bytes() -> u64 {
    Updates::memory_bytes(INSTRUMENTS_MAX) + u64::from(INSTRUMENTS_MAX) * size_of::<i64>() as u64
}

impl Teller {
    pub(super) fn new(burst: usize, output: OutId) -> Teller {
        Teller {
            last: vec![0; usize::from(INSTRUMENTS_MAX)].into_boxed_slice(),
            updates: Updates::new(INSTRUMENTS_MAX, burst, output),
            changes: 0,
            taken_back: 0,
            begun_anew: 0,
            untold: 0,
        }
    }

    /// Takes a change of a book by the message `tick`.
    #[inline]
    pub(super) fn tell(&mut self, books: &OrderBooks, change: Change, told: Told, tick: u64) {
        // `last` has an entry for each book.
        let Some(last) = self.last.get_mut(usize::from(change.book)) else {
            self.untold += 1;
            return;
        };
        if let Some((price_e4, _)) = change.execution {
            *last = i64::from(price_e4);
        } else if change.is_broken {
            *last = 0;
        }
        let may_tell = change.top && told != Told::Withheld;
        let Some(book) = books.book(change.book).filter(|_| may_tell) else { return };
        if !book.is_trading() {
            return self.take_back(change.book);
        }
        self.changes += 1;
        let known = self.updates.put(Update {
            instrument: change.book,
            // The strategy's conclusions from before a loss are void.
            reset: told == Told::Recovered,
            number: u64::from(book.stock_locate()),
            symbol: book.symbol(),
            tick,
            top: Top { bid: quote(book, Side::Buy), ask: quote(book, Side::Sell) },
            last: *last,
        });
        self.untold += u64::from(!known);
    }

    /// Takes back the waiting update of an instrument that was halted.
    #[cold]
    fn take_back(&mut self, instrument: u16) {
        self.taken_back += u64::from(self.updates.forget(instrument));
    }

    /// Takes back the waiting updates if a book has come into doubt since the last call, or if it
    /// is not known which are right. The follower repeats the updates of the right ones.
    #[cold]
    pub(super) fn take_back_of(&mut self, follower: &mut Follower) {
        let begun_anew = follower.counts().begun_anew;
        if std::mem::replace(&mut self.begun_anew, begun_anew) != begun_anew {
            self.last.fill(0);
        }
        if follower.take_doubt() {
            self.taken_back += self.updates.clear(|instrument, reset| follower.withhold(instrument, reset));
        }
    }

    /// Writes the counts into the report.
    pub(super) fn report(&self, tally: &mut ItchTally) {
        (tally.changes, tally.taken_back) = (self.changes, self.taken_back);
        (tally.told, tally.overtaken) = (self.updates.told(), self.updates.overtaken());
        tally.untold = self.untold + self.updates.len() as u64;
    }
}

fn quote(book: &Book, side: Side) -> Quote {
    book.best(side).map_or(Quote::EMPTY, |level| Quote { price: i64::from(level.price_e4), size: level.shares })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::BookSpec;
    use crate::itch::encode::{self, Header, NewOrder};
    use crate::itch::{self, Symbol};
    use crate::mold;
    use crate::recovery::FollowerSpec;

    const HEADER: Header = Header { stock_locate: 1, tracking_number: 0, timestamp_ns: 0 };
    const STOCK: Symbol = Symbol(*b"VRBL    ");
    const ORDER: NewOrder = NewOrder { reference: 1, side: Side::Buy, shares: 7, stock: STOCK, price_e4: 100 };

    struct Desk {
        books: OrderBooks,
        teller: Teller,
        told: Told,
    }

    impl Desk {
        /// Applies the message that `write` encodes, and returns the update for the strategy.
        fn after(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<(bool, Top)> {
            let mut bytes = [0; 64];
            let len_bytes = write(&mut bytes).expect("there is room");
            let message = itch::parse(&bytes[..len_bytes]).expect("it is ITCH");
            if let Some(change) = self.books.apply(&message).expect("it fits the book") {
                self.teller.tell(&self.books, change, self.told, 1);
            }
            let told = self.teller.updates.drain();
            assert!(told.len() < 2);
            told.first().map(|update| (update.reset, update.top))
        }
    }

    fn add(reference: u64, side: Side, price_e4: u32) -> impl FnOnce(&mut [u8]) -> Option<usize> {
        let order = NewOrder { reference, side, shares: 7, stock: STOCK, price_e4 };
        move |out| encode::add_order(out, HEADER, order)
    }

    #[test]
    fn the_strategy_is_told_when_a_side_becomes_empty_and_of_a_recovery() {
        let mut book = Desk {
            books: OrderBooks::new(BookSpec { instruments: 2, orders: 16, levels_per_side: 16 }),
            teller: Teller::new(1, OutId(0)),
            told: Told::Live,
        };
        let (bid, ask) = (Quote { price: 100, size: 7 }, Quote { price: 102, size: 7 });
        assert_eq!(book.after(|out| encode::stock_directory(out, HEADER, STOCK)), None);
        assert_eq!(book.after(|out| encode::trading_action(out, HEADER, STOCK, b'T')), None);
        assert_eq!(book.after(add(1, Side::Buy, 100)), Some((false, Top { bid, ask: Quote::EMPTY })));
        assert_eq!(book.after(add(2, Side::Sell, 102)), Some((false, Top { bid, ask })));
        let gone = book.after(|out| encode::order_delete(out, HEADER, 1));
        assert_eq!(gone, Some((false, Top { bid: Quote::EMPTY, ask })));
        book.told = Told::Withheld;
        assert_eq!(book.after(add(3, Side::Buy, 99)), None, "the book is not known to be right");
        book.told = Told::Recovered;
        assert_eq!(book.after(add(4, Side::Buy, 100)), Some((true, Top { bid, ask })), "what was before is void");
        book.told = Told::Live;
        assert_eq!(book.after(add(5, Side::Buy, 98)), None, "the best levels are the same");
        let behind = Quote { price: 101, size: 7 };
        assert_eq!(book.after(add(6, Side::Sell, 101)), Some((false, Top { bid, ask: behind })));
    }

    /// Regression: only executions of displayed orders counted as trades, also those that a cross
    /// reports in bulk, and a broken trade stayed the last one.
    #[test]
    fn the_last_price_is_that_of_the_last_trade_that_stands() {
        let mut book = Desk {
            books: OrderBooks::new(BookSpec { instruments: 2, orders: 16, levels_per_side: 16 }),
            teller: Teller::new(1, OutId(0)),
            told: Told::Live,
        };
        assert_eq!(book.after(|out| encode::stock_directory(out, HEADER, STOCK)), None);
        assert_eq!(book.after(|out| encode::trading_action(out, HEADER, STOCK, b'T')), None);
        assert!(book.after(add(1, Side::Buy, 100)).is_some());
        let last = |book: &Desk| book.teller.last[0];
        let at = |price_e4| NewOrder { price_e4, ..ORDER };
        let not_printable = |out: &mut [u8]| {
            let len_bytes = encode::order_executed_with_price(out, HEADER, 1, 1, 3, 107)?;
            out[31] = b'N';
            Some(len_bytes)
        };
        assert!(book.after(|out| encode::order_executed(out, HEADER, 1, 1, 1)).is_some());
        assert_eq!(last(&book), 100);
        assert_eq!(book.after(|out| encode::trade(out, HEADER, at(104), 2)), None);
        assert_eq!(last(&book), 104, "a hidden order");
        assert!(book.after(not_printable).is_some());
        assert_eq!(last(&book), 104, "a cross reports it in bulk");
        assert_eq!(book.after(|out| encode::cross_trade(out, HEADER, STOCK, 5, 107, 4, b'H')), None);
        assert_eq!(last(&book), 107);
        assert_eq!(book.after(|out| encode::cross_trade(out, HEADER, STOCK, 0, 0, 5, b'C')), None);
        assert_eq!(last(&book), 107, "a cross without a match");
        assert_eq!(book.after(|out| encode::broken_trade(out, HEADER, 4)), None);
        assert_eq!(last(&book), 0, "it may be the last one");
        assert!(book.after(|out| encode::order_executed_with_price(out, HEADER, 1, 1, 6, 99)).is_some());
        assert_eq!(last(&book), 99);
    }

    /// A waiting update is not sent once its instrument is halted.
    #[test]
    fn nothing_is_told_of_an_instrument_that_has_been_halted_meanwhile() {
        let mut books = OrderBooks::new(BookSpec { instruments: 2, orders: 16, levels_per_side: 16 });
        let mut teller = Teller::new(1, OutId(0));
        let second = Header { stock_locate: 2, ..HEADER };
        let bytes = frame(
            1,
            &[
                &|out| encode::stock_directory(out, HEADER, STOCK),
                &|out| encode::trading_action(out, HEADER, STOCK, b'T'),
                &|out| encode::stock_directory(out, second, STOCK),
                &|out| encode::trading_action(out, second, STOCK, b'T'),
                &|out| add(1, Side::Buy, 100)(out),
                &|out| encode::add_order(out, second, NewOrder { reference: 2, ..ORDER }),
                &|out| encode::trading_action(out, HEADER, STOCK, b'H'),
                &|out| encode::add_order(out, second, NewOrder { reference: 3, price_e4: 101, ..ORDER }),
            ],
        );
        for message in mold::Packet::parse(&bytes).expect("a frame").messages() {
            let message = itch::parse(message).expect("it is ITCH");
            if let Some(change) = books.apply(&message).expect("it fits the book") {
                teller.tell(&books, change, Told::Live, 1);
            }
        }
        let told = teller.updates.drain();
        assert_eq!(told.iter().map(|update| (update.instrument, update.top.bid.price)).collect::<Vec<_>>(), [(1, 101)]);
        let mut tally = ItchTally::default();
        teller.report(&mut tally);
        assert_eq!((tally.changes, tally.taken_back, tally.overtaken, tally.untold), (3, 1, 1, 0));
    }

    /// Writes a message, and returns its length, if there is room.
    type Writes<'a> = &'a dyn Fn(&mut [u8]) -> Option<usize>;

    fn frame(first: u64, messages: &[Writes<'_>]) -> Vec<u8> {
        let mut out = vec![0; 1_400];
        let mut writer = mold::Writer::new(&mut out, b"VERBLINE00", first).expect("room for a header");
        for message in messages {
            writer.push_with(|out| message(out)).expect("there is room");
        }
        let len_bytes = writer.finish();
        out.truncate(len_bytes);
        out
    }

    /// One book comes into doubt while an update of another waits: that other book is right, and
    /// its update is sent all the same.
    #[test]
    fn what_is_taken_back_of_a_book_that_is_right_is_told_again() {
        let spec = FollowerSpec {
            books: BookSpec { instruments: 2, orders: 16, levels_per_side: 16 },
            first: Some(1),
            held_messages: 64,
            request_messages: 4,
            retransmits: true,
            snapshots: true,
            gap_messages_max: 64,
            timeout_ns: 100,
            tries: 4,
            snapshot_timeout_ns: 400,
            rebuild_pause_ns: 500,
        };
        let (mut follower, mut teller) = (Follower::new(spec), Teller::new(1, OutId(0)));
        let second = Header { stock_locate: 2, ..HEADER };
        let bytes = frame(
            1,
            &[
                &|out| encode::stock_directory(out, HEADER, STOCK),
                &|out| encode::trading_action(out, HEADER, STOCK, b'T'),
                &|out| encode::stock_directory(out, second, STOCK),
                &|out| add(1, Side::Buy, 100)(out),
                // The order does not exist.
                &|out| encode::order_delete(out, second, 9),
            ],
        );
        let packet = mold::Packet::parse(&bytes).expect("a frame");
        follower.take(&packet, 0, 1, &mut |books, change, told, tick| teller.tell(books, change, told, tick));
        assert_eq!((follower.is_live(), follower.stale_books()), (false, 1));
        teller.take_back_of(&mut follower);
        assert_eq!(teller.updates.len(), 0, "it is not known yet which books are right");
        follower.poll(2, &mut |books, change, told, tick| teller.tell(books, change, told, tick));
        let told = teller.updates.drain();
        assert_eq!(told.iter().map(|update| (update.instrument, update.top.bid.price)).collect::<Vec<_>>(), [(0, 100)]);
        assert!(!follower.is_live(), "the other is still to be rebuilt");
    }
}
