//! Live orders by reference number: a hash table of cache lines, sized up front, with four orders
//! of 16 bytes per line.
//!
//! Reference numbers count upwards through the day, so four consecutive ones share a line: the
//! table takes up one new line every four adds. A multiplication picks the line, so that lines
//! spread evenly at any stride of the numbers. All four orders of a line are compared at once;
//! finding the match, or a free slot, takes no branch.
//!
//! An order whose line is full goes to the next line with room and marks the lines that it passed;
//! a search goes on from a marked line. A removal from a marked line moves one such order back, or
//! clears the mark if there is none. There are no tombstones, and no order lies further than
//! [`REACH_LINES`] from home: for any numbers, each operation touches a bounded number of lines,
//! and a number without room within them is refused.

use verbline::mem::prefetch;

/// The stored part of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    /// Never 0 for a live order.
    pub(super) shares: u32,
    /// Its price level, which the books split into book, side and place.
    pub(super) level: u32,
}

#[derive(Clone, Copy)]
struct Slot {
    reference: u64,
    /// `shares` 0 marks a free slot.
    order: Order,
}

const FREE: Slot = Slot { reference: 0, order: Order { shares: 0, level: 0 } };
const LINE_SLOTS: usize = 4;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([Slot; LINE_SLOTS]);

const _: () = assert!(size_of::<Line>() == 64);

/// Lines in which an order may lie, counted from its home line, which is the first. In the fullest
/// table, numbers that are not made to collide stay within a tenth of it.
pub(super) const REACH_LINES: usize = 256;

pub(super) struct OrderTable {
    lines: Box<[Line]>,
    /// One bit per line: an order whose home is this line or an earlier one may lie further on.
    passed: Box<[u64]>,
    /// Turns a 64-bit hash into a line's index.
    shift: u32,
    len: usize,
    capacity: usize,
}

/// The slot of a reference, or a free one for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Its slot.
    Taken(usize),
    /// A free slot for it.
    Free(usize),
    /// No slot within reach is free.
    Crowded,
}

impl OrderTable {
    /// Makes room for `capacity` orders, which take up at most three quarters of the slots.
    pub(super) fn new(capacity: usize) -> Self {
        let lines = Self::lines(capacity);
        Self {
            lines: vec![Line([FREE; LINE_SLOTS]); lines].into_boxed_slice(),
            passed: vec![0; lines.div_ceil(64)].into_boxed_slice(),
            shift: 64 - lines.trailing_zeros(),
            len: 0,
            capacity,
        }
    }

    /// Memory that a table of this capacity allocates, in bytes.
    pub(super) fn memory_bytes(capacity: usize) -> u64 {
        let lines = Self::lines(capacity);
        (lines * size_of::<Line>() + lines.div_ceil(64) * size_of::<u64>()) as u64
    }

    /// The number of lines, at least two: a shift by all 64 bits would be none.
    fn lines(capacity: usize) -> usize {
        (capacity + capacity / 3).div_ceil(LINE_SLOTS).next_power_of_two().max(2)
    }

