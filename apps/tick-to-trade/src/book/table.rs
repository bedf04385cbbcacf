//! Live orders by reference number: open addressing, sized up front, at most half full.
//!
//! Linear probing with backward-shift deletion: no tombstones, so a table that has run all day probes as short as a fresh
//! one. Reference numbers come from the wire, hence the multiplication: neighbours spread, and a feed cannot fill one run by
//! counting upwards.

/// What the book keeps of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) price_e4: u32,
    /// Never 0 for a live order.
    pub(super) shares: u32,
    /// The book's index times two, plus the side.
    pub(super) book_side: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    reference: u64,
    /// `shares` 0 marks a free slot.
    order: Order,
}

const FREE: Slot = Slot { reference: 0, order: Order { price_e4: 0, shares: 0, book_side: 0 } };
const _: () = assert!(size_of::<Slot>() == 24);

pub(super) struct OrderTable {
    slots: Box<[Slot]>,
    /// Turns a 64-bit hash into a slot's index.
    shift: u32,
    len: usize,
    capacity: usize,
}

impl OrderTable {
    pub(super) fn new(capacity: usize) -> Self {
        let slots = (capacity * 2).next_power_of_two().max(16);
        Self { slots: vec![FREE; slots].into_boxed_slice(), shift: 64 - slots.trailing_zeros(), len: 0, capacity }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// The slot of an order.
    #[inline]
    pub(super) fn find(&self, reference: u64) -> Option<usize> {
        let slot = self.probe(reference);
        (self.slots[slot].order.shares != 0).then_some(slot)
    }

    #[inline]
    pub(super) fn at(&mut self, slot: usize) -> &mut Order {
        &mut self.slots[slot].order
    }

    /// The caller has checked that there is room and that the reference is new.
    #[inline]
    pub(super) fn insert(&mut self, reference: u64, order: Order) {
        debug_assert!(order.shares > 0 && !self.is_full());
        let slot = self.probe(reference);
        debug_assert!(self.slots[slot].order.shares == 0, "the caller checks for duplicates");
        self.slots[slot] = Slot { reference, order };
        self.len += 1;
    }

    /// Frees a slot and closes the run behind it.
    #[inline]
    pub(super) fn remove(&mut self, slot: usize) {
        let mask = self.slots.len() - 1;
        let mut hole = slot;
        let mut next = (hole + 1) & mask;
        while self.slots[next].order.shares != 0 {
            // An entry may move back into the hole unless its home lies after the hole.
            let home = self.home(self.slots[next].reference);
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[hole] = FREE;
        self.len -= 1;
    }

    /// The slot that holds the reference, or the free one where it belongs. Half of the slots are free, so it ends.
    #[inline]
    fn probe(&self, reference: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.home(reference);
        loop {
            let here = &self.slots[slot & mask];
            if here.order.shares == 0 || here.reference == reference {
                return slot & mask;
            }
            slot += 1;
        }
    }

    #[inline]
    fn home(&self, reference: u64) -> usize {
        // 2^64 / golden ratio (Knuth, The Art of Computer Programming 6.4, multiplicative hashing).
        (reference.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn behaves_like_a_map(ops in prop::collection::vec((any::<bool>(), 0u64..40), 0..400)) {
            let mut table = OrderTable::new(16);
            let mut map = HashMap::new();
            for (step, (adds, key)) in ops.into_iter().enumerate() {
                // Multiples of the hash's inverse collide in their homes.
                let reference = key.wrapping_mul(0xf1de_83e1_9937_733d).wrapping_mul(1 + (key & 1));
                match (table.find(reference), adds) {
                    (None, true) if !table.is_full() => {
                        let order = Order { price_e4: step as u32, shares: 1, book_side: 0 };
                        table.insert(reference, order);
                        map.insert(reference, order);
                    }
                    (Some(slot), false) => {
                        prop_assert_eq!(Some(*table.at(slot)), map.remove(&reference));
                        table.remove(slot);
                    }
                    (found, _) => prop_assert_eq!(found.is_some(), map.contains_key(&reference)),
                }
                prop_assert_eq!(table.len(), map.len());
                for (&reference, order) in &map {
                    let slot = table.find(reference);
                    prop_assert!(slot.is_some());
                    prop_assert_eq!(&*table.at(slot.unwrap()), order);
                }
            }
        }
    }
}
