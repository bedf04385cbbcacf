//! Full-depth books of several instruments, built from ITCH messages.

use super::ladder::{Ladder, Level, Touched};
use super::table::{Order, OrderTable};
use crate::itch::{Message, Side, Symbol};

/// How much there may be; everything is allocated for it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookSpec {
    /// Instruments that the stock directory may announce, at most 65,535.
    pub instruments: u16,
    /// Live orders of all instruments together; a slot of 24 bytes each, in a table at most half full.
    pub orders: u32,
    /// Price levels of one side of one book, 16 bytes each.
    pub levels_per_side: u32,
}

/// Why a message did not change the book as it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BookError {
    /// A new instrument exceeds the bound.
    #[error("locate code {locate} is instrument number {} of at most {limit}; raise `instruments`", *.limit as u32 + 1)]
    InstrumentsFull {
        /// The instrument's locate code.
        locate: u16,
        /// The bound.
        limit: u16,
    },
    /// An order of an instrument that no stock directory message announced.
    #[error(
        "order {reference} is of locate code {locate}, which no stock directory message announced; the start of the feed was missed"
    )]
    UnknownInstrument {
        /// The order.
        reference: u64,
        /// The instrument's locate code.
        locate: u16,
    },
    /// A new order has the reference number of a live one.
    #[error("order {reference} is in the book already; the feed was replayed, or a delete was missed")]
    DuplicateOrder {
        /// The order.
        reference: u64,
    },
    /// A change to an order that is not in the book.
    #[error("order {reference} is not in the book; its add was missed")]
    UnknownOrder {
        /// The order.
        reference: u64,
    },
    /// More shares taken than the order has.
    #[error("order {reference} has {have} shares, {take} cannot be taken from it; a message was missed")]
    TooManyShares {
        /// The order.
        reference: u64,
        /// Its shares.
        have: u32,
        /// The shares to take.
        take: u32,
    },
    /// An order or a change of 0 shares.
    #[error("order {reference} comes with 0 shares; the message is corrupt")]
    NoShares {
        /// The order.
        reference: u64,
    },
    /// The bound on live orders is reached. The order is missing from the book from here on.
    #[error("{limit} orders are live, order {reference} has no room; raise `orders`")]
    OrdersFull {
        /// The order.
        reference: u64,
        /// The bound.
        limit: u32,
    },
    /// The bound on price levels is reached. The order is missing from the book from here on (of a replace, both orders).
    #[error("{limit} price levels are in use on its side, order {reference} has no room; raise `levels_per_side`")]
    LevelsFull {
        /// The order.
        reference: u64,
        /// The bound.
        limit: u32,
    },
}

/// What a message changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The book, for [`OrderBooks::book`].
    pub book: u16,
    /// The side that changed.
    pub side: Side,
    /// Price or shares of the best level of that side changed.
    pub top: bool,
    /// Price in 1/10 000 dollar and shares, if it was an execution.
    pub execution: Option<(u32, u32)>,
}

/// One instrument's book.
pub struct Book {
    locate: u16,
    symbol: Symbol,
    trading_state: u8,
    /// Bids, asks: an index, not a branch, picks the side, which comes at random.
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

    /// The last trading action (`H`) said `T`.
    pub fn is_trading(&self) -> bool {
        self.trading_state == b'T'
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

    /// How many price levels a side has.
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
    /// Books that are allocated and not yet announced.
    spare: Vec<Book>,
    orders: OrderTable,
}

impl OrderBooks {
    /// Allocates all that the books will ever use.
    pub fn new(spec: BookSpec) -> Self {
        let levels = spec.levels_per_side as usize;
        let spare = (0..spec.instruments)
            .map(|_| Book {
                locate: 0,
                symbol: Symbol([b' '; 8]),
                trading_state: b' ',
                ladders: [Ladder::new(Side::Buy, levels), Ladder::new(Side::Sell, levels)],
            })
            .collect();
        Self {
            spec,
            by_locate: vec![NO_BOOK; 1 << 16].into_boxed_slice(),
            books: Vec::with_capacity(usize::from(spec.instruments)),
            spare,
            orders: OrderTable::new(spec.orders as usize),
        }
    }

    /// The books, in the order of their announcement.
    pub fn books(&self) -> &[Book] {
        &self.books
    }

    /// A book by the index that a [`Change`] carries.
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

