//! A whole book as plain values, to compare two: every order, and every price level.

use super::ladder::Level;
use crate::itch::{Side, Symbol};

/// One live order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageOrder {
    /// The order's reference number.
    pub reference: u64,
    /// Whether it is a sell order.
    pub sells: bool,
    /// Its price in 1/10,000 dollar.
    pub price_e4: u32,
    /// Its shares.
    pub shares: u32,
}

/// One instrument's book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BookImage {
    /// The locate code of the day.
    pub locate: u16,
    /// The symbol.
    pub symbol: Symbol,
    /// The live orders, by reference number.
    pub orders: Vec<ImageOrder>,
    /// The levels of both sides, best first.
    pub levels: [Vec<Level>; 2],
}

impl BookImage {
    /// The first difference from another image of the same book; `None` if they are equal.
    pub fn difference(&self, other: &BookImage) -> Option<String> {
        if self.orders.len() != other.orders.len() {
            return Some(format!("{} live orders, not {}", self.orders.len(), other.orders.len()));
        }
        if let Some((own, theirs)) = self.orders.iter().zip(&other.orders).find(|(own, theirs)| own != theirs) {
            return Some(format!("{own:?}, not {theirs:?}"));
        }
        let side = [Side::Buy, Side::Sell].into_iter().find(|&side| {
            let side = side as usize;
            self.levels[side] != other.levels[side]
        })?;
        Some(format!("equal orders, and other price levels on the {side:?} side"))
    }
}
