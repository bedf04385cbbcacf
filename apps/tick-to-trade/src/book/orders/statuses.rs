//! Messages that are about no order: the directory, halts, the end of the day, and trades beside
//! the book.

use super::{Book, Change, NO_BOOK, OrderBooks};
use crate::book::error::BookError;
use crate::itch::{Message, Side, Symbol};

/// The market whose feed TotalView-ITCH is, in an operational halt.
const NASDAQ: u8 = b'Q';

impl OrderBooks {
    #[cold]
    pub(super) fn apply_other(&mut self, message: &Message<'_>) -> Result<Option<Change>, BookError> {
        let locate = message.stock_locate();
        Ok(match message {
            Message::StockDirectory(m) => {
                self.announce(locate, m.stock())?;
                None
            }
            Message::SystemEvent(m) => {
                self.take_event(m.event_code());
                None
            }
            Message::TradingAction(m) => self.set(locate, |book| book.trading_state = m.trading_state()),
            Message::OperationalHalt(m) if m.market() == NASDAQ => {
                self.set(locate, |book| book.is_halted = m.action() != b'T')
            }
            Message::Trade(m) => self.traded(locate, m.side(), (m.price_e4(), m.shares())),
            Message::CrossTrade(m) => {
                let shares = u32::try_from(m.shares()).unwrap_or(u32::MAX);
                self.traded(locate, Side::Buy, (m.cross_price_e4(), shares))
            }
            Message::BrokenTrade(_) => self.beside(locate).map(|change| Change { is_broken: true, ..change }),
            _ => None,
        })
    }

    /// A change of a known instrument that leaves its book as it is.
    fn beside(&self, locate: u16) -> Option<Change> {
        let book = self.by_locate(locate)?;
        Some(Change { book, side: Side::Buy, top: false, execution: None, is_broken: false })
    }

    /// A trade beside the book. A cross without a match has no shares, and no price.
    fn traded(&self, locate: u16, side: Side, (price_e4, shares): (u32, u32)) -> Option<Change> {
        let change = self.beside(locate).filter(|_| shares > 0)?;
        Some(Change { side, execution: Some((price_e4, shares)), ..change })
    }

    /// Sets whether an instrument trades. A halt is told.
    fn set(&mut self, locate: u16, set: impl FnOnce(&mut Book)) -> Option<Change> {
        let change = self.beside(locate)?;
        let book = self.books.get_mut(usize::from(change.book))?;
        let was_trading = book.is_trading();
        set(book);
        let is_halted = was_trading && !book.is_trading();
        is_halted.then_some(Change { top: true, ..change })
    }

    /// Called as a snapshot of the instrument begins: it says again whether the exchange has halted
    /// the instrument.
    pub fn begin_snapshot(&mut self, locate: u16) {
        let book = self.by_locate(locate).and_then(|index| self.books.get_mut(usize::from(index)));
        book.into_iter().for_each(|book| book.is_halted = false);
    }

    /// Takes an event of the day. After the end of system hours (`E`) the exchange takes no orders,
    /// and still deletes those that are left.
    fn take_event(&mut self, event_code: u8) {
        self.is_over = match event_code {
            b'E' | b'C' => true,
            b'O' | b'S' => false,
            _ => return,
        };
        self.books.iter_mut().for_each(|book| book.is_over = self.is_over);
    }

    /// Opens a book for an announced instrument. A known locate code keeps its book: the directory
    /// is repeated during the day.
    fn announce(&mut self, locate: u16, symbol: Symbol) -> Result<(), BookError> {
        if let Some(index) = self.by_locate(locate) {
            self.books[usize::from(index)].symbol = symbol;
            return Ok(());
        }
        let Some(book) = self.spare.pop() else {
            return Err(BookError::InstrumentsFull { locate, limit: self.spec.instruments });
        };
        debug_assert!(self.books.len() < usize::from(NO_BOOK), "there are fewer than 2^16 - 1 instruments");
        self.by_locate[usize::from(locate)] = self.books.len() as u16;
        self.books.push(Book { locate, symbol, is_over: self.is_over, ..book });
        Ok(())
    }
}
