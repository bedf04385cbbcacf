//! A seeded ITCH 5.0 feed: several instruments, a consistent book, prices around a random walk.
//!
//! The generator keeps the book that its messages describe ([`Generator::truth`]), price-time
//! priority included, so that a decoder of the feed can be checked. [`Generator::new`] allocates
//! all state, within the bounds of its [`GeneratorSpec`]; the same seed and calls give the same
//! bytes.
//!
//! The day starts with `S`, then a stock directory `R` and a trading action `H` for each
//! instrument, then `S` again. After that the mix resembles a Nasdaq day: mostly adds and deletes,
//! a tenth replaces, a twentieth executions.

mod truth;

use crate::itch::encode::{self, Header, NewOrder};
use crate::itch::{MESSAGE_LEN_BYTES_MAX, Side, Symbol};
use crate::mold::{MoldError, Session, Writer};
use truth::TruthBook;

pub use truth::{LiveOrder, TICK_E4, TruthLevel};

/// Parameters of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneratorSpec {
    /// The seed; the same seed gives the same feed.
    pub seed: u64,
    /// Instruments, locate codes 1 to this, `SYM0001` and so on; at least 1, at most 9,999.
    pub instruments: u16,
    /// Live orders at which each instrument's book settles, 8 to 1,000,000; never exceeded by more
    /// than half.
    pub live_orders: u32,
}

impl Default for GeneratorSpec {
    fn default() -> Self {
        Self { seed: 1, instruments: 8, live_orders: 2_000 }
    }
}

impl GeneratorSpec {
    /// The greatest number of live orders of one instrument.
    pub const LIVE_ORDERS_MAX: u32 = 1_000_000;

    /// Live orders that fit into each instrument's book.
    pub fn orders_max(self) -> u32 {
        let live_orders = self.live_orders.clamp(8, Self::LIVE_ORDERS_MAX);
        live_orders + live_orders / 2
    }

    /// Memory that [`Generator::new`] allocates, in bytes.
    pub fn memory_bytes(self) -> u64 {
        u64::from(self.instruments) * TruthBook::memory_bytes(self.orders_max())
    }
}

/// A day. ITCH timestamps restart at midnight; their 48 bits would overflow only on the fourth day.
const DAY_NS: u64 = 86_400_000_000_000;

/// A generated MoldUDP64 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of the buffer in use.
    pub len_bytes: usize,
    /// Sequence number of its first message.
    pub sequence: u64,
    /// Messages in it.
    pub count: u16,
}

/// The feed's state.
pub struct Generator {
    rng: SplitMix64,
    books: Vec<TruthBook>,
    live_orders: u32,
    opening: u32,
    next_reference: u64,
    next_match: u64,
    sequence: u64,
    session: Session,
}

impl Generator {
    /// Allocates all state.
    pub fn new(spec: GeneratorSpec) -> Self {
        let mut rng = SplitMix64(spec.seed);
        let live_orders = spec.live_orders.clamp(8, GeneratorSpec::LIVE_ORDERS_MAX);
        let books = (1..=spec.instruments.clamp(1, 9_999))
            .map(|locate| {
                let symbol = Symbol::new(&format!("SYM{locate:04}")).expect("7 ASCII characters");
                let mid_ticks = 2_000 + rng.below(20_000);
                TruthBook::new(locate, symbol, mid_ticks, spec.orders_max())
            })
            .collect();
        Self {
            rng,
            books,
            live_orders,
            opening: 0,
            next_reference: 1,
            next_match: 1,
            sequence: 1,
            session: *b"VERBLINE00",
        }
    }

    /// Renames the session; the feed is the same.
    #[must_use]
    pub fn in_session(self, session: Session) -> Self {
        Self { session, ..self }
    }