    /// Applies a message. `None` when it is one that changes no book.
    ///
    /// # Errors
    /// The message contradicts the book or exceeds a bound. The book is unchanged, except that an order refused for want of
    /// room is missing from here on.
    #[inline]
    pub fn apply(&mut self, message: &Message<'_>) -> Result<Option<Change>, BookError> {
        match *message {
            Message::AddOrder(m) => {
                self.add(m.stock_locate(), m.order_reference(), m.side(), m.price_e4(), m.shares()).map(Some)
            }
            Message::AddOrderMpid(m) => {
                self.add(m.stock_locate(), m.order_reference(), m.side(), m.price_e4(), m.shares()).map(Some)
            }
            Message::OrderDelete(m) => self.delete(m.order_reference()).map(Some),
            Message::OrderReplace(m) => {
                self.replace(m.original_reference(), m.new_reference(), m.price_e4(), m.shares()).map(Some)
            }
            Message::OrderExecuted(m) => self.execute(m.order_reference(), m.executed_shares(), None).map(Some),
            Message::OrderExecutedWithPrice(m) => {
                self.execute(m.order_reference(), m.executed_shares(), Some(m.execution_price_e4())).map(Some)
            }
            Message::OrderCancel(m) => self.take(m.order_reference(), m.cancelled_shares()).map(|(c, _)| Some(c)),
            Message::StockDirectory(m) => self.announce(m.stock_locate(), m.stock()).map(|()| None),
            Message::TradingAction(m) => {
                let index = self.by_locate[usize::from(m.stock_locate())];
                if let Some(book) = self.books.get_mut(usize::from(index)) {
                    book.trading_state = m.trading_state();
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    #[inline]
    fn add(
        &mut self,
        locate: u16,
        reference: u64,
        side: Side,
        price_e4: u32,
        shares: u32,
    ) -> Result<Change, BookError> {
        let index = self.by_locate[usize::from(locate)];
        if index == NO_BOOK {
            return Err(BookError::UnknownInstrument { reference, locate });
        }
        if shares == 0 {
            return Err(BookError::NoShares { reference });
        }
        if self.orders.find(reference).is_some() {
            return Err(BookError::DuplicateOrder { reference });
        }
        if self.orders.is_full() {
            return Err(BookError::OrdersFull { reference, limit: self.spec.orders });
        }
        self.insert(reference, Order { price_e4, shares, book_side: book_side(index, side) })
    }

    #[inline]
    fn delete(&mut self, reference: u64) -> Result<Change, BookError> {
        let slot = self.orders.find(reference).ok_or(BookError::UnknownOrder { reference })?;
        let order = *self.orders.at(slot);
        self.orders.remove(slot);
        Ok(self.remove_level(order))
    }

    #[inline]
    fn replace(&mut self, original: u64, new: u64, price_e4: u32, shares: u32) -> Result<Change, BookError> {
        if shares == 0 {
            return Err(BookError::NoShares { reference: new });
        }
        let slot = self.orders.find(original).ok_or(BookError::UnknownOrder { reference: original })?;
        if new != original && self.orders.find(new).is_some() {
            return Err(BookError::DuplicateOrder { reference: new });
        }
        let old = *self.orders.at(slot);
        self.orders.remove(slot);
        let left = self.remove_level(old);
        let came = self.insert(new, Order { price_e4, shares, book_side: old.book_side })?;
        Ok(Change { top: left.top | came.top, ..came })
    }

    #[inline]
    fn execute(&mut self, reference: u64, shares: u32, price_e4: Option<u32>) -> Result<Change, BookError> {
        let (change, own_price_e4) = self.take(reference, shares)?;
        Ok(Change { execution: Some((price_e4.unwrap_or(own_price_e4), shares)), ..change })
    }

    /// Takes shares from an order, and the order with its last. Returns the order's price too.
    #[inline]
    fn take(&mut self, reference: u64, shares: u32) -> Result<(Change, u32), BookError> {
        let slot = self.orders.find(reference).ok_or(BookError::UnknownOrder { reference })?;
        if shares == 0 {
            return Err(BookError::NoShares { reference });
        }
        let order = self.orders.at(slot);
        let before = *order;
        if shares > before.shares {
            return Err(BookError::TooManyShares { reference, have: before.shares, take: shares });
        }
        if shares == before.shares {
            self.orders.remove(slot);
            return Ok((self.remove_level(before), before.price_e4));
        }
        order.shares -= shares;
        let (index, side) = split(before.book_side);
        let touched = self.books[usize::from(index)].ladder_mut(side).reduce(before.price_e4, shares);
        Ok((change(index, side, touched), before.price_e4))
    }

    /// Into the table and the ladder; the table has room and the reference is new.
    #[inline]
    fn insert(&mut self, reference: u64, order: Order) -> Result<Change, BookError> {
        let (index, side) = split(order.book_side);
        let ladder = self.books[usize::from(index)].ladder_mut(side);
        if ladder.is_full_for(order.price_e4) {
            return Err(BookError::LevelsFull { reference, limit: self.spec.levels_per_side });
        }
        let touched = ladder.add(order.price_e4, order.shares);
        self.orders.insert(reference, order);
        Ok(change(index, side, touched))
    }

    #[inline]
    fn remove_level(&mut self, order: Order) -> Change {
        let (index, side) = split(order.book_side);
        let touched = self.books[usize::from(index)].ladder_mut(side).remove(order.price_e4, order.shares);
        change(index, side, touched)
    }

    /// A known locate code keeps its book: the directory is repeated during the day.
    fn announce(&mut self, locate: u16, symbol: Symbol) -> Result<(), BookError> {
        if let Some(index) = self.by_locate(locate) {
            self.books[usize::from(index)].symbol = symbol;
            return Ok(());
        }
        let Some(book) = self.spare.pop() else {
            return Err(BookError::InstrumentsFull { locate, limit: self.spec.instruments });
        };
        self.by_locate[usize::from(locate)] = self.books.len() as u16;
        self.books.push(Book { locate, symbol, ..book });
        Ok(())
    }
}

fn book_side(index: u16, side: Side) -> u32 {
    u32::from(index) << 1 | side as u32
}

#[inline]
fn split(book_side: u32) -> (u16, Side) {
    ((book_side >> 1) as u16, if book_side & 1 == 0 { Side::Buy } else { Side::Sell })
}

#[inline]
fn change(book: u16, side: Side, touched: Touched) -> Change {
    Change { book, side, top: touched.top, execution: None }
}
