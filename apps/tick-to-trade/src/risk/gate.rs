//! Pre-trade limits. An order passes all of them, or is refused with the first reason and then
//! reserves nothing.
//!
//! The position limit holds in the worst case: all open orders of a side count as filled. So an
//! order that passes is reserved until [`RiskGate::filled`] or [`RiskGate::closed`] settles it.

use super::OrderIntent;
use crate::itch::Side;

/// The limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RiskSpec {
    /// The number of instruments; their indices are below it.
    pub instruments: u16,
    /// The greatest number of shares or contracts of one order.
    pub quantity_max: u32,
    /// The greatest price times quantity of one order, in the feed's price unit.
    pub notional_max: i64,
    /// The greatest distance of the limit price from the reference (last trade or mid), in 1/10 000
    /// of it.
    pub collar_bps: u32,
    /// Orders per second of all instruments, in the long run.
    pub orders_per_second: u32,
    /// Orders that may be sent at once after a pause; at least 1.
    pub burst_orders: u32,
    /// The greatest number of shares or contracts of one instrument, long or short.
    pub position_max: u32,
}

/// Why an order was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such instrument.
    #[error("instrument {instrument} is not one of the {instruments} that have limits")]
    UnknownInstrument {
        /// The order's instrument.
        instrument: u16,
        /// The number of instruments.
        instruments: u16,
    },
    /// A quantity of 0, or above the limit.
    #[error("a quantity of {quantity} is not within 1 to {limit}")]
    Quantity {
        /// The order's quantity.
        quantity: u32,
        /// The limit.
        limit: u32,
    },
    /// A price of 0 or less.
    #[error("a price of {price} is not positive")]
    Price {
        /// The order's price.
        price: i64,
    },
    /// Price times quantity is above the limit.
    #[error("{quantity} at {price} exceed the notional limit of {limit}")]
    Notional {
        /// The order's price.
        price: i64,
        /// The order's quantity.
        quantity: u32,
        /// The limit.
        limit: i64,
    },
    /// There is no reference to compare the order's price with.
    #[error("there is neither a last nor a mid price to hold {price} against")]
    NoReference {
        /// The order's price.
        price: i64,
    },
    /// The price is too far from the reference.
    #[error("a price of {price} is more than {limit_bps} bps from {reference}")]
    Collar {
        /// The order's price.
        price: i64,
        /// The last or mid price.
        reference: i64,
        /// The limit, in 1/10 000.
        limit_bps: u32,
    },
    /// If the order and all open ones of its side were filled, the position would exceed its limit.
    #[error("{quantity} more would make the position {worst}, beyond {limit}")]
    Position {
        /// The order's quantity.
        quantity: u32,
        /// The position if all orders of the side are filled.
        worst: i64,
        /// The limit, long or short.
        limit: u32,
    },
    /// Too many orders.
    #[error("more than {orders_per_second} orders a second; the next may go in {wait_ns} ns")]
    Rate {
        /// The limit.
        orders_per_second: u32,
        /// Nanoseconds until the next order may be sent.
        wait_ns: u64,
    },
}

impl Refusal {
    /// Names for counters, by [`Refusal::index`].
    pub const NAMES: [&'static str; 8] =
        ["unknown instrument", "quantity", "price", "notional", "no reference", "collar", "position", "rate"];

    /// The index of the kind of refusal.
    #[inline]
    pub fn index(&self) -> usize {
        match self {
            Refusal::UnknownInstrument { .. } => 0,
            Refusal::Quantity { .. } => 1,
            Refusal::Price { .. } => 2,
            Refusal::Notional { .. } => 3,
            Refusal::NoReference { .. } => 4,
            Refusal::Collar { .. } => 5,
            Refusal::Position { .. } => 6,
            Refusal::Rate { .. } => 7,
        }
    }
}

/// Totals since construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RiskCounts {
    /// Orders that passed.
    pub passed: u64,
    /// Orders refused, by [`Refusal::index`].
    pub refused: [u64; Refusal::NAMES.len()],
}

#[derive(Clone, Copy, Default)]
struct Exposure {
    position: i64,
    /// The open quantity of buys and of sells.
    open: [i64; 2],
}

/// The gate.
pub struct RiskGate {
    spec: RiskSpec,
    exposures: Box<[Exposure]>,
    bucket: TokenBucket,
    counts: RiskCounts,
}

impl RiskGate {
    /// Allocates an exposure for each instrument.
    pub fn new(spec: RiskSpec) -> Self {
        Self {
            exposures: vec![Exposure::default(); usize::from(spec.instruments)].into_boxed_slice(),
            bucket: TokenBucket::new(spec.orders_per_second, spec.burst_orders),
            counts: RiskCounts::default(),
            spec,
        }
    }

