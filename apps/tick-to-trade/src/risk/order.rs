//! The order message: 64 bytes, formatted once per instrument and patched for each order.
//!
//! The model is Nasdaq's OUCH "enter order": fixed fields, big-endian, and one cache line, so that
//! it is sent inline.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | type, `O` |
//! | 1 | 1 | layout version, 1 |
//! | 2 | 1 | side, `B` or `S` |
//! | 3 | 1 | time in force, `I` (immediate or cancel) |
//! | 4 | 4 | quantity |
//! | 8 | 8 | order id, chosen by the sender, never twice |
//! | 16 | 8 | limit price, signed, in the feed's unit |
//! | 24 | 8 | instrument, the feed's own number (locate code or SecurityID) |
//! | 32 | 8 | sequence number of the tick that caused it |
//! | 40 | 8 | time that the tick was scheduled to be sent, in nanoseconds of the sender's clock |
//! | 48 | 8 | symbol, padded with spaces |
//! | 56 | 4 | firm, padded with spaces |
//! | 60 | 4 | zeros |

use super::OrderIntent;
use crate::itch::{Side, Symbol};

/// The message's length.
pub const ORDER_LEN_BYTES: usize = 64;

/// A message with all fields in place but those of a particular order.
#[derive(Debug, Clone)]
pub struct OrderTemplate {
    bytes: [u8; ORDER_LEN_BYTES],
}

impl OrderTemplate {
    /// Formats the fields that all orders of an instrument share.
    pub fn new(instrument: u64, symbol: Symbol, firm: [u8; 4]) -> Self {
        let mut bytes = [0; ORDER_LEN_BYTES];
        bytes[..4].copy_from_slice(b"O\x01 I");
        bytes[24..32].copy_from_slice(&instrument.to_be_bytes());
        bytes[48..56].copy_from_slice(&symbol.0);
        bytes[56..60].copy_from_slice(&firm);
        Self { bytes }
    }

    /// Writes an order to the front of `out` and returns its length, or `None` if `out` is too
    /// short.
    #[inline]
    pub fn write(&self, order: &OrderIntent, id: u64, tick: u64, scheduled_ns: u64, out: &mut [u8]) -> Option<usize> {
        let out = out.first_chunk_mut::<ORDER_LEN_BYTES>()?;
        *out = self.bytes;
        out[2] = order.side.to_byte();
        out[4..8].copy_from_slice(&order.quantity.to_be_bytes());
        out[8..16].copy_from_slice(&id.to_be_bytes());
        out[16..24].copy_from_slice(&order.price.to_be_bytes());
        out[32..40].copy_from_slice(&tick.to_be_bytes());
        out[40..48].copy_from_slice(&scheduled_ns.to_be_bytes());
        Some(ORDER_LEN_BYTES)
    }
}

/// Why bytes are not an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// The length is not 64 bytes.
    #[error("an order has 64 bytes, not {len_bytes}")]
    Length {
        /// The length.
        len_bytes: usize,
    },
    /// The type is not `O`, or the version not 1.
    #[error("type 0x{tag:02x} version {version} is no order of version 1; sender and receiver differ")]
    Layout {
        /// The first byte.
        tag: u8,
        /// The second.
        version: u8,
    },
    /// The side is neither `B` nor `S`.
    #[error("side 0x{value:02x} is neither B nor S; the order is corrupt")]
    Side {
        /// The byte found.
        value: u8,
    },
}

/// An order, read in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderView<'a>(&'a [u8; ORDER_LEN_BYTES]);

impl<'a> OrderView<'a> {
    /// Checks length, type, version and side.
    ///
    /// # Errors
    /// The first defect.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, OrderError> {
        let array: &[u8; ORDER_LEN_BYTES] =
            bytes.try_into().map_err(|_| OrderError::Length { len_bytes: bytes.len() })?;
        match array {
            [b'O', 1, b'B' | b'S', ..] => Ok(Self(array)),
            [b'O', 1, value, ..] => Err(OrderError::Side { value: *value }),
            [tag, version, ..] => Err(OrderError::Layout { tag: *tag, version: *version }),
        }
    }

    /// Buy or sell.
    #[inline]
    pub fn side(self) -> Side {
        if self.0[2] == b'B' { Side::Buy } else { Side::Sell }
    }

    /// Shares or contracts.
    #[inline]
    pub fn quantity(self) -> u32 {
        u32::from_be_bytes(self.0[4..8].try_into().expect("4 bytes"))
    }

    /// The order's id.
    #[inline]
    pub fn id(self) -> u64 {
        self.u64_at(8)
    }

    /// The limit, in the feed's unit.
    #[inline]
    pub fn price(self) -> i64 {
        self.u64_at(16) as i64
    }

    /// The feed's number of the instrument.
    #[inline]
    pub fn instrument(self) -> u64 {
        self.u64_at(24)
    }

    /// The sequence number of the tick that caused it.
    #[inline]
    pub fn tick(self) -> u64 {
        self.u64_at(32)
    }

    /// When that tick was scheduled to be sent, in nanoseconds of the sender's clock.
    #[inline]
    pub fn scheduled_ns(self) -> u64 {
        self.u64_at(40)
    }

    /// The symbol.
    pub fn symbol(self) -> Symbol {
        Symbol(self.0[48..56].try_into().expect("8 bytes"))
    }

    #[inline]
    fn u64_at(self, at: usize) -> u64 {
        u64::from_be_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_patched_is_read_and_the_rest_stays() {
        let symbol = Symbol::new("RIU3").unwrap();
        let template = OrderTemplate::new(49_634_118, symbol, *b"VERB");
        let order = OrderIntent { instrument: 3, side: Side::Sell, price: -5, quantity: 7 };
        let mut out = [0xee; 70];
        assert_eq!(template.write(&order, 11, 12, 13, &mut out), Some(64));
        let view = OrderView::parse(&out[..64]).unwrap();
        assert_eq!((view.side(), view.quantity(), view.id(), view.price()), (Side::Sell, 7, 11, -5));
        assert_eq!((view.instrument(), view.tick(), view.scheduled_ns()), (49_634_118, 12, 13));
        assert_eq!(view.symbol(), symbol);
        assert_eq!((&out[56..64], &out[64..]), (&b"VERB\0\0\0\0"[..], &[0xee; 6][..]));

        assert_eq!(template.write(&order, 1, 2, 3, &mut out[..63]), None);
        assert_eq!(OrderView::parse(&out[..63]), Err(OrderError::Length { len_bytes: 63 }));
        out[2] = 0;
        assert_eq!(OrderView::parse(&out[..64]), Err(OrderError::Side { value: 0 }));
        out[1] = 2;
        assert_eq!(OrderView::parse(&out[..64]), Err(OrderError::Layout { tag: b'O', version: 2 }));
    }
}
