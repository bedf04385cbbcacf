//! The entries of a shared receive queue, which may grow without moving entries.
//!
//! Guarantees: a sender reads an entry without a lock while others are added, since no entry moves.
//! An index that was never added reads some entry of the queue, like a masked one.

use crate::objects::device::QP_WR_MAX;
use crate::queues::wqe::{Wqe, WqeRing};
use std::sync::OnceLock;

/// Enough for a queue of one entry to grow to the largest size.
const ADDED_MAX: usize = QP_WR_MAX.ilog2() as usize + 1;

#[derive(Debug)]
pub(crate) struct Entries {
    first: WqeRing,
    /// A power of two.
    first_count: u64,
    /// Each has as many entries as all before it.
    added: [OnceLock<WqeRing>; ADDED_MAX],
    max_sge: u32,
}

impl Entries {
    /// Room for `count` entries, of up to `max_sge` elements.
    pub(crate) fn new(count: u32, max_sge: u32) -> Entries {
        let count = count.next_power_of_two();
        let first = WqeRing::new(count as usize, max_sge);
        Entries { first, first_count: count.into(), added: [const { OnceLock::new() }; ADDED_MAX], max_sge }
    }

    /// Grows to `count` entries in all, if there are fewer. Allocates.
    pub(crate) fn grow(&self, count: u32) {
        let mut there = self.first_count;
        for added in &self.added {
            if there >= count.into() {
                return;
            }
            added.get_or_init(|| WqeRing::new(there as usize, self.max_sge));
            there *= 2;
        }
    }

    /// The ring of an entry. A ring masks greater indices: all rings but the first are as long as
    /// all before them, so their entries begin at a multiple of their length.
    #[inline(always)]
    pub(crate) fn ring(&self, index: u64) -> &WqeRing {
        if index < self.first_count { &self.first } else { self.ring_beyond(index) }
    }

    #[cold]
    fn ring_beyond(&self, index: u64) -> &WqeRing {
        let at = (index / self.first_count).ilog2() as usize;
        self.added.get(at).and_then(OnceLock::get).unwrap_or(&self.first)
    }

    #[inline(always)]
    pub(crate) fn wqe(&self, index: u64) -> Wqe<'_> {
        self.ring(index).wqe(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_entry_has_a_place_of_its_own_and_keeps_it() {
        for (from, to) in [(1, 9), (4, 200), (5, 8), (64, 64), (3, QP_WR_MAX)] {
            let entries = Entries::new(from, 1);
            let place = |index: u64| std::ptr::from_ref(entries.wqe(index).element(0)) as usize;
            let before: Vec<usize> = (0..from.into()).map(place).collect();
            entries.grow(to);
            let all: Vec<usize> = (0..to.into()).map(place).collect();
            assert_eq!(all[..from as usize], before, "{from} to {to}");
            assert_eq!(HashSet::<usize>::from_iter(all).len(), to as usize, "{from} to {to}");
        }
    }

    #[test]
    fn an_index_that_was_never_added_reads_an_entry_that_is_there() {
        let entries = Entries::new(4, 1);
        assert_eq!(entries.wqe(1 << 40).wr_id(), 0);
        entries.grow(QP_WR_MAX);
        assert_eq!(entries.wqe(u64::MAX).wr_id(), 0);
    }
}