    /// Checks an order against all limits, and reserves it if it passes. `reference` is the last
    /// trade's price or the mid. `now_ns` must not go back; an earlier time counts as the last one.
    ///
    /// # Errors
    /// The first limit that the order exceeds.
    #[inline]
    pub fn check(&mut self, order: &OrderIntent, reference: Option<i64>, now_ns: u64) -> Result<(), Refusal> {
        let verdict = self.verdict(order, reference, now_ns);
        match &verdict {
            Ok(()) => self.counts.passed += 1,
            Err(refusal) => self.counts.refused[refusal.index()] += 1,
        }
        verdict
    }

    /// Reports that an open order was executed, in whole or in part.
    pub fn filled(&mut self, instrument: u16, side: Side, quantity: u32) {
        self.closed(instrument, side, quantity);
        if let Some(exposure) = self.exposures.get_mut(usize::from(instrument)) {
            exposure.position += signed(side, quantity);
        }
    }

    /// Reports that an open order, or the rest of it, was cancelled, rejected or expired.
    pub fn closed(&mut self, instrument: u16, side: Side, quantity: u32) {
        if let Some(exposure) = self.exposures.get_mut(usize::from(instrument)) {
            let open = &mut exposure.open[side as usize];
            *open = (*open - i64::from(quantity)).max(0);
        }
    }

    /// The position of an instrument: positive is long.
    pub fn position(&self, instrument: u16) -> i64 {
        self.exposures.get(usize::from(instrument)).map_or(0, |e| e.position)
    }

    /// Totals since construction.
    pub fn counts(&self) -> &RiskCounts {
        &self.counts
    }

    #[inline]
    fn verdict(&mut self, order: &OrderIntent, reference: Option<i64>, now_ns: u64) -> Result<(), Refusal> {
        let &OrderIntent { instrument, side, price, quantity } = order;
        let spec = &self.spec;
        let Some(exposure) = self.exposures.get_mut(usize::from(instrument)) else {
            return Err(Refusal::UnknownInstrument { instrument, instruments: spec.instruments });
        };
        if quantity == 0 || quantity > spec.quantity_max {
            return Err(Refusal::Quantity { quantity, limit: spec.quantity_max });
        }
        if price <= 0 {
            return Err(Refusal::Price { price });
        }
        if price.checked_mul(i64::from(quantity)).is_none_or(|notional| notional > spec.notional_max) {
            return Err(Refusal::Notional { price, quantity, limit: spec.notional_max });
        }
        let reference = reference.filter(|&r| r > 0).ok_or(Refusal::NoReference { price })?;
        let distance = i128::from(price.abs_diff(reference)) * 10_000;
        if distance > i128::from(reference) * i128::from(spec.collar_bps) {
            return Err(Refusal::Collar { price, reference, limit_bps: spec.collar_bps });
        }
        let worst = exposure.position + signed(side, 1) * exposure.open[side as usize] + signed(side, quantity);
        let is_beyond = match side {
            Side::Buy => worst > i64::from(spec.position_max),
            Side::Sell => worst < -i64::from(spec.position_max),
        };
        if is_beyond {
            return Err(Refusal::Position { quantity, worst, limit: spec.position_max });
        }
        // Checked last, so that an order refused for another reason takes no token.
        self.bucket
            .take(now_ns)
            .map_err(|wait_ns| Refusal::Rate { orders_per_second: spec.orders_per_second, wait_ns })?;
        exposure.open[side as usize] += i64::from(quantity);
        Ok(())
    }
}

#[inline]
fn signed(side: Side, quantity: u32) -> i64 {
    match side {
        Side::Buy => i64::from(quantity),
        Side::Sell => -i64::from(quantity),
    }
}

/// A token bucket kept as one time, the one at which it would be full again (the "generic cell rate
/// algorithm" of ITU-T I.371).
struct TokenBucket {
    interval_ns: u64,
    burst_ns: u64,
    full_at_ns: u64,
    now_ns: u64,
    is_shut: bool,
}

impl TokenBucket {
    fn new(per_second: u32, burst: u32) -> Self {
        // Rounded up: never more orders than allowed.
        let interval_ns = 1_000_000_000u64.div_ceil(u64::from(per_second.max(1)));
        let burst_ns = interval_ns * u64::from(burst.max(1) - 1);
        Self { interval_ns, burst_ns, full_at_ns: 0, now_ns: 0, is_shut: per_second == 0 }
    }

