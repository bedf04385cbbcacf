//! A book's update for the strategy: the best levels of an instrument after a tick, as a fixed
//! record in the tick's packet.

use verbline::prelude::*;

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
    /// The last trade's price; 0 if there was none yet, or it may be broken.
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

/// Updates not yet sent to the strategy, the last one of each instrument.
///
/// Updates go out in the packet that caused them, and in fresh ones if they do not fit. Updates
/// that find no packet or no room now stay here, and a later one of the same instrument replaces
/// its predecessor. So nothing is lost, and there is at most one update per instrument.
#[derive(Debug)]
pub(super) struct Updates {
    /// Records in the order in which their instruments changed.
    bytes: Vec<u8>,
    /// The record of an instrument, by its index; [`NONE`] if it has none.
    places: Box<[u16]>,
    /// When the packet of the last update was received.
    received_ns: u64,
    /// Records sent, and records replaced by a later one of the same instrument.
    told: u64,
    overtaken: u64,
    /// Fresh packets left for this turn: the plan counts on a burst.
    fresh_left: usize,
    burst: usize,
    output: OutId,
}

const NONE: u16 = u16::MAX;

impl Updates {
    /// Room for the instruments `0 .. limit`, and `burst` fresh packets per turn.
    pub(super) fn new(limit: u16, burst: usize, output: OutId) -> Updates {
        Updates {
            bytes: Vec::with_capacity(usize::from(limit) * UPDATE_LEN_BYTES),
            places: vec![NONE; usize::from(limit)].into_boxed_slice(),
            received_ns: 0,
            told: 0,
            overtaken: 0,
            fresh_left: burst,
            burst,
            output,
        }
    }

    /// Memory that [`Updates::new`] allocates, in bytes.
    pub(super) fn memory_bytes(limit: u16) -> u64 {
        u64::from(limit) * (UPDATE_LEN_BYTES + size_of::<u16>()) as u64
    }

    /// Adds an update, in place of an earlier one of the same instrument. Returns false for an
    /// instrument beyond the limit.
    #[inline]
    #[must_use]
    pub(super) fn put(&mut self, update: Update) -> bool {
        let Some(place) = self.places.get_mut(usize::from(update.instrument)) else { return false };
        let bytes = update.to_bytes();
        let (records, _) = self.bytes.as_chunks_mut::<UPDATE_LEN_BYTES>();
        match records.get_mut(usize::from(*place)) {
            Some(earlier) => {
                let reset = earlier[2] | bytes[2];
                *earlier = bytes;
                earlier[2] = reset;
                self.overtaken += 1;
            }
            None => {
                *place = records.len() as u16;
                self.bytes.extend_from_slice(&bytes);
            }
        }
        true
    }

    /// Records sent to the strategy.
    pub(super) fn told(&self) -> u64 {
        self.told
    }

    /// Records replaced by a later one of the same instrument.
    pub(super) fn overtaken(&self) -> u64 {
        self.overtaken
    }

