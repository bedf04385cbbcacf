//! Full-depth books of several instruments, built from ITCH messages.

mod rebuild;
mod statuses;

use super::error::BookError;
use super::ladder::{Ladder, Level, Touched};
use super::table::{Order, OrderTable, Place, REACH_LINES};
use crate::itch::{Message, OrderAction, OrderMessage, OrderReplace, Side, Symbol};

pub use rebuild::Scrub;

/// The bounds; [`OrderBooks::new`] allocates for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookSpec {
    /// Instruments that the stock directory may announce, at most 65,535.
    pub instruments: u16,
    /// Live orders of all instruments together; 16 bytes per slot, in a table at most three
    /// quarters full.
    pub orders: u32,
    /// Price levels of one side of one book, 24 bytes each.
    pub levels_per_side: u32,
}

/// The effect of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The book, for [`OrderBooks::book`].
    pub book: u16,
    /// The side that changed.
    pub side: Side,
    /// Price or shares of the best level of that side changed.
    pub top: bool,
    /// Price in 1/10 000 dollar and shares, if it was a trade, in the book or beside it (`P`, `Q`).
    /// Executions that are not printable are none.
    pub execution: Option<(u32, u32)>,
    /// An earlier trade was broken: the price of the last one may be void.
    pub is_broken: bool,
}

/// One instrument's book.
pub struct Book {
    locate: u16,
    symbol: Symbol,
    trading_state: u8,
    /// The exchange alone has halted it (`h`).
    is_halted: bool,
    /// The exchange takes no more orders today.
    is_over: bool,
    /// Bids, asks. Sides come at random, so an index picks the side, not a branch.
    ladders: [Ladder; 2],
}

impl Book {
    /// The locate code of the day.
    pub fn stock_locate(&self) -> u16 {
        self.locate
    }

    /// The symbol.
    pub fn symbol(&self) -> Symbol {
        self.symbol
    }

    /// Whether the last trading action (`H`) was `T`, the exchange itself has not halted the
    /// instrument, and still takes orders.
    pub fn is_trading(&self) -> bool {
        self.trading_state == b'T' && !self.is_halted && !self.is_over
    }

    /// The best level of a side.
    #[inline]
    pub fn best(&self, side: Side) -> Option<Level> {
        self.ladder(side).best()
    }

    /// All levels of a side, best first.
    pub fn levels(&self, side: Side) -> impl ExactSizeIterator<Item = Level> + '_ {
        self.ladder(side).iter()
    }

    /// The number of price levels of a side.
    pub fn depth(&self, side: Side) -> usize {
        self.ladder(side).len()
    }

    #[inline]
    fn ladder(&self, side: Side) -> &Ladder {
        &self.ladders[side as usize]
    }

    #[inline]
    fn ladder_mut(&mut self, side: Side) -> &mut Ladder {
        &mut self.ladders[side as usize]
    }
}

const NO_BOOK: u16 = u16::MAX;

/// The books of a feed.
pub struct OrderBooks {
    spec: BookSpec,
    /// Index into `books` by locate code.
    by_locate: Box<[u16]>,
    books: Vec<Book>,
    /// Books allocated but not yet announced.
    spare: Vec<Book>,
    orders: OrderTable,
    levels: LevelNames,
    /// The exchange takes no more orders today.
    is_over: bool,
}

impl BookSpec {
    /// Memory that [`OrderBooks::new`] allocates, in bytes.
    pub fn memory_bytes(self) -> u64 {
        let ladders = 2 * u64::from(self.instruments) * Ladder::memory_bytes(self.levels_per_side);
        ladders + OrderTable::memory_bytes(self.orders as usize) + (1 << 16) * size_of::<u16>() as u64
    }
}

impl OrderBooks {
    /// How many messages ahead to call [`OrderBooks::prefetch`]: enough to cover a load from
    /// memory.
    pub const AHEAD: usize = 16;

    /// Allocates all memory that the books will ever use.
    ///
    /// # Panics
    /// Twice `instruments` times `levels_per_side`, each rounded up to a power of two, exceed 2^32.
    pub fn new(spec: BookSpec) -> Self {
        let names = LevelNames::new(spec);
        let levels = spec.levels_per_side;
        let spare = (0..spec.instruments)
            .map(|_| Book {
                locate: 0,
                symbol: Symbol([b' '; 8]),
                trading_state: b' ',
                is_halted: false,
                is_over: false,
                ladders: [Ladder::new(Side::Buy, levels), Ladder::new(Side::Sell, levels)],
            })
            .collect();
        Self {
            spec,
            by_locate: vec![NO_BOOK; 1 << 16].into_boxed_slice(),
            books: Vec::with_capacity(usize::from(spec.instruments)),
            spare,
            orders: OrderTable::new(spec.orders as usize),
            levels: names,
            is_over: false,
        }
    }

