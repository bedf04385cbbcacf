//! A spread: one output of a stage that leads to several places (`[spread.NAME]` in a plan).
//!
//! By key, a packet goes to the place of its mark ([`Packet::mark`](verbline_mem::Packet::mark)):
//! [`place_of_key`] is the mapping, the same in every process as long as the number of places stays
//! the same. In turn, a packet goes to the next place with room. As copies, it goes to the first
//! place, and a copy from the stage's pool to each of the others. [`Outputs`](crate::Outputs) knows
//! which sinks are full.

use std::cell::Cell;

use verbline_mem::{Batch, Packet};
use verbline_plan::SpreadBy;

use crate::ports::sink::Sink;

/// The place of a key, from 0.
///
/// The key is mixed first, so that keys in a row, multiples of a power of two, and keys that differ
/// in few bits spread evenly: the 128 bits of its product with an odd constant are folded (as in
/// wyhash), twice. The place is the high half of the product of that and the number of places,
/// which takes no division.
///
/// # Panics
/// If there are no places.
#[inline]
#[must_use]
pub fn place_of_key(key: u64, places: usize) -> usize {
    assert!(places > 0, "a key belongs to one of at least one place");
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let mixed = fold(fold(key ^ 0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB), 0x8EBC_6AF0_9C88_C6E3);
    ((u128::from(mixed) * places as u128) >> 64) as usize
}

/// The rule and the places of an output that leads to several places.
#[derive(Debug)]
pub(crate) struct Spread {
    pub(super) by: SpreadBy,
    /// Indices of sinks, at least one.
    pub(super) places: Box<[u16]>,
    /// The next place in turn. Each output of each stage has its own.
    next: Cell<usize>,
}

impl Spread {
    pub(crate) fn new(by: SpreadBy, places: Box<[u16]>) -> Spread {
        assert!(!places.is_empty(), "a plan gives a spread a place");
        Spread { by, places, next: Cell::new(0) }
    }

    pub(super) fn places(&self) -> &[u16] {
        &self.places
    }

    /// Deals a batch out by key to `N` places, if the spread has `N` distinct places, none drops
    /// its oldest, and each has room for the whole batch.
    #[inline]
    pub(super) fn deal_by_key<const N: usize>(&self, sinks: &mut [Sink], batch: &mut Batch) -> bool {
        let Ok(places) = <&[u16; N]>::try_from(&*self.places) else { return false };
        let Ok(sinks) = sinks.get_disjoint_mut(places.map(usize::from)) else { return false };
        if sinks.iter().any(|sink| sink.displaces()) {
            return false;
        }
        batch.deal(sinks.map(|sink| &mut sink.batch), |packet| place_of_key(packet.mark(), N))
    }

    /// The sink of a packet's key.
    #[inline]
    pub(super) fn by_key(&self, packet: &Packet) -> usize {
        usize::from(self.places[place_of_key(packet.mark(), self.places.len())])
    }

    /// The sink in turn, or the next one after it with room; the sink in turn if none has room.
    #[inline]
    pub(super) fn in_turn(&self, room: impl Fn(usize) -> usize) -> usize {
        let places = self.places.len();
        let mut at = self.next.get();
        for _ in 0..places {
            let next = if at + 1 == places { 0 } else { at + 1 };
            let sink = usize::from(self.places[at]);
            if room(sink) > 0 {
                self.next.set(next);
                return sink;
            }
            at = next;
        }
        usize::from(self.places[self.next.get()])
    }

    /// The number of packets that the spread takes now without a drop, with any marks.
    pub(super) fn room(&self, room: impl Fn(usize) -> usize) -> usize {
        let rooms = self.places.iter().map(|place| room(usize::from(*place)));
        match self.by {
            SpreadBy::RoundRobin => rooms.fold(0, usize::saturating_add),
            SpreadBy::Key | SpreadBy::Copy => rooms.min().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the keys of each place, and compares the counts with an even share.
    #[track_caller]
    fn even(keys: impl Iterator<Item = u64>, places: usize) {
        let mut counts = vec![0_u64; places];
        keys.for_each(|key| counts[place_of_key(key, places)] += 1);
        let share = counts.iter().sum::<u64>() as f64 / places as f64;
        // Five standard deviations of a binomial count.
        let off = 5.0 * share.sqrt();
        assert!(counts.iter().all(|count| (*count as f64 - share).abs() < off), "{counts:?}, {share} each");
    }

    #[test]
    fn keys_of_any_pattern_spread_evenly() {
        for places in [1, 2, 3, 5, 8, 64] {
            even(0..100_000, places);
            even((0..100_000).map(|key| key << 12), places);
            even((0..100_000).map(|key| key << 44), places);
            even((0..100_000).map(|key| u64::MAX - key), places);
            // IPv4 addresses and ports of one /24.
            even((0..100_000).map(|key| (0x0A00_0000 + (key & 0xFF)) << 16 | key >> 8), places);
        }
    }

    /// Stored state, and clients that compute the place themselves, outlive a release.
    #[test]
    fn where_a_key_belongs_never_changes() {
        let places: Vec<usize> = [0, 1, 2, 3, 0xFFFF, 1 << 32, u64::MAX].map(|key| place_of_key(key, 1000)).into();
        assert_eq!(places, [645, 817, 783, 955, 500, 855, 961]);
    }
}