    /// Removes all orders.
    pub(super) fn clear(&mut self) {
        self.lines.fill(Line([FREE; LINE_SLOTS]));
        self.passed.fill(0);
        self.len = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Starts loading the line where a reference most likely is or belongs.
    #[inline(always)]
    pub(super) fn prefetch(&self, reference: u64) {
        prefetch(self.line(self.home(reference)));
    }

    /// Finds the slot of a reference, or a free one for it.
    #[inline]
    pub(super) fn place(&self, reference: u64) -> Place {
        let home = self.home(reference);
        let (found, free) = self.line(home).look_for(reference);
        if found != 0 {
            return Place::Taken(slot(home, found));
        }
        if free != 0 && !self.is_passed(home) {
            return Place::Free(slot(home, free));
        }
        self.place_beyond(home, reference)
    }

    /// The slot of an order.
    #[inline]
    pub(super) fn find(&self, reference: u64) -> Option<usize> {
        match self.place(reference) {
            Place::Taken(slot) => Some(slot),
            Place::Free(_) | Place::Crowded => None,
        }
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> usize {
        self.lines.len() * LINE_SLOTS
    }

    /// The live order in a slot, with its reference.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<(u64, Order)> {
        let Slot { reference, order } = self.lines[slot / LINE_SLOTS].0[slot % LINE_SLOTS];
        (order.shares > 0).then_some((reference, order))
    }

    #[inline]
    pub(super) fn at(&mut self, slot: usize) -> &mut Order {
        &mut self.slot_mut(slot).order
    }

    /// Fills the free slot that [`OrderTable::place`] found for this reference; the caller has
    /// checked that the table is not full.
    #[inline]
    pub(super) fn fill(&mut self, slot: usize, reference: u64, order: Order) {
        debug_assert!(order.shares > 0 && self.place(reference) == Place::Free(slot));
        *self.slot_mut(slot) = Slot { reference, order };
        self.len += 1;
        let home = self.home(reference);
        if slot / LINE_SLOTS != home {
            self.mark(home, slot / LINE_SLOTS);
        }
    }

    /// Frees a slot. Other orders may move.
    #[inline]
    pub(super) fn remove(&mut self, slot: usize) {
        *self.slot_mut(slot) = FREE;
        self.len -= 1;
        if self.is_passed(slot / LINE_SLOTS) {
            self.fetch_back(slot);
        }
    }

    /// Like [`OrderTable::place`], for a home line that is full or passed.
    #[cold]
    fn place_beyond(&self, home: usize, reference: u64) -> Place {
        let mut place = Place::Crowded;
        let mut may_follow = true;
        for line in self.reach(home) {
            let (found, free) = self.line(line).look_for(reference);
            if may_follow && found != 0 {
                return Place::Taken(slot(line, found));
            }
            if place == Place::Crowded && free != 0 {
                place = Place::Free(slot(line, free));
            }
            may_follow &= self.is_passed(line);
            if !may_follow && place != Place::Crowded {
                break;
            }
        }
        place
    }

    /// Marks the lines between an order's home and its `line` as passed.
    #[cold]
    fn mark(&mut self, home: usize, line: usize) {
        for passed in self.reach(home).take_while(|&passed| passed != line) {
            self.passed[passed / 64] |= 1 << (passed % 64);
        }
    }

    /// Moves an order that passed this free slot's line into the slot, or clears the line's mark.
    #[cold]
    fn fetch_back(&mut self, free: usize) {
        let line = free / LINE_SLOTS;
        let mut before = line;
        for behind in self.reach(line).skip(1) {
            if !self.is_passed(before) {
                break;
            }
            for at in behind * LINE_SLOTS..(behind + 1) * LINE_SLOTS {
                let moving = *self.slot_mut(at);
                let home = self.home(moving.reference);
                if moving.order.shares != 0 && self.distance(home, line) < self.distance(home, behind) {
                    *self.slot_mut(free) = moving;
                    *self.slot_mut(at) = FREE;
                    return;
                }
            }
            before = behind;
        }
        self.passed[line / 64] &= !(1 << (line % 64));
    }

    /// The lines where an order of this home may lie, in search order.
    fn reach(&self, home: usize) -> impl Iterator<Item = usize> + use<> {
        let lines = self.lines.len();
        (home..home + REACH_LINES.min(lines)).map(move |line| line & (lines - 1))
    }

    /// Lines from one to another, upwards and around.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.lines.len() - 1)
    }