    /// The books, in the order of their announcement.
    pub fn books(&self) -> &[Book] {
        &self.books
    }

    /// The book with the index of a [`Change`].
    #[inline]
    pub fn book(&self, index: u16) -> Option<&Book> {
        self.books.get(usize::from(index))
    }

    /// A book's index by locate code.
    #[inline]
    pub fn by_locate(&self, locate: u16) -> Option<u16> {
        Some(self.by_locate[usize::from(locate)]).filter(|&index| index != NO_BOOK)
    }

    /// Live orders.
    pub fn live_orders(&self) -> usize {
        self.orders.len()
    }

    /// Starts loading the lines that [`OrderBooks::apply`] of this message reads first, and returns
    /// at once.
    ///
    /// Worth calling [`OrderBooks::AHEAD`] messages early, so that loads overlap. `message` is raw,
    /// not yet parsed, and may be anything: this is a hint.
    #[inline(always)]
    pub fn prefetch(&self, message: &[u8]) {
        // Every message about an order has the reference number at 11; a replace has the new
        // order's at 19. Types come at random, so there is no branch on the type; other messages
        // look at 11 again.
        let Some(&tag) = message.first() else { return };
        let second_at = if tag == OrderReplace::TAG { 19 } else { 11 };
        let reference = |at: usize| message.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        if let (Some(first), Some(second)) = (reference(11), reference(second_at)) {
            self.orders.prefetch(first);
            self.orders.prefetch(second);
        }
    }

    /// Applies a message. Returns `None` if it changes no book. A halt of an instrument counts as a
    /// change of its best level: from here on nobody may trade on it.
    ///
    /// # Errors
    /// The message contradicts the book or exceeds a bound. The book is unchanged, except that an
    /// order without room is missing from here on.
    #[inline]
    pub fn apply(&mut self, message: &Message<'_>) -> Result<Option<Change>, BookError> {
        match message.order() {
            Some(order) => self.apply_order(&order).map(Some),
            None => self.apply_other(message),
        }
    }

    /// Like [`OrderBooks::apply`], for a message about an order.
    ///
    /// # Errors
    /// Like [`OrderBooks::apply`].
    #[inline]
    pub fn apply_order(&mut self, order: &OrderMessage) -> Result<Change, BookError> {
        // Three branches, not seven: easier for the branch predictor.
        match order.action {
            OrderAction::Add => self.add(order),
            OrderAction::Replace => self.replace(order),
            OrderAction::Delete | OrderAction::Cancel | OrderAction::Execute | OrderAction::ExecuteAtPrice => {
                self.take(order)
            }
        }
    }

    #[inline]
    fn add(&mut self, order: &OrderMessage) -> Result<Change, BookError> {
        let OrderMessage { reference, stock_locate: locate, .. } = *order;
        let index = self.by_locate[usize::from(locate)];
        if index == NO_BOOK {
            return Err(BookError::UnknownInstrument { reference, locate });
        }
        if order.shares == 0 {
            return Err(BookError::NoShares { reference });
        }
        let place = self.orders.place(reference);
        if matches!(place, Place::Taken(_)) {
            return Err(BookError::DuplicateOrder { reference });
        }
        if self.orders.is_full() {
            return Err(BookError::OrdersFull { reference, limit: self.spec.orders });
        }
        self.insert(place, reference, (index, order.side()), order)
    }

    #[inline]
    fn replace(&mut self, order: &OrderMessage) -> Result<Change, BookError> {
        let OrderMessage { reference: original, new_reference: new, .. } = *order;
        if order.shares == 0 {
            return Err(BookError::NoShares { reference: new });
        }
        let slot = self.orders.find(original).ok_or(BookError::UnknownOrder { reference: original })?;
        if new != original && self.orders.find(new).is_some() {
            return Err(BookError::DuplicateOrder { reference: new });
        }
        let (index, ..) = self.levels.split(self.orders.at(slot).level);
        self.check_instrument(order, index)?;
        let left = self.remove(slot);
        // Looked up again, as the removal may have moved the place.
        let came = self.insert(self.orders.place(new), new, (left.book, left.side), order)?;
        Ok(Change { top: left.top | came.top, ..came })
    }

