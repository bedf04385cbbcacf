//! What a book tells the strategy: the best levels of an instrument after a tick, as a fixed record in the packet that the
//! tick came in.

use crate::itch::Symbol;
use crate::risk::{Quote, Top};

/// Bytes of one record.
pub(super) const UPDATE_LEN_BYTES: usize = 80;

/// The best levels of one instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Update {
    /// The trader's index of the instrument.
    pub(super) instrument: u16,
    /// The book was lost or rebuilt since the last update.
    pub(super) reset: bool,
    /// The feed's own number: locate code or SecurityID.
    pub(super) number: u64,
    pub(super) symbol: Symbol,
    /// The sequence number of the tick.
    pub(super) tick: u64,
    pub(super) top: Top,
    /// The last trade's price, 0 if there was none yet.
    pub(super) last: i64,
}

impl Update {
    #[inline]
    pub(super) fn to_bytes(self) -> [u8; UPDATE_LEN_BYTES] {
        let mut bytes = [0; UPDATE_LEN_BYTES];
        bytes[0..2].copy_from_slice(&self.instrument.to_le_bytes());
        bytes[2] = u8::from(self.reset);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.symbol.0);
        bytes[24..32].copy_from_slice(&self.tick.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.top.bid.price.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.top.bid.size.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.top.ask.price.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.top.ask.size.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.last.to_le_bytes());
        bytes
    }

    #[inline]
    pub(super) fn from_bytes(bytes: &[u8; UPDATE_LEN_BYTES]) -> Update {
        let number = |at: usize| bytes[at..].first_chunk().map_or(0, |part| u64::from_le_bytes(*part));
        let quote = |at: usize| Quote { price: number(at).cast_signed(), size: number(at + 8) };
        Update {
            instrument: u16::from_le_bytes([bytes[0], bytes[1]]),
            reset: bytes[2] != 0,
            number: number(8),
            symbol: Symbol(number(16).to_le_bytes()),
            tick: number(24),
            top: Top { bid: quote(32), ask: quote(48) },
            last: number(64).cast_signed(),
        }
    }
}

/// The updates of one packet: the last of each instrument counts.
#[derive(Debug)]
pub(super) struct Updates {
    bytes: Vec<u8>,
}

impl Updates {
    /// Room for `limit` instruments.
    pub(super) fn new(limit: usize) -> Updates {
        Updates { bytes: Vec::with_capacity(limit * UPDATE_LEN_BYTES) }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds an update, in place of an earlier one of the same instrument. False if there is no room.
    #[inline]
    pub(super) fn put(&mut self, update: Update) -> bool {
        let bytes = update.to_bytes();
        let (records, _) = self.bytes.as_chunks_mut::<UPDATE_LEN_BYTES>();
        if let Some(earlier) = records.iter_mut().find(|record| record[..2] == bytes[..2]) {
            let reset = earlier[2] | bytes[2];
            *earlier = bytes;
            earlier[2] = reset;
            return true;
        }
        let fits = self.bytes.len() + UPDATE_LEN_BYTES <= self.bytes.capacity();
        if fits {
            self.bytes.extend_from_slice(&bytes);
        }
        fits
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(instrument: u16, tick: u64) -> Update {
        let quote = |price| Quote { price, size: 7 };
        let symbol = Symbol(*b"RIU3    ");
        Update {
            instrument,
            reset: tick == 1,
            number: 3,
            symbol,
            tick,
            top: Top { bid: quote(-1), ask: quote(2) },
            last: 9,
        }
    }

    #[test]
    fn the_last_update_of_an_instrument_counts_and_a_reset_is_kept() {
        let mut updates = Updates::new(2);
        assert!(updates.put(update(4, 1)) && updates.put(update(5, 2)) && updates.put(update(4, 3)));
        assert!(!updates.put(update(6, 4)), "there is room for two");
        let (records, rest) = updates.as_bytes().as_chunks();
        assert!(rest.is_empty());
        let read: Vec<_> = records.iter().map(Update::from_bytes).collect();
        assert_eq!(read, [Update { reset: true, ..update(4, 3) }, update(5, 2)]);
    }
}
