//! A small trigger: it takes liquidity if one side of the best level outweighs the other, or if the
//! price has moved.
//!
//! It fires on the edge: once when the condition becomes true, and again only after it was false.
//! After an order an instrument rests for the cooldown.

use super::OrderIntent;
use crate::itch::Side;

/// The best level of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// The price in the feed's unit.
    pub price: i64,
    /// Shares or contracts; 0 if the side is empty.
    pub size: u64,
}

impl Quote {
    /// The quote of a side without orders.
    pub const EMPTY: Quote = Quote { price: 0, size: 0 };
}

/// Both best levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Top {
    /// The best bid.
    pub bid: Quote,
    /// The best offer.
    pub ask: Quote,
}

impl Top {
    /// The middle, rounded down.
    #[inline]
    pub fn mid(&self) -> i64 {
        self.bid.price.midpoint(self.ask.price)
    }

    /// Whether both sides have orders, and the best bid is not below the best offer: locked, or
    /// crossed.
    #[inline]
    pub fn is_crossed(&self) -> bool {
        self.bid.size > 0 && self.ask.size > 0 && self.bid.price >= self.ask.price
    }

    /// `(bid - ask) / (bid + ask)` of the sizes, in 1/1000; 0 when both are 0.
    #[inline]
    pub fn imbalance_permille(&self) -> i32 {
        let (bid, ask) = (i128::from(self.bid.size), i128::from(self.ask.size));
        if bid + ask == 0 { 0 } else { ((bid - ask) * 1000 / (bid + ask)) as i32 }
    }
}

/// The conditions to fire, and the order's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggerSpec {
    /// The number of instruments; their indices are below it.
    pub instruments: u16,
    /// Fires at this imbalance of the best sizes, in 1/1000; above 1000 never.
    pub imbalance_permille: u32,
    /// Fires when the mid has moved this far since the last order or the first quote, in the feed's
    /// unit; 0 never.
    pub move_min: i64,
    /// Shares or contracts of an order.
    pub quantity: u32,
    /// How long an instrument rests after an order, in nanoseconds.
    pub cooldown_ns: u64,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The imbalance was at or beyond the threshold at the last look.
    is_tilted: bool,
    /// The mid from which a move is measured.
    anchor: Option<i64>,
    rests_until_ns: u64,
}

/// The trigger.
pub struct Trigger {
    spec: TriggerSpec,
    states: Box<[State]>,
}

impl Trigger {
    /// Allocates a state for each instrument.
    pub fn new(spec: TriggerSpec) -> Self {
        Self { spec, states: vec![State::default(); usize::from(spec.instruments)].into_boxed_slice() }
    }

    /// Looks at an instrument's best levels after a change. The order takes the other side's best
    /// price. Returns `None` for a locked or crossed market, for one with an empty side, for an
    /// instrument that rests, and for one without a state.
    #[inline]
    pub fn on_top(&mut self, instrument: u16, top: &Top, now_ns: u64) -> Option<OrderIntent> {
        let state = self.states.get_mut(usize::from(instrument))?;
        if top.bid.size == 0 || top.ask.size == 0 {
            // The next edge is in a book that has both sides again.
            state.is_tilted = false;
            return None;
        }
        if top.bid.price >= top.ask.price {
            return None;
        }
        let mid = top.mid();
        let imbalance = top.imbalance_permille();
        let was_tilted = state.is_tilted;
        state.is_tilted = imbalance.unsigned_abs() >= self.spec.imbalance_permille;
        let moved = mid.saturating_sub(*state.anchor.get_or_insert(mid));
        if now_ns < state.rests_until_ns {
            return None;
        }
        let side = if state.is_tilted && !was_tilted {
            if imbalance > 0 { Side::Buy } else { Side::Sell }
        } else if self.spec.move_min > 0 && moved.unsigned_abs() >= self.spec.move_min.unsigned_abs() {
            if moved > 0 { Side::Buy } else { Side::Sell }
        } else {
            return None;
        };
        state.anchor = Some(mid);
        state.rests_until_ns = now_ns.saturating_add(self.spec.cooldown_ns);
        let price = match side {
            Side::Buy => top.ask.price,
            Side::Sell => top.bid.price,
        };
        Some(OrderIntent { instrument, side, price, quantity: self.spec.quantity })
    }