    /// Takes a token, or returns the nanoseconds until there is one.
    #[inline]
    fn take(&mut self, now_ns: u64) -> Result<(), u64> {
        if self.is_shut {
            return Err(u64::MAX);
        }
        self.now_ns = self.now_ns.max(now_ns);
        let full_at_ns = self.full_at_ns.max(self.now_ns);
        let debt_ns = full_at_ns - self.now_ns;
        if debt_ns > self.burst_ns {
            return Err(debt_ns - self.burst_ns);
        }
        self.full_at_ns = full_at_ns.saturating_add(self.interval_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPEC: RiskSpec = RiskSpec {
        instruments: 2,
        quantity_max: 100,
        notional_max: 1_000_000,
        collar_bps: 100,
        orders_per_second: 1000,
        burst_orders: 3,
        position_max: 150,
    };
    const BUY: OrderIntent = OrderIntent { instrument: 0, side: Side::Buy, price: 10_000, quantity: 100 };

    fn refusal(order: OrderIntent, reference: Option<i64>) -> Refusal {
        RiskGate::new(SPEC).check(&order, reference, 0).unwrap_err()
    }

    #[test]
    fn each_limit_refuses_with_its_reason() {
        assert_eq!(RiskGate::new(SPEC).check(&BUY, Some(10_000), 0), Ok(()));
        let at = Some(10_000);
        assert_eq!(
            refusal(OrderIntent { instrument: 2, ..BUY }, at),
            Refusal::UnknownInstrument { instrument: 2, instruments: 2 }
        );
        assert_eq!(refusal(OrderIntent { quantity: 101, ..BUY }, at), Refusal::Quantity { quantity: 101, limit: 100 });
        assert_eq!(refusal(OrderIntent { quantity: 0, ..BUY }, at), Refusal::Quantity { quantity: 0, limit: 100 });
        assert_eq!(refusal(OrderIntent { price: 0, ..BUY }, at), Refusal::Price { price: 0 });
        let notional = Refusal::Notional { price: 10_001, quantity: 100, limit: 1_000_000 };
        assert_eq!(refusal(OrderIntent { price: 10_001, ..BUY }, at), notional);
        assert!(matches!(refusal(OrderIntent { price: i64::MAX, ..BUY }, at), Refusal::Notional { .. }));
        assert_eq!(refusal(BUY, None), Refusal::NoReference { price: 10_000 });
        assert_eq!(refusal(BUY, Some(9_900)), Refusal::Collar { price: 10_000, reference: 9_900, limit_bps: 100 });
        let mut gate = RiskGate::new(SPEC);
        let refused = gate.check(&OrderIntent { price: 0, ..BUY }, at, 0).unwrap_err();
        assert_eq!(gate.check(&BUY, at, 0), Ok(()));
        assert_eq!((gate.counts().passed, gate.counts().refused[refused.index()]), (1, 1));
    }

    #[test]
    fn open_orders_count_until_they_close() {
        let mut gate = RiskGate::new(SPEC);
        assert_eq!(gate.check(&BUY, Some(10_000), 0), Ok(()));
        let refused = Err(Refusal::Position { quantity: 100, worst: 200, limit: 150 });
        assert_eq!(gate.check(&BUY, Some(10_000), 0), refused);
        gate.filled(0, Side::Buy, 100);
        assert_eq!(gate.position(0), 100);
        assert_eq!(gate.check(&BUY, Some(10_000), 0), refused);
        let sell = OrderIntent { side: Side::Sell, ..BUY };
        assert_eq!(gate.check(&sell, Some(10_000), 0), Ok(()));
        gate.closed(0, Side::Sell, 100);
        assert_eq!(gate.check(&OrderIntent { quantity: 50, ..BUY }, Some(10_000), 0), Ok(()));
    }

    #[test]
    fn the_bucket_says_when() {
        let mut bucket = TokenBucket::new(1000, 3);
        assert_eq!([bucket.take(5), bucket.take(5), bucket.take(5)], [Ok(()); 3]);
        assert_eq!(bucket.take(5), Err(1_000_000));
        assert_eq!(bucket.take(1_000_004), Err(1));
        assert_eq!(bucket.take(1_000_005), Ok(()));
        assert_eq!(bucket.take(0), Err(1_000_000));
        assert_eq!(TokenBucket::new(0, 1).take(0), Err(u64::MAX));
    }

    proptest! {
        /// In any window of a second, at most the rate plus the burst passes.
        #[test]
        fn the_rate_holds_over_every_second(
            gaps in prop::collection::vec(0u64..400_000_000, 1..200),
            rate in 1u32..20,
            burst in 1u32..5,
        ) {
            let mut bucket = TokenBucket::new(rate, burst);
            let mut now = 0;
            let mut passed = Vec::new();
            for gap in gaps {
                now += gap;
                if bucket.take(now).is_ok() {
                    passed.push(now);
                }
            }
            for (i, &from) in passed.iter().enumerate() {
                let within = passed[i..].iter().take_while(|&&t| t < from + 1_000_000_000).count();
                prop_assert!(within <= (rate + burst) as usize);
            }
        }
    }
}
