//! One side of a full-depth book: its price levels in one sorted array, the best level last.
//!
//! The best price is one load. Most updates are within a few levels of the best, so a search walks back from the end and an
//! insertion moves few entries; a level far from the best costs a binary search and a move of what lies before it.

use crate::itch::Side;

/// A price level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The price in 1/10 000 dollar.
    pub price_e4: u32,
    /// Orders at that price.
    pub orders: u32,
    /// Their shares together.
    pub shares: u64,
}

/// What an update did to the best level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Touched {
    /// The update was at the best level, or made or removed it.
    pub(super) top: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The price, inverted for asks, so that for both sides greater is better.
    key: u32,
    orders: u32,
    shares: u64,
}

pub(super) struct Ladder {
    /// 0 for bids, all ones for asks: `price ^ flip` orders both sides alike.
    flip: u32,
    entries: Vec<Entry>,
    capacity: usize,
}

/// Entries that a search walks from the best before it turns to bisection.
const NEAR: usize = 8;

impl Ladder {
    pub(super) fn new(side: Side, capacity: usize) -> Self {
        let flip = match side {
            Side::Buy => 0,
            Side::Sell => u32::MAX,
        };
        Self { flip, entries: Vec::with_capacity(capacity), capacity }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn best(&self) -> Option<Level> {
        self.entries.last().map(|entry| self.level(entry))
    }

    /// Best first.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = Level> + '_ {
        self.entries.iter().rev().map(|entry| self.level(entry))
    }

    /// Whether an order at this price would need a level that there is no room for.
    #[inline]
    pub(super) fn is_full_for(&self, price_e4: u32) -> bool {
        self.entries.len() == self.capacity && self.find(price_e4 ^ self.flip).is_err()
    }

    /// Adds an order; the caller has asked [`Ladder::is_full_for`].
    #[inline]
    pub(super) fn add(&mut self, price_e4: u32, shares: u32) -> Touched {
        let key = price_e4 ^ self.flip;
        match self.find(key) {
            Ok(at) => {
                let entry = &mut self.entries[at];
                entry.orders += 1;
                entry.shares += u64::from(shares);
                Touched { top: at + 1 == self.entries.len() }
            }
            Err(at) => {
                debug_assert!(self.entries.len() < self.capacity);
                let top = at == self.entries.len();
                self.entries.insert(at, Entry { key, orders: 1, shares: u64::from(shares) });
                Touched { top }
            }
        }
    }

    /// Takes shares from an order that stays.
    #[inline]
    pub(super) fn reduce(&mut self, price_e4: u32, shares: u32) -> Touched {
        let Ok(at) = self.find(price_e4 ^ self.flip) else { return self.missing(price_e4) };
        self.entries[at].shares -= u64::from(shares);
        Touched { top: at + 1 == self.entries.len() }
    }

    /// Takes an order with its last shares.
    #[inline]
    pub(super) fn remove(&mut self, price_e4: u32, shares: u32) -> Touched {
        let Ok(at) = self.find(price_e4 ^ self.flip) else { return self.missing(price_e4) };
        let top = at + 1 == self.entries.len();
        let entry = &mut self.entries[at];
        entry.orders -= 1;
        entry.shares -= u64::from(shares);
        if entry.orders == 0 {
            self.entries.remove(at);
        }
        Touched { top }
    }

    fn level(&self, entry: &Entry) -> Level {
        Level { price_e4: entry.key ^ self.flip, orders: entry.orders, shares: entry.shares }
    }

    /// Where the key is, or where it belongs.
    #[inline]
    fn find(&self, key: u32) -> Result<usize, usize> {
        let far = self.entries.len().saturating_sub(NEAR);
        for (back, entry) in self.entries[far..].iter().rev().enumerate() {
            if entry.key <= key {
                let at = self.entries.len() - 1 - back;
                return if entry.key == key { Ok(at) } else { Err(at + 1) };
            }
        }
        self.entries[..far].binary_search_by_key(&key, |entry| entry.key)
    }

    /// The order table and the ladder are updated together, so an order's level always exists.
    #[cold]
    fn missing(&self, price_e4: u32) -> Touched {
        debug_assert!(false, "no level at {price_e4}: the order table and the ladder disagree");
        Touched { top: false }
    }
}