    /// Forgets the state of an instrument, after its book was lost or rebuilt.
    pub fn reset(&mut self, instrument: u16) {
        if let Some(state) = self.states.get_mut(usize::from(instrument)) {
            *state = State { rests_until_ns: state.rests_until_ns, ..State::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: TriggerSpec =
        TriggerSpec { instruments: 1, imbalance_permille: 600, move_min: 30, quantity: 5, cooldown_ns: 100 };

    fn top(bid: i64, bid_size: u64, ask: i64, ask_size: u64) -> Top {
        Top { bid: Quote { price: bid, size: bid_size }, ask: Quote { price: ask, size: ask_size } }
    }

    #[test]
    fn it_fires_once_an_edge_and_rests() {
        let mut trigger = Trigger::new(SPEC);
        assert_eq!(trigger.on_top(0, &top(100, 10, 102, 10), 0), None);
        let buy = OrderIntent { instrument: 0, side: Side::Buy, price: 102, quantity: 5 };
        assert_eq!(trigger.on_top(0, &top(100, 80, 102, 10), 1), Some(buy));
        assert_eq!(trigger.on_top(0, &top(100, 90, 102, 10), 500), None);
        assert_eq!(trigger.on_top(0, &top(100, 10, 102, 10), 501), None);
        let sell = OrderIntent { side: Side::Sell, price: 100, ..buy };
        assert_eq!(trigger.on_top(0, &top(100, 10, 102, 80), 502), Some(sell));
        assert_eq!(trigger.on_top(0, &top(100, 10, 102, 10), 503), None);
        assert_eq!(trigger.on_top(0, &top(100, 80, 102, 10), 504), None, "it rests");
    }

    #[test]
    fn nothing_is_taken_from_a_side_that_is_empty_and_the_edge_comes_again() {
        let mut trigger = Trigger::new(SPEC);
        assert!(trigger.on_top(0, &top(100, 80, 102, 10), 0).is_some());
        assert_eq!(trigger.on_top(0, &Top { ask: Quote::EMPTY, ..top(100, 80, 0, 0) }, 500), None);
        assert_eq!(trigger.on_top(0, &Top { bid: Quote::EMPTY, ..top(0, 0, 102, 80) }, 501), None);
        assert!(trigger.on_top(0, &top(100, 80, 102, 10), 502).is_some());
    }

    #[test]
    fn it_follows_a_move() {
        let mut trigger = Trigger::new(SPEC);
        assert_eq!(trigger.on_top(0, &top(100, 10, 102, 10), 0), None);
        assert_eq!(trigger.on_top(0, &top(129, 10, 131, 10), 1), None);
        let buy = trigger.on_top(0, &top(130, 10, 132, 10), 2).unwrap();
        assert_eq!((buy.side, buy.price), (Side::Buy, 132));
        let sell = trigger.on_top(0, &top(100, 10, 102, 10), 200).unwrap();
        assert_eq!((sell.side, sell.price), (Side::Sell, 100));
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut trigger = Trigger::new(SPEC);
        assert_eq!(trigger.on_top(0, &top(5, 1, 5, 1), 0), None, "locked");
        assert_eq!(trigger.on_top(1, &top(1, 1, 5, 1), 0), None, "unknown");
        assert!(trigger.on_top(0, &top(i64::MIN, u64::MAX, i64::MAX, 1), 0).is_some());
        assert_eq!(top(1, 0, 2, 0).imbalance_permille(), 0);
        assert_eq!(top(i64::MAX - 1, 1, i64::MAX, 1).mid(), i64::MAX - 1);
    }
}