    #[inline(always)]
    fn home(&self, reference: u64) -> usize {
        // 2^64 / golden ratio (Knuth, The Art of Computer Programming 6.4, multiplicative hashing).
        ((reference / LINE_SLOTS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    #[inline(always)]
    fn is_passed(&self, line: usize) -> bool {
        self.passed[line / 64] >> (line % 64) & 1 != 0
    }

    #[inline(always)]
    fn line(&self, line: usize) -> &Line {
        &self.lines[line]
    }

    #[inline(always)]
    fn slot_mut(&mut self, slot: usize) -> &mut Slot {
        &mut self.lines[slot / LINE_SLOTS].0[slot % LINE_SLOTS]
    }
}

impl Line {
    /// Bit masks of slots: the live order with this reference, and the free slots.
    #[inline(always)]
    fn look_for(&self, reference: u64) -> (u32, u32) {
        let (mut same, mut free) = (0, 0);
        for (at, slot) in self.0.iter().enumerate() {
            same |= u32::from(slot.reference == reference) << at;
            free |= u32::from(slot.order.shares == 0) << at;
        }
        (same & !free, free)
    }
}

/// The first slot among a line's bits.
#[inline(always)]
fn slot(line: usize, bits: u32) -> usize {
    line * LINE_SLOTS + bits.trailing_zeros() as usize % LINE_SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// A reference number divided by four, with one of four homes, for any key and table size.
    fn meeting(key: u64) -> u64 {
        // The multiplier's inverse gives hashes that count upwards: their upper bits are equal,
        // except for two that are cut off.
        key.wrapping_mul(0xf1de_83e1_9937_733d) & (u64::MAX / 4)
    }

    fn check(table: &mut OrderTable, map: &HashMap<u64, Order>) -> Result<(), TestCaseError> {
        prop_assert_eq!(table.len(), map.len());
        for (&reference, order) in map {
            let slot = table.find(reference);
            prop_assert!(slot.is_some(), "{} is lost", reference);
            prop_assert_eq!(&*table.at(slot.unwrap()), order);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(
            capacity in 1usize..70,
            ops in prop::collection::vec((any::<bool>(), 0u64..90, 0u8..3), 0..400),
        ) {
            let mut table = OrderTable::new(capacity);
            let mut map = HashMap::new();
            for (step, (adds, key, kind)) in ops.into_iter().enumerate() {
                // Numbers that count upwards as in a feed, numbers that collide, and a spread with
                // 0 and the greatest number.
                let reference = match kind {
                    0 => key,
                    1 => meeting(key) * 4,
                    _ => (key % 4).wrapping_sub(2),
                };
                match (table.place(reference), adds) {
                    (Place::Free(slot), true) if !table.is_full() => {
                        prop_assert!(!map.contains_key(&reference));
                        let order = Order { shares: 1 + step as u32, level: key as u32 };
                        table.fill(slot, reference, order);
                        map.insert(reference, order);
                    }
                    (Place::Taken(slot), false) => {
                        prop_assert_eq!(Some(*table.at(slot)), map.remove(&reference));
                        table.remove(slot);
                    }
                    (found, _) => {
                        prop_assert_ne!(found, Place::Crowded, "all lines are within reach");
                        prop_assert_eq!(matches!(found, Place::Taken(_)), map.contains_key(&reference));
                    }
                }
                check(&mut table, &map)?;
            }
            // Emptied, the table is as new: no mark is left for a search to follow for ever.
            for reference in map.into_keys() {
                let slot = table.find(reference).unwrap();
                table.remove(slot);
            }
            prop_assert_eq!(table.len(), 0);
            prop_assert!(table.lines.iter().all(|line| line.look_for(0) == (0, 0b1111)));
        }
    }

    #[test]
    fn numbers_that_count_upwards_fill_it_to_capacity() {
        for first in [0, 1 << 40, u64::MAX - 50_000] {
            for stride in [1, 2, 3, 4, 64, 1 << 20] {
                let mut table = OrderTable::new(20_000);
                let numbers = || (0..20_000u64).map(|n| first.wrapping_add(n.wrapping_mul(stride)));
                for reference in numbers() {
                    let Place::Free(slot) = table.place(reference) else { panic!("{reference}: {stride}") };
                    table.fill(slot, reference, Order { shares: 1, level: 0 });
                }
                assert!(table.is_full());
                assert!(numbers().all(|reference| table.find(reference).is_some()));
            }
        }
    }

    #[test]
    fn numbers_made_to_collide_are_refused_beyond_the_reach() {
        let mut table = OrderTable::new(20_000);
        let mut held = Vec::new();
        for key in 0..10_000 {
            let reference = meeting(key) * 4;
            match table.place(reference) {
                Place::Free(slot) => {
                    table.fill(slot, reference, Order { shares: 1, level: 0 });
                    held.push(reference);
                }
                place => assert_eq!(place, Place::Crowded),
            }
        }
        assert!(held.len() >= REACH_LINES * LINE_SLOTS && held.len() < 10_000, "{} held", held.len());
        for (number, &reference) in held.iter().enumerate() {
            let slot = table.find(reference).unwrap();
            table.remove(slot);
            assert_eq!(table.find(reference), None);
            assert!(held[number + 1..].iter().step_by(97).all(|&reference| table.find(reference).is_some()));
        }
        assert_eq!(table.len(), 0);
    }
}