    /// The session's name in the MoldUDP64 header.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The sequence number of the next message.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Writes a MoldUDP64 packet of up to `messages` messages to the front of `out`; fewer if `out`
    /// has no room for the longest message. All carry the time of day of `at_ns`, in nanoseconds
    /// since any midnight.
    ///
    /// # Errors
    /// `out` is shorter than a header.
    pub fn write_frame(&mut self, messages: u16, at_ns: u64, out: &mut [u8]) -> Result<Frame, MoldError> {
        let sequence = self.sequence;
        let session = self.session;
        let timestamp_ns = at_ns % DAY_NS;
        let mut writer = Writer::new(out, &session, sequence)?;
        while writer.count() < messages && writer.room_bytes() >= MESSAGE_LEN_BYTES_MAX {
            let mut scratch = [0; MESSAGE_LEN_BYTES_MAX];
            let len = self.next_message(timestamp_ns, &mut scratch);
            writer.push(&scratch[..len])?;
        }
        let count = writer.count();
        Ok(Frame { len_bytes: writer.finish(), sequence, count })
    }

    /// Writes the next message to the front of `out` and returns its length.
    pub fn next_message(&mut self, timestamp_ns: u64, out: &mut [u8; MESSAGE_LEN_BYTES_MAX]) -> usize {
        self.sequence += 1;
        let len = if self.opening < self.books.len() as u32 * 2 + 2 {
            self.open_day(timestamp_ns, out)
        } else {
            self.trade_day(timestamp_ns, out)
        };
        len.expect("the buffer holds the longest message")
    }

