//! From a queue pair's number to the slot of its connection.
//!
//! Numbers are given out in sequence, by hardware and by the software RNIC, so that the low bits of
//! those that live together differ: the table is indexed by them, and the whole number is compared.
//! Where two collide, the later one stands behind. Four places for each connection keep that rare
//! and short.

/// No queue pair's: they have 24 bits.
const NOBODY: u32 = u32::MAX;

/// The slots of the queue pairs that live.
#[derive(Debug)]
pub(crate) struct QpnTable {
    /// Number and slot. Its length is a power of two, and at least half of it is nobody's.
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

    /// The slot of a queue pair.
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

    /// A queue pair that is not there, of fewer than a table of this size is for.
    pub(crate) fn insert(&mut self, qpn: u32, slot: usize) {
        let mut at = self.home(qpn);
        while self.places[at].0 != NOBODY {
            at = (at + 1) & (self.places.len() - 1);
        }
        self.places[at] = (qpn, slot as u32);
    }

    /// Takes a queue pair out, and moves those up that stand behind it.
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
            // It may stand in the hole if its home is not behind it.
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
        /// Numbers that collide on purpose, against a map.
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
