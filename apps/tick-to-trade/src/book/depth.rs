//! An N-level book fed with price levels: new, change and delete of a price, cut at N levels.
//!
//! Feeds of this kind send the best N levels only. A new level pushes the worst one out without a
//! message, and after a delete the feed announces the level that moved up into the last place.
//! Levels are keyed by price; the feed's own level number is a check, not a key. Prices and sizes
//! are the feed's integers; the scale is the caller's.

use crate::itch::Side;

/// A price level, 0 if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DepthLevel {
    /// The price in the feed's unit.
    pub price: i64,
    /// The size at that price.
    pub size: i64,
}

/// Why an update contradicts the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DepthError {
    /// A change or delete of a price that is not in the book.
    #[error("there is no {side:?} level at price {price}; an update was missed")]
    UnknownPrice {
        /// The side.
        side: Side,
        /// The price.
        price: i64,
    },
    /// A new level at a price that is in the book.
    #[error("there is a {side:?} level at price {price} already; an update was missed or applied twice")]
    DuplicatePrice {
        /// The side.
        side: Side,
        /// The price.
        price: i64,
    },
    /// The level's number in the book is not the one in the feed.
    #[error(
        "the {side:?} level at price {price} is number {actual} in the book, {expected} in the feed; an update was \
         missed"
    )]
    Place {
        /// The side.
        side: Side,
        /// The price.
        price: i64,
        /// The feed's level number, from 1.
        expected: u32,
        /// The level's number in the book, from 1.
        actual: u32,
    },
}

/// The best `N` levels of both sides; the arrays are the whole state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DepthBook<const N: usize> {
    sides: [Ranks<N>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ranks<const N: usize> {
    len: usize,
    /// Best first; default beyond `len`, so that equal books have equal bytes.
    levels: [DepthLevel; N],
}

impl<const N: usize> Default for DepthBook<N> {
    fn default() -> Self {
        const { assert!(N > 0) }
        Self { sides: [Ranks { len: 0, levels: [DepthLevel::default(); N] }; 2] }
    }
}

impl<const N: usize> DepthBook<N> {
    /// An empty book.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all levels.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The levels of a side, best first.
    #[inline]
    pub fn levels(&self, side: Side) -> &[DepthLevel] {
        let ranks = &self.sides[side as usize];
        &ranks.levels[..ranks.len]
    }

    /// The best level of a side.
    #[inline]
    pub fn best(&self, side: Side) -> Option<DepthLevel> {
        self.levels(side).first().copied()
    }

    /// Adds a level; the level pushed beyond N is dropped. Returns the new level's number from 1,
    /// or `None` if it is itself beyond N.
    ///
    /// # Errors
    /// The price is in the book.
    pub fn insert(&mut self, side: Side, level: DepthLevel) -> Result<Option<u32>, DepthError> {
        let ranks = &mut self.sides[side as usize];
        match find(side, &ranks.levels[..ranks.len], level.price) {
            Ok(_) => Err(DepthError::DuplicatePrice { side, price: level.price }),
            Err(at) if at == N => Ok(None),
            Err(at) => {
                ranks.len = (ranks.len + 1).min(N);
                ranks.levels[at..ranks.len].rotate_right(1);
                ranks.levels[at] = level;
                Ok(Some(at as u32 + 1))
            }
        }
    }

    /// Changes the size at a price. Returns the level's number from 1.
    ///
    /// # Errors
    /// The price is not in the book.
    pub fn change(&mut self, side: Side, level: DepthLevel) -> Result<u32, DepthError> {
        let ranks = &mut self.sides[side as usize];
        let at = find(side, &ranks.levels[..ranks.len], level.price)
            .map_err(|_| DepthError::UnknownPrice { side, price: level.price })?;
        ranks.levels[at] = level;
        Ok(at as u32 + 1)
    }

    /// Removes a price; the levels behind it move up. Returns the number it had, from 1.
    ///
    /// # Errors
    /// The price is not in the book.
    pub fn delete(&mut self, side: Side, price: i64) -> Result<u32, DepthError> {
        let ranks = &mut self.sides[side as usize];
        let at = find(side, &ranks.levels[..ranks.len], price).map_err(|_| DepthError::UnknownPrice { side, price })?;
        ranks.levels[at..ranks.len].rotate_left(1);
        ranks.len -= 1;
        ranks.levels[ranks.len] = DepthLevel::default();
        Ok(at as u32 + 1)
    }
}

/// The index of the price, or the one where it belongs. N is small: a walk beats a bisection.
#[inline]
fn find(side: Side, levels: &[DepthLevel], price: i64) -> Result<usize, usize> {
    for (at, level) in levels.iter().enumerate() {
        if level.price == price {
            return Ok(at);
        }
        let is_better = match side {
            Side::Buy => price > level.price,
            Side::Sell => price < level.price,
        };
        if is_better {
            return Err(at);
        }
    }
    Err(levels.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_list(
            ops in prop::collection::vec((0..3u8, any::<bool>(), -8i64..8, 1i64..100), 0..200),
        ) {
            let mut book = DepthBook::<5>::new();
            let mut oracle: [Vec<DepthLevel>; 2] = [vec![], vec![]];
            for (op, sells, price, size) in ops {
                let side = if sells { Side::Sell } else { Side::Buy };
                let list = &mut oracle[side as usize];
                let place = list.iter().position(|l| l.price == price);
                let level = DepthLevel { price, size };
                match op {
                    0 => {
                        let got = book.insert(side, level);
                        if place.is_some() {
                            prop_assert_eq!(got, Err(DepthError::DuplicatePrice { side, price }));
                        } else {
                            list.push(level);
                            list.sort_by_key(|l| if sells { l.price } else { -l.price });
                            list.truncate(5);
                            prop_assert_eq!(got, Ok(list.iter().position(|l| l.price == price).map(|p| p as u32 + 1)));
                        }
                    }
                    1 => {
                        let got = book.change(side, level);
                        prop_assert_eq!(got.ok(), place.map(|p| p as u32 + 1));
                        if let Some(p) = place { list[p] = level; }
                    }
                    _ => {
                        let got = book.delete(side, price);
                        prop_assert_eq!(got.ok(), place.map(|p| p as u32 + 1));
                        if let Some(p) = place { list.remove(p); }
                    }
                }
                prop_assert_eq!(book.levels(Side::Buy), &oracle[0][..]);
                prop_assert_eq!(book.levels(Side::Sell), &oracle[1][..]);
            }
        }
    }
}
