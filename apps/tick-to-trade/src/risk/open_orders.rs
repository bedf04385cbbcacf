//! The orders that the exchange has not settled yet: a report changes a position only by what is
//! left of an order of ours.

use super::OrderIntent;
use crate::itch::Side;

/// Bits of an order's id that hold the instrument.
const INSTRUMENT_BITS: u32 = 16;

/// Orders that may be open at once.
const OPEN_MAX: usize = 1 << 12;

/// The places that are tried for an order. Only an order without a report keeps its place for good.
const TRIES: usize = 64;

/// A report that matches no open order, or exceeds what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a report of order {id:#x} matches no open order")]
pub struct Unmatched {
    /// The id in the report.
    pub id: u64,
}

/// Open orders, each at the place that its id says.
#[derive(Debug)]
pub struct OpenOrders {
    places: Box<[Place]>,
    last: u64,
    open: usize,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// 0 if it is free.
    id: u64,
    side: Side,
    left: u32,
}

impl Default for OpenOrders {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOrders {
    /// Allocates the places.
    pub fn new() -> Self {
        Self { places: vec![Place { id: 0, side: Side::Buy, left: 0 }; OPEN_MAX].into_boxed_slice(), last: 0, open: 0 }
    }

    /// Memory that [`OpenOrders::new`] allocates, in bytes.
    pub const MEMORY_BYTES: u64 = (OPEN_MAX * size_of::<Place>()) as u64;

    /// Opens an order, and returns its id, which no other order has. `None` if there is no place:
    /// too many orders have no report.
    #[inline]
    pub fn open(&mut self, order: &OrderIntent) -> Option<u64> {
        for _ in 0..TRIES {
            self.last += 1;
            let place = &mut self.places[self.last as usize % OPEN_MAX];
            if place.id == 0 {
                let id = self.last << INSTRUMENT_BITS | u64::from(order.instrument);
                *place = Place { id, side: order.side, left: order.quantity };
                self.open += 1;
                return Some(id);
            }
        }
        None
    }

    /// Takes back an order that was not sent.
    #[cold]
    pub fn take_back(&mut self, id: u64) {
        let place = self.place(id);
        if place.id == id {
            place.id = 0;
            self.open -= 1;
        }
    }

    /// Settles a part of an order. Returns its instrument, and whether nothing is left of it.
    ///
    /// # Errors
    /// The order is not open, is of the other side, or has less left: nothing is settled.
    #[inline]
    pub fn settle(&mut self, id: u64, side: Side, quantity: u64) -> Result<(u16, bool), Unmatched> {
        let place = self.place(id);
        let left = u64::from(place.left).checked_sub(quantity);
        let left = left.filter(|_| id != 0 && place.id == id && place.side == side).ok_or(Unmatched { id })?;
        place.left = left as u32;
        if left == 0 {
            place.id = 0;
            self.open -= 1;
        }
        Ok((id as u16, left == 0))
    }

    /// Whether every order is settled.
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    fn place(&mut self, id: u64) -> &mut Place {
        &mut self.places[(id >> INSTRUMENT_BITS) as usize % OPEN_MAX]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: OrderIntent = OrderIntent { instrument: 9, side: Side::Sell, price: 1, quantity: 5 };

    #[test]
    fn an_order_is_settled_in_parts_and_once() {
        let mut open = OpenOrders::new();
        let (id, other) = (open.open(&ORDER).expect("a place"), open.open(&ORDER).expect("a place"));
        assert_ne!(id, other);
        assert_eq!(open.settle(id, Side::Sell, 2), Ok((9, false)));
        for (id, side, quantity) in [
            (id, Side::Sell, 4),
            (id, Side::Buy, 3),
            (id + 1, Side::Sell, 3),
            (id + (2 << 16), Side::Sell, 0),
            (0, Side::Buy, 0),
        ] {
            assert_eq!(open.settle(id, side, quantity), Err(Unmatched { id }));
        }
        assert_eq!(open.settle(id, Side::Sell, 3), Ok((9, true)));
        assert_eq!(open.settle(id, Side::Sell, 0), Err(Unmatched { id }), "it is settled");
        assert!(!open.is_empty());
        open.take_back(other);
        open.take_back(other);
        assert!(open.is_empty());
        assert_eq!(open.settle(other, Side::Sell, 5), Err(Unmatched { id: other }));
    }

    #[test]
    fn an_order_without_a_report_keeps_its_place_and_the_others_go_round_it() {
        let mut open = OpenOrders::new();
        let lost = open.open(&ORDER).expect("a place");
        let mut last = lost;
        for _ in 0..3 * OPEN_MAX {
            let id = open.open(&ORDER).expect("a place");
            assert!(id > last && (id - lost) >> INSTRUMENT_BITS != OPEN_MAX as u64, "no id is used again");
            assert_eq!(open.settle(id, Side::Sell, 5), Ok((9, true)));
            last = id;
        }
        assert!((1..OPEN_MAX).all(|_| open.open(&ORDER).is_some()));
        assert_eq!(open.open(&ORDER), None, "none has a report");
        assert_eq!(open.settle(lost, Side::Sell, 5), Ok((9, true)), "a late one counts");
    }
}
