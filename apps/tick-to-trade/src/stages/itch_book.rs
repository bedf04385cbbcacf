//! The trader's full-depth books: applies each message, and tells the strategy which best levels
//! changed.

use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::arbiter::Mark;
use super::settings::INSTRUMENTS_MAX;
use super::tally::{ItchTally, Tally};
use super::update::{UPDATE_LEN_BYTES, Update, Updates};
use crate::book::{BookSpec, Change, OrderBooks};
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
            last: vec![0; usize::from(INSTRUMENTS_MAX)].into_boxed_slice(),
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
    }
}

struct ItchBook {
    books: OrderBooks,
    /// The last trade's price by book.
    last: Box<[i64]>,
    updates: Updates,
    tally: ItchTally,
    home: Tally,
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
        let Some(last) = self.last.get_mut(usize::from(change.book)) else {
            self.tally.untold += 1;
            return;
        };
        if let Some((price_e4, _)) = change.execution {
            *last = i64::from(price_e4);
        }
        let last = *last;
        let Some(book) = self.books.book(change.book).filter(|book| change.top && book.is_trading()) else { return };
        let (Some(bid), Some(ask)) = (book.best(Side::Buy), book.best(Side::Sell)) else { return };
        self.tally.changes += 1;
        let known = self.updates.put(Update {
            instrument: change.book,
            reset: false,
            number: u64::from(book.stock_locate()),
            symbol: book.symbol(),
            tick,
            top: Top {
                bid: Quote { price: i64::from(bid.price_e4), size: bid.shares },
                ask: Quote { price: i64::from(ask.price_e4), size: ask.shares },
            },
            last,
        });
        self.tally.untold += u64::from(!known);
    }
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
