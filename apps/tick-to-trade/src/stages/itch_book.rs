//! The trader's full-depth books: applies each message, and tells the strategy which best levels
//! changed.

use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::arbiter::Mark;
use super::settings::INSTRUMENTS_MAX;
use super::tally::{ItchTally, Tally};
use super::update::{UPDATE_LEN_BYTES, Update, Updates};
use crate::book::{Book, BookSpec, Change, OrderBooks};
use crate::itch::{self, Side};
use crate::mold;
use crate::risk::{Quote, Top};

const CHANGED: OutId = OutId(0);

const DROPS: &[&str] = &["malformed", "not_in_order"];
const MALFORMED: DropReason = DropReason::Stage(0);
/// It did not come by an arbiter.
const NOT_IN_ORDER: DropReason = DropReason::Stage(1);

/// Live orders of all instruments together, and price levels of a side.
const BOOKS: BookSpec = BookSpec { instruments: INSTRUMENTS_MAX, orders: 1 << 20, levels_per_side: 4_096 };

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["changed"],
        drops: DROPS,
        summary: "decodes ITCH, keeps full-depth books",
        ..StageSpec::default()
    };
    registry.stage("itch-book", spec, move |stage| {
        Ok(Box::new(ItchBook {
            books: OrderBooks::new(BOOKS),
            told: vec![Told::default(); usize::from(INSTRUMENTS_MAX)].into_boxed_slice(),
            losses: 0,
            updates: Updates::new(INSTRUMENTS_MAX, stage.burst(), CHANGED),
            tally: ItchTally::default(),
            home: home.clone(),
        }))
    });
    registry.needs("itch-book", needs);
}

/// Memory for the books, and packets that hold one update.
fn needs(_: &Asked<'_>) -> Needs {
    Needs {
        memory_bytes: vec![("books", BOOKS.memory_bytes()), ("updates", Updates::memory_bytes(INSTRUMENTS_MAX))],
        packet_bytes: vec![("an update", UPDATE_LEN_BYTES as u64)],
        ..Needs::default()
    }
}

struct ItchBook {
    books: OrderBooks,
    /// What the strategy knows of each book.
    told: Box<[Told]>,
    /// How often messages were lost. The feed has no snapshots, so that a book may be wrong from
    /// then on, which later messages show as contradictions.
    losses: u32,
    updates: Updates,
    tally: ItchTally,
    home: Tally,
}

#[derive(Clone, Copy, Default)]
struct Told {
    /// The last trade's price; 0 if there was none.
    last: i64,
    /// How often messages had been lost by the last update.
    losses: u32,
}

impl Stage for ItchBook {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.prefetch(input);
        for packet in input.drain_front(input.len()) {
            let Some(mark) = Mark::of(&packet) else {
                out.drop(packet, NOT_IN_ORDER);
                continue;
            };
            let Ok(frame) = mold::Packet::parse(packet.data()) else {
                out.drop(packet, MALFORMED);
                continue;
            };
            self.losses += u32::from(mark.lost_before);
            let first = frame.sequence();
            let mut later = frame.messages().skip(mark.skip as usize + OrderBooks::AHEAD);
            for (index, message) in frame.messages().enumerate().skip(mark.skip as usize) {
                if let Some(later) = later.next() {
                    self.books.prefetch(later);
                }
                self.apply(message, first + index as u64);
            }
            self.updates.send(packet, out);
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.updates.turn(out) { Next::At(Tick::MAX) } else { Next::Busy }
    }
}

impl ItchBook {
    /// Asks for the orders of each packet's first messages before the first packet is looked at;
    /// the rest is asked for while messages are applied. The loads overlap, instead of one wait a
    /// message: at 221,000 live orders a third of the time (`examples/parse_speed.rs`).
    #[inline]
    fn prefetch(&self, input: &Batch) {
        for packet in input.iter() {
            let Ok(frame) = mold::Packet::parse(packet.data()) else { continue };
            let skip = Mark::of(packet).map_or(0, |mark| mark.skip);
            let first = frame.messages().skip(skip as usize).take(OrderBooks::AHEAD);
            first.for_each(|message| self.books.prefetch(message));
        }
    }

    #[inline]
    fn apply(&mut self, message: &[u8], tick: u64) {
        let Ok(message) = itch::parse(message) else {
            self.tally.malformed += 1;
            return;
        };
        self.tally.messages += 1;
        match self.books.apply(&message) {
            Ok(Some(change)) => self.changed(change, tick),
            Ok(None) => {}
            Err(_) => self.tally.contradictions += 1,
        }
    }