    /// The true levels of a side, best first; empty for an unknown locate code.
    pub fn truth(&self, locate: u16, side: Side) -> impl Iterator<Item = TruthLevel> + '_ {
        let book = self.books.get(usize::from(locate).wrapping_sub(1));
        book.into_iter().flat_map(move |book| book.levels(side))
    }

    /// The number of instruments: locate codes 1 to this.
    pub fn instruments(&self) -> u16 {
        self.books.len() as u16
    }

    /// The symbol of a locate code.
    pub fn symbol(&self, locate: u16) -> Option<Symbol> {
        Some(self.books.get(usize::from(locate).checked_sub(1)?)?.symbol)
    }

    /// The live orders of an instrument, in no order; empty for an unknown locate code.
    pub fn orders(&self, locate: u16) -> impl Iterator<Item = LiveOrder> + '_ {
        let book = self.books.get(usize::from(locate).wrapping_sub(1));
        book.into_iter().flat_map(TruthBook::orders)
    }

    /// Live orders of all instruments.
    pub fn live_orders(&self) -> usize {
        self.books.iter().map(TruthBook::live).sum()
    }

    fn open_day(&mut self, timestamp_ns: u64, out: &mut [u8]) -> Option<usize> {
        let step = self.opening as usize;
        self.opening += 1;
        let book = step.checked_sub(1).map(|s| s / 2).and_then(|index| self.books.get(index));
        let stock_locate = book.map_or(0, |b| b.locate);
        let header = Header { stock_locate, tracking_number: 0, timestamp_ns };
        match book {
            Some(book) if step % 2 == 1 => encode::stock_directory(out, header, book.symbol),
            Some(book) => encode::trading_action(out, header, book.symbol, b'T'),
            None => encode::system_event(out, header, if step == 0 { b'O' } else { b'Q' }),
        }
    }

    fn trade_day(&mut self, timestamp_ns: u64, out: &mut [u8]) -> Option<usize> {
        let index = self.rng.below(self.books.len() as u32) as usize;
        let book = &mut self.books[index];
        let header = Header { stock_locate: book.locate, tracking_number: 0, timestamp_ns };
        if self.rng.below(64) == 0 {
            book.walk(self.rng.below(2) == 0);
        }
        // The walk has passed the best price of the other side: execute that side first.
        if let Some(side) = book.crossed() {
            return self.execute(index, side, header, out);
        }
        // Adds and deletes balance at `live_orders`.
        let fill_percent = (book.live() as u64 * 100 / u64::from(self.live_orders)).min(150) as u32;
        if book.live() < 4 {
            return self.add(index, header, out);
        }
        match self.rng.below(1000) {
            0..780 if self.rng.below(200) >= fill_percent => self.add(index, header, out),
            0..780 => {
                let order = book.remove_at(self.rng.below(book.live() as u32));
                encode::order_delete(out, header, order.reference)
            }
            780..890 => self.replace(index, header, out),
            890..950 => {
                let side = if self.rng.below(2) == 0 { Side::Buy } else { Side::Sell };
                self.execute(index, side, header, out)
            }
            950..980 => self.cancel(index, header, out),
            980..998 => self.hidden_trade(index, header, out),
            998 => encode::broken_trade(out, header, self.next_match.saturating_sub(1)),
            _ => {
                let shares = u64::from(self.rng.below(100_000));
                encode::imbalance(out, header, book.symbol, shares, shares / 3, b'B', book.mid_e4())
            }
        }
    }

    fn add(&mut self, index: usize, header: Header, out: &mut [u8]) -> Option<usize> {
        let side = if self.rng.below(2) == 0 { Side::Buy } else { Side::Sell };
        let shares = self.shares();
        let offset = self.rng.offset_ticks();
        let book = &mut self.books[index];
        let ticks = book.passive_price(side, offset);
        let Some(order) = book.add(self.next_reference, side, ticks, shares) else {
            // The book is full.
            let order = book.remove_at(self.rng.below(book.live() as u32));
            return encode::order_delete(out, header, order.reference);
        };
        self.next_reference += 1;
        let new =
            NewOrder { reference: order.reference, side, shares, stock: book.symbol, price_e4: order.ticks * TICK_E4 };
        if self.rng.below(32) == 0 {
            encode::add_order_mpid(out, header, new, *b"VERB")
        } else {
            encode::add_order(out, header, new)
        }
    }

    fn replace(&mut self, index: usize, header: Header, out: &mut [u8]) -> Option<usize> {
        let shares = self.shares();
        let offset = self.rng.offset_ticks();
        let book = &mut self.books[index];
        let old = book.remove_at(self.rng.below(book.live() as u32));
        let ticks = book.passive_price(old.side, offset);
        let new = book.add(self.next_reference, old.side, ticks, shares).expect("one order left");
        self.next_reference += 1;
        encode::order_replace(out, header, old.reference, new.reference, shares, new.ticks * TICK_E4)
    }

    /// Executes the first order of the best price, in whole or in part, sometimes at another price.
    fn execute(&mut self, index: usize, side: Side, header: Header, out: &mut [u8]) -> Option<usize> {
        let book = &mut self.books[index];
        let Some(first) = book.first(side) else { return self.add(index, header, out) };
        let shares = if self.rng.below(3) > 0 { first.shares } else { 1 + self.rng.below(first.shares) };
        book.take(first.reference_slot, shares);
        let match_number = self.next_match;
        self.next_match += 1;
        if self.rng.below(16) == 0 {
            let price_e4 = first.ticks * TICK_E4 + TICK_E4 / 2;
            encode::order_executed_with_price(out, header, first.reference, shares, match_number, price_e4)
        } else {
            encode::order_executed(out, header, first.reference, shares, match_number)
        }
    }

    fn cancel(&mut self, index: usize, header: Header, out: &mut [u8]) -> Option<usize> {
        let book = &mut self.books[index];
        let order = book.order_at(self.rng.below(book.live() as u32));
        if order.shares == 1 {
            book.take(order.reference_slot, 1);
            return encode::order_delete(out, header, order.reference);
        }
        let shares = 1 + self.rng.below(order.shares - 1);
        book.take(order.reference_slot, shares);
        encode::order_cancel(out, header, order.reference, shares)
    }

    fn hidden_trade(&mut self, index: usize, header: Header, out: &mut [u8]) -> Option<usize> {
        let shares = self.shares();
        let book = &self.books[index];
        let order = NewOrder { reference: 0, side: Side::Buy, shares, stock: book.symbol, price_e4: book.mid_e4() };
        self.next_match += 1;
        encode::trade(out, header, order, self.next_match - 1)
    }

    /// A number of shares, mostly round lots.
    fn shares(&mut self) -> u32 {
        match self.rng.below(8) {
            0 => 1 + self.rng.below(99),
            _ => 100 * (1 + self.rng.below(10)),
        }
    }
}

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014). Our
/// own, as a seed's feed must stay the same when a library changes its generators.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0; the bias of 2^-32 does not matter here.
    fn below(&mut self, bound: u32) -> u32 {
        debug_assert!(bound > 0);
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// Ticks behind the best price: most orders at or near it, some far away.
    fn offset_ticks(&mut self) -> u32 {
        match self.below(16) {
            0 => self.below(400),
            1..=3 => self.below(60),
            _ => self.next().trailing_ones() * 2 + self.below(3),
        }
    }
}
