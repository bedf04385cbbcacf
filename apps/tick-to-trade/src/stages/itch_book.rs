//! The trader's full-depth books: applies each message, and tells the strategy which best levels changed.

use verbline::prelude::*;

use super::arbiter::Mark;
use super::settings::INSTRUMENTS_MAX;
use super::tally::{ItchTally, Tally};
use super::update::{Update, Updates};
use crate::book::{BookSpec, Change, OrderBooks};
use crate::itch::{self, Side};
use crate::mold;
use crate::risk::{Quote, Top};

const CHANGED: OutId = OutId(0);

/// Instruments that one frame may touch; a frame has at most 64 messages.
const CHANGES_MAX: usize = 64;

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["changed"],
        drops: &["malformed"],
        summary: "decodes ITCH, keeps full-depth books",
        ..StageSpec::default()
    };
    registry.stage("itch-book", spec, move |_| {
        let books = BookSpec { instruments: INSTRUMENTS_MAX, orders: 1 << 20, levels_per_side: 4_096 };
        Ok(Box::new(ItchBook {
            books: OrderBooks::new(books),
            last: vec![0; usize::from(INSTRUMENTS_MAX)].into_boxed_slice(),
            updates: Updates::new(CHANGES_MAX),
            tally: ItchTally::default(),
            home: home.clone(),
        }))
    });
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
        for mut packet in input.drain_front(input.len()) {
            self.updates.clear();
            let mark = Mark::of(&packet);
            let Ok(frame) = mold::Packet::parse(packet.data()) else {
                out.drop(packet, DropReason::Stage(0));
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
            if !self.updates.as_bytes().is_empty() && packet.fill(self.updates.as_bytes()) {
                out.send(CHANGED, packet);
            }
        }
    }
}

impl ItchBook {
    /// Asks for the orders of each packet's first messages before the first packet is looked at; the rest is asked for while
    /// messages are applied. The loads overlap, instead of one wait a message: at 221,000 live orders a third of the time
    /// (`examples/parse_speed.rs`).
    #[inline]
    fn prefetch(&self, input: &Batch) {
        for packet in input.iter() {
            let Ok(frame) = mold::Packet::parse(packet.data()) else { continue };
            let first = frame.messages().skip(Mark::of(packet).skip as usize).take(OrderBooks::AHEAD);
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
        let Some(last) = self.last.get_mut(usize::from(change.book)) else { return };
        if let Some((price_e4, _)) = change.execution {
            *last = i64::from(price_e4);
        }
        let last = *last;
        let Some(book) = self.books.book(change.book).filter(|book| change.top && book.is_trading()) else { return };
        let (Some(bid), Some(ask)) = (book.best(Side::Buy), book.best(Side::Sell)) else { return };
        self.updates.put(Update {
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
    }
}

impl Drop for ItchBook {
    fn drop(&mut self) {
        let mut tally = std::mem::take(&mut self.tally);
        tally.levels = self.books.books().iter().map(|book| book.depth(Side::Buy) + book.depth(Side::Sell)).sum();
        tally.live_orders = self.books.live_orders();
        self.home.lock().itch = Some(tally);
    }
}