    #[inline]
    fn changed(&mut self, change: Change, tick: u64) {
        // As many as there are books.
        let Some(told) = self.told.get_mut(usize::from(change.book)) else {
            self.tally.untold += 1;
            return;
        };
        if let Some((price_e4, _)) = change.execution {
            told.last = i64::from(price_e4);
        }
        let Some(book) = self.books.book(change.book).filter(|book| change.top && book.is_trading()) else { return };
        self.tally.changes += 1;
        let known = self.updates.put(Update {
            instrument: change.book,
            // What the strategy concluded from a book before a loss is void.
            reset: std::mem::replace(&mut told.losses, self.losses) != self.losses,
            number: u64::from(book.stock_locate()),
            symbol: book.symbol(),
            tick,
            top: Top { bid: quote(book, Side::Buy), ask: quote(book, Side::Sell) },
            last: told.last,
        });
        self.tally.untold += u64::from(!known);
    }
}

fn quote(book: &Book, side: Side) -> Quote {
    book.best(side).map_or(Quote::EMPTY, |level| Quote { price: i64::from(level.price_e4), size: level.shares })
}

impl Drop for ItchBook {
    fn drop(&mut self) {
        let mut tally = std::mem::take(&mut self.tally);
        tally.levels = self.books.books().iter().map(|book| book.depth(Side::Buy) + book.depth(Side::Sell)).sum();
        tally.live_orders = self.books.live_orders();
        tally.untold += self.updates.len() as u64;
        (tally.told, tally.overtaken) = (self.updates.told(), self.updates.overtaken());
        self.home.lock().itch = Some(tally);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::itch::Symbol;
    use crate::itch::encode::{self, Header, NewOrder};

    fn book() -> ItchBook {
        ItchBook {
            books: OrderBooks::new(BookSpec { instruments: 2, orders: 16, levels_per_side: 16 }),
            told: vec![Told::default(); 2].into_boxed_slice(),
            losses: 0,
            updates: Updates::new(2, 1, CHANGED),
            tally: ItchTally::default(),
            home: Tally::default(),
        }
    }

    const HEADER: Header = Header { stock_locate: 1, tracking_number: 0, timestamp_ns: 0 };
    const STOCK: Symbol = Symbol(*b"VRBL    ");

    impl ItchBook {
        /// Applies what `write` writes, and gives what the strategy is told of it.
        fn after(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<(bool, Top)> {
            let mut bytes = [0; 64];
            let len_bytes = write(&mut bytes).expect("there is room");
            self.apply(&bytes[..len_bytes], 1);
            let told = self.updates.drain();
            assert!(told.len() < 2 && self.tally.malformed + self.tally.contradictions == 0);
            told.first().map(|update| (update.reset, update.top))
        }
    }

    fn add(reference: u64, side: Side, price_e4: u32) -> impl FnOnce(&mut [u8]) -> Option<usize> {
        let order = NewOrder { reference, side, shares: 7, stock: STOCK, price_e4 };
        move |out| encode::add_order(out, HEADER, order)
    }

    #[test]
    fn the_strategy_is_told_when_a_side_becomes_empty_and_of_a_loss() {
        let mut book = book();
        let (bid, ask) = (Quote { price: 100, size: 7 }, Quote { price: 102, size: 7 });
        assert_eq!(book.after(|out| encode::stock_directory(out, HEADER, STOCK)), None);
        assert_eq!(book.after(|out| encode::trading_action(out, HEADER, STOCK, b'T')), None);
        assert_eq!(book.after(add(1, Side::Buy, 100)), Some((false, Top { bid, ask: Quote::EMPTY })));
        assert_eq!(book.after(add(2, Side::Sell, 102)), Some((false, Top { bid, ask })));
        let gone = book.after(|out| encode::order_delete(out, HEADER, 1));
        assert_eq!(gone, Some((false, Top { bid: Quote::EMPTY, ask })));
        book.losses += 1;
        assert_eq!(book.after(add(3, Side::Buy, 100)), Some((true, Top { bid, ask })), "what was before is void");
        assert_eq!(book.after(add(4, Side::Buy, 99)), None, "the best levels are the same");
        let behind = Quote { price: 101, size: 7 };
        assert_eq!(book.after(add(5, Side::Sell, 101)), Some((false, Top { bid, ask: behind })));
    }
}
