//! Empties books in slices, so that they can be rebuilt, and copies them as plain values.
//!
//! The orders of all books lie mixed in one table. So emptying a book walks the whole table, 32 MiB
//! when it has room for a million orders: [`OrderBooks::scrub`] walks it in slices, and the other
//! books go on in between.

use super::{NO_BOOK, OrderBooks};
use crate::book::image::{BookImage, ImageOrder};
use crate::book::ladder::Ladder;
use crate::itch::Side;

/// The position of a walk over the table of orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scrub {
    slot: usize,
}

impl OrderBooks {
    /// Removes the orders of some books from the next `slots` slots of the table. Returns true at
    /// the end of the table; the next call starts over.
    ///
    /// Messages applied between two slices may move orders, so a walk may miss some: a book is
    /// empty only once [`OrderBooks::is_empty`] returns true.
    pub fn scrub(&mut self, walk: &mut Scrub, slots: usize, is_gone: impl Fn(u16) -> bool) -> bool {
        let end = (walk.slot + slots).min(self.orders.slots());
        while walk.slot < end {
            // The removal may have moved an order from further on into this slot: look again.
            match self.orders.get(walk.slot) {
                Some((_, order)) if is_gone(self.levels.split(order.level).0) => _ = self.remove(walk.slot),
                _ => walk.slot += 1,
            }
        }
        let is_over = walk.slot == self.orders.slots();
        if is_over {
            walk.slot = 0;
        }
        is_over
    }

    /// Forgets all books and instruments. Walks the whole table of orders, which takes some ms.
    #[cold]
    pub fn clear(&mut self) {
        self.orders.clear();
        self.by_locate.fill(NO_BOOK);
        while let Some(mut book) = self.books.pop() {
            book.ladders.iter_mut().for_each(Ladder::clear);
            (book.trading_state, book.is_halted) = (b' ', false);
            self.spare.push(book);
        }
        self.is_over = false;
    }

    /// Whether a book has no order. An unknown book counts as empty.
    pub fn is_empty(&self, book: u16) -> bool {
        self.book(book).is_none_or(|book| book.depth(Side::Buy) + book.depth(Side::Sell) == 0)
    }

    /// Whether a trading book's best bid is not below its best offer, a state that no exchange
    /// leaves.
    #[inline]
    pub fn is_crossed(&self, book: u16) -> bool {
        let Some(book) = self.book(book) else { return false };
        let (bid, ask) = (book.best(Side::Buy), book.best(Side::Sell));
        bid.zip(ask).is_some_and(|(bid, ask)| bid.price_e4 >= ask.price_e4) && book.is_trading()
    }

    /// Images of all books. Allocates, and walks all orders: for the end of a run.
    pub fn images(&self) -> Vec<BookImage> {
        let image = |book: &super::Book| BookImage {
            locate: book.stock_locate(),
            symbol: book.symbol(),
            orders: Vec::new(),
            levels: [Side::Buy, Side::Sell].map(|side| book.levels(side).collect()),
        };
        let mut images: Vec<_> = self.books.iter().map(image).collect();
        for (reference, order) in (0..self.orders.slots()).filter_map(|slot| self.orders.get(slot)) {
            let (book, side, place) = self.levels.split(order.level);
            let price_e4 = self.books[usize::from(book)].ladder(side).price_e4(place);
            let sells = side == Side::Sell;
            images[usize::from(book)].orders.push(ImageOrder { reference, sells, price_e4, shares: order.shares });
        }
        images.iter_mut().for_each(|image| image.orders.sort_unstable());
        images
    }
}
