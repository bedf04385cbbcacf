//! Looks up the slot of a connection by its queue pair's number.
//!
//! Hardware and the software RNIC number queue pairs in sequence, so that the low bits of live
//! numbers differ: the table is indexed by them, and compares the whole number. Where two collide,
//! the later one stands behind. Four places per connection keep such rows rare and short.

/// No queue pair has this number: they have 24 bits.
const NOBODY: u32 = u32::MAX;

/// The slots of live queue pairs.
#[derive(Debug)]
pub(crate) struct QpnTable {
    /// Numbers and slots. The length is a power of two, and at least half of the places are free.
    places: Box<[(u32, u32)]>,
}

impl QpnTable {
    pub(crate) fn new(connections: usize) -> QpnTable {
        let places = (connections * 4).next_power_of_two().max(4);
        QpnTable { places: vec![(NOBODY, 0); places].into_boxed_slice() }
    }

    #[inline]
    fn home(&self, qpn: u32) -> usize {
        qpn as usize & (self.places.len() - 1)
    }

    /// Returns the slot of a queue pair.
    #[inline]
    pub(crate) fn slot(&self, qpn: u32) -> Option<usize> {
        let mut at = self.home(qpn);
        loop {
            match self.places[at] {
                (known, slot) if known == qpn => return Some(slot as usize),
                (NOBODY, _) => return None,
                _ => at = (at + 1) & (self.places.len() - 1),
            }
        }
    }

    /// Adds an absent queue pair. The table must hold fewer than it was made for.
    pub(crate) fn insert(&mut self, qpn: u32, slot: usize) {
        let mut at = self.home(qpn);
        while self.places[at].0 != NOBODY {
            at = (at + 1) & (self.places.len() - 1);
        }
        self.places[at] = (qpn, slot as u32);
    }

    /// Removes a queue pair, and moves up the entries behind it.
    pub(crate) fn remove(&mut self, qpn: u32) {
        let mask = self.places.len() - 1;
        let mut hole = self.home(qpn);
        while self.places[hole].0 != qpn {
            if self.places[hole].0 == NOBODY {
                return;
            }
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.places[at];
            if next.0 == NOBODY {
                break;
            }
            // The entry may fill the hole if its home is not behind the hole.
            let from_home = at.wrapping_sub(self.home(next.0)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.places[hole] = next;
                hole = at;
            }
        }
        self.places[hole] = (NOBODY, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the table with a map, for numbers that collide on purpose.
        #[test]
        fn every_queue_pair_is_found_while_it_is_there(
            steps in prop::collection::vec((0u32..12, 0u32..4, any::<bool>()), 0..400)
        ) {
            let (mut table, mut oracle) = (QpnTable::new(16), HashMap::new());
            for (low, high, goes) in steps {
                let qpn = low | high << 6;
                match (goes, oracle.contains_key(&qpn)) {
                    (true, _) => {
                        oracle.remove(&qpn);
                        table.remove(qpn);
                    }
                    (false, false) if oracle.len() < 16 => {
                        oracle.insert(qpn, low as usize);
                        table.insert(qpn, low as usize);
                    }
                    _ => {}
                }
                for low in 0..12 {
                    for high in 0..4 {
                        let qpn = low | high << 6;
                        prop_assert_eq!(table.slot(qpn), oracle.get(&qpn).copied());
                    }
                }
            }
        }
    }
}