    /// Takes shares from an order, and removes the order with its last share.
    #[inline]
    fn take(&mut self, order: &OrderMessage) -> Result<Change, BookError> {
        let reference = order.reference;
        let slot = self.orders.find(reference).ok_or(BookError::UnknownOrder { reference })?;
        let Order { shares: have, level } = *self.orders.at(slot);
        let (index, side, place) = self.levels.split(level);
        self.check_instrument(order, index)?;
        let shares = if order.action == OrderAction::Delete { have } else { order.shares };
        if shares == 0 {
            return Err(BookError::NoShares { reference });
        }
        if shares > have {
            return Err(BookError::TooManyShares { reference, have, take: shares });
        }
        let ladder = self.books[usize::from(index)].ladder_mut(side);
        let execution = match order.action {
            OrderAction::Execute => Some((ladder.price_e4(place), shares)),
            OrderAction::ExecuteAtPrice if order.is_printable() => Some((order.price_e4, shares)),
            _ => None,
        };
        let change = if shares == have {
            self.remove(slot)
        } else {
            self.orders.at(slot).shares -= shares;
            change(index, side, ladder.reduce(place, shares))
        };
        Ok(Change { execution, ..change })
    }

    /// Checks that a message changes an order of the message's own instrument.
    #[inline]
    fn check_instrument(&self, order: &OrderMessage, index: u16) -> Result<(), BookError> {
        let OrderMessage { reference, stock_locate: locate, .. } = *order;
        // Compares indices, not the book's own locate code, which lies on another cache line than
        // its ladders.
        if self.by_locate[usize::from(locate)] != index {
            let own = self.books[usize::from(index)].locate;
            return Err(BookError::OtherInstrument { reference, own, locate });
        }
        Ok(())
    }

    /// Inserts an order into the ladder and the table, which has room for one more.
    #[inline]
    fn insert(
        &mut self,
        place: Place,
        reference: u64,
        (index, side): (u16, Side),
        order: &OrderMessage,
    ) -> Result<Change, BookError> {
        let Place::Free(slot) = place else {
            return Err(BookError::OrdersCrowded { reference, limit: REACH_LINES });
        };
        let ladder = self.books[usize::from(index)].ladder_mut(side);
        let Some((level, touched)) = ladder.add(order.price_e4, order.shares) else {
            return Err(BookError::LevelsFull { reference, limit: self.spec.levels_per_side });
        };
        let level = self.levels.name(index, side, level);
        self.orders.fill(slot, reference, Order { shares: order.shares, level });
        Ok(change(index, side, touched))
    }

    /// Removes an order from the table and the ladder.
    #[inline]
    fn remove(&mut self, slot: usize) -> Change {
        let Order { shares, level } = *self.orders.at(slot);
        self.orders.remove(slot);
        let (index, side, place) = self.levels.split(level);
        let touched = self.books[usize::from(index)].ladder_mut(side).remove(place, shares);
        change(index, side, touched)
    }
}

/// The name of a level in 32 bits: the book, the side, and the level's place in that ladder.
#[derive(Clone, Copy)]
struct LevelNames {
    place_bits: u32,
}

impl LevelNames {
    fn new(spec: BookSpec) -> Self {
        let place_bits = spec.levels_per_side.next_power_of_two().trailing_zeros();
        let book_bits = u32::from(spec.instruments).next_power_of_two().trailing_zeros();
        assert!(
            book_bits + 1 + place_bits <= 32,
            "{} instruments of twice {} price levels are more than 32 bits can name; lower `levels_per_side`",
            spec.instruments,
            spec.levels_per_side
        );
        Self { place_bits }
    }

    #[inline]
    fn name(self, book: u16, side: Side, place: u32) -> u32 {
        (u32::from(book) << 1 | side as u32) << self.place_bits | place
    }

    #[inline]
    fn split(self, name: u32) -> (u16, Side, u32) {
        let book_side = name >> self.place_bits;
        let side = if book_side & 1 == 0 { Side::Buy } else { Side::Sell };
        ((book_side >> 1) as u16, side, name & ((1 << self.place_bits) - 1))
    }
}

#[inline]
fn change(book: u16, side: Side, touched: Touched) -> Change {
    Change { book, side, top: touched.top, execution: None, is_broken: false }
}