    /// The number of instruments with a waiting update.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() / UPDATE_LEN_BYTES
    }

    /// Sends waiting updates, first in `packet`, which caused the last of them.
    #[inline]
    pub(super) fn send(&mut self, mut packet: Packet, out: &mut Outputs<'_>) {
        if self.bytes.is_empty() {
            return;
        }
        self.received_ns = packet.timestamp();
        if out.room(self.output) > 0 && self.fill(&mut packet) {
            self.tell(packet, out);
        }
        if !self.bytes.is_empty() {
            self.send_fresh(out);
        }
    }

    /// Sends waiting updates at the start of an lcore's turn. Returns whether none is left.
    pub(super) fn turn(&mut self, out: &mut Outputs<'_>) -> bool {
        self.fresh_left = self.burst;
        self.send_fresh(out);
        self.bytes.is_empty()
    }

    /// Whether this turn has a fresh packet left.
    pub(super) fn has_fresh(&self) -> bool {
        self.fresh_left > 0
    }

    /// Takes one of this turn's fresh packets for another purpose. `None` if none is left.
    pub(super) fn take_fresh(&mut self, out: &mut Outputs<'_>) -> Option<Packet> {
        self.fresh_left = self.fresh_left.checked_sub(1)?;
        out.alloc()
    }

    /// Drops the waiting update of an instrument. Returns false if there is none.
    pub(super) fn forget(&mut self, instrument: u16) -> bool {
        let Some(place) = self.places.get_mut(usize::from(instrument)) else { return false };
        let at = usize::from(std::mem::replace(place, NONE)) * UPDATE_LEN_BYTES;
        if at >= self.bytes.len() {
            return false;
        }
        self.bytes.drain(at..at + UPDATE_LEN_BYTES);
        for record in self.bytes[at..].as_chunks::<UPDATE_LEN_BYTES>().0 {
            self.places[instrument_of(record)] -= 1;
        }
        true
    }

    /// Drops all waiting updates, as they may no longer be true. Calls `of` for each, with its
    /// instrument and `reset`, and returns their number.
    pub(super) fn clear(&mut self, mut of: impl FnMut(u16, bool)) -> u64 {
        let cleared = self.len() as u64;
        for record in self.bytes.as_chunks::<UPDATE_LEN_BYTES>().0 {
            of(u16::from_le_bytes([record[0], record[1]]), record[2] != 0);
        }
        self.bytes.clear();
        self.places.fill(NONE);
        cleared
    }

    /// Sends waiting updates in fresh packets.
    pub(super) fn send_fresh(&mut self, out: &mut Outputs<'_>) {
        while self.fresh_left > 0 && !self.bytes.is_empty() && out.room(self.output) > 0 {
            let Some(mut packet) = out.alloc() else { return };
            self.fresh_left -= 1;
            packet.set_timestamp(self.received_ns);
            if !self.fill(&mut packet) {
                return;
            }
            self.tell(packet, out);
        }
    }

    fn tell(&mut self, packet: Packet, out: &mut Outputs<'_>) {
        self.told += (packet.len() / UPDATE_LEN_BYTES) as u64;
        // There was room; a refusal all the same is counted there.
        let _sent = out.send(self.output, packet);
    }

    /// Moves as many updates into a packet as fit. Returns false if none does.
    #[inline]
    fn fill(&mut self, packet: &mut Packet) -> bool {
        self.take(packet.capacity(), |records| packet.fill(records))
    }

    #[inline]
    fn take(&mut self, room_bytes: usize, give: impl FnOnce(&[u8]) -> bool) -> bool {
        let fits = (room_bytes / UPDATE_LEN_BYTES).min(self.len());
        let (gone, rest) = self.bytes.split_at(fits * UPDATE_LEN_BYTES);
        if fits == 0 || !give(gone) {
            return false;
        }
        gone.as_chunks().0.iter().for_each(|record| self.places[instrument_of(record)] = NONE);
        rest.as_chunks().0.iter().for_each(|record| self.places[instrument_of(record)] -= fits as u16);
        self.bytes.drain(..fits * UPDATE_LEN_BYTES);
        true
    }
}

#[inline]
fn instrument_of(record: &[u8; UPDATE_LEN_BYTES]) -> usize {
    usize::from(u16::from_le_bytes([record[0], record[1]]))
}

#[cfg(test)]
impl Updates {
    /// Takes all waiting updates.
    pub(super) fn drain(&mut self) -> Vec<Update> {
        taken(self, usize::MAX)
    }
}

#[cfg(test)]
fn taken(updates: &mut Updates, room_bytes: usize) -> Vec<Update> {
    let mut taken = Vec::new();
    updates.take(room_bytes, |records| {
        assert!(records.len() <= room_bytes);
        taken.extend(records.as_chunks().0.iter().map(Update::from_bytes));
        true
    });
    taken
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
        let mut updates = Updates::new(6, 32, OutId(0));
        assert!(updates.put(update(4, 1)) && updates.put(update(5, 2)) && updates.put(update(4, 3)));
        assert!(!updates.put(update(6, 4)), "there are six");
        assert_eq!(taken(&mut updates, 512), [Update { reset: true, ..update(4, 3) }, update(5, 2)]);
        assert_eq!((updates.len(), taken(&mut updates, 512)), (0, vec![]));
    }

    #[test]
    fn what_does_not_fit_one_packet_goes_into_the_next() {
        let mut updates = Updates::new(1_000, 32, OutId(0));
        // As many updates as a frame may cause, more than two packets of 512 bytes hold.
        (0..64).for_each(|instrument| assert!(updates.put(update(instrument, 2))));
        let first = taken(&mut updates, 512);
        assert_eq!(first, Vec::from_iter((0..6).map(|instrument| update(instrument, 2))));
        // A waiting update is overtaken by its successor; a sent one comes anew.
        assert!(updates.put(update(63, 3)) && updates.put(update(0, 3)));
        assert_eq!(taken(&mut updates, UPDATE_LEN_BYTES - 1), []);
        let rest = taken(&mut updates, 1 << 20);
        let wanted = (6..63).map(|instrument| update(instrument, 2)).chain([update(63, 3), update(0, 3)]);
        assert_eq!(rest, Vec::from_iter(wanted));
        assert!(updates.put(update(7, 4)) && taken(&mut updates, 80) == [update(7, 4)]);
    }
}
