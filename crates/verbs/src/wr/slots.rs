//! The packets that a queue holds: one slot for each work request that can be outstanding, used in
//! turn.

use std::mem::MaybeUninit;

use verbline_mem::{Batch, Packet};

/// The slots; their number is a power of two.
pub(crate) struct Slots {
    packets: Box<[Option<Packet>]>,
    /// The number of slots, minus 1.
    mask: u32,
}

impl Slots {
    /// Allocates at least `len` slots, at least 1.
    pub(crate) fn new(len: u32) -> Slots {
        let len = len.max(1).next_power_of_two();
        Slots { packets: std::iter::repeat_with(|| None).take(len as usize).collect(), mask: len - 1 }
    }

    /// The number of slots.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.mask + 1
    }

    /// The slot index of a position or a number.
    #[inline]
    pub(crate) fn slot(&self, position: u64) -> usize {
        (position & u64::from(self.mask)) as usize
    }

    /// The slot of a position, to put a packet into or take it out of.
    #[inline]
    pub(crate) fn at(&mut self, position: u64) -> &mut Option<Packet> {
        let slot = self.slot(position);
        // SAFETY: the slot is masked, and there are mask + 1 slots.
        unsafe { self.packets.get_unchecked_mut(slot) }
    }

    /// The slots from a position on, at most `count`, up to the end of the array.
    #[inline]
    pub(crate) fn stretch(&mut self, position: u64, count: u32) -> &mut [Option<Packet>] {
        let start = self.slot(position);
        let len = (self.packets.len() - start).min(count as usize);
        // SAFETY: the start is masked, there are mask + 1 slots, and `len` ends at their end.
        unsafe { self.packets.get_unchecked_mut(start..start + len) }
    }

    /// Puts a packet into its slot, which is free.
    #[inline]
    pub(crate) fn put(&mut self, position: u64, packet: Option<Packet>) {
        // Forgotten rather than dropped: the slot is free, so nothing needs a drop.
        let before = std::mem::replace(self.at(position), packet);
        debug_assert!(before.is_none());
        std::mem::forget(before);
    }

    /// How many of the `count` slots from `position` on are free before the first taken one.
    #[inline]
    pub(crate) fn free_run(&self, position: u64, count: usize) -> usize {
        let [first, second] = self.parts(position, count);
        let taken = |places: &[Option<Packet>]| places.iter().fold(false, |any, place| any | place.is_some());
        if taken(&self.packets[first.clone()]) | taken(&self.packets[second.clone()]) {
            return self.packets[first].iter().chain(&self.packets[second]).take_while(|place| place.is_none()).count();
        }
        count
    }

    /// Moves the first `count` packets of the batch into the slots from `position` on, which are
    /// free.
    #[inline(always)]
    pub(crate) fn take_front(&mut self, position: u64, batch: &mut Batch, count: usize) {
        let places = self.stretch(position, count as u32);
        let moved = places.len();
        move_front(batch, places);
        if moved < count {
            self.take_front_wrapped(batch, count - moved);
        }
    }

    #[cold]
    fn take_front_wrapped(&mut self, batch: &mut Batch, count: usize) {
        move_front(batch, &mut self.packets[..count]);
    }

    /// Returns all packets to their pools.
    pub(crate) fn clear(&mut self) {
        self.packets.fill_with(|| None);
    }

    /// The index ranges of the `count` slots from `position` on: up to the end of the array, and
    /// from its start.
    #[inline]
    fn parts(&self, position: u64, count: usize) -> [std::ops::Range<usize>; 2] {
        let (start, len) = (self.slot(position), self.packets.len());
        let count = count.min(len);
        let end = (start + count).min(len);
        [start..end, 0..count - (end - start)]
    }
}

/// Moves packets from the front of the batch into the slots, which are free.
#[inline]
fn move_front(batch: &mut Batch, places: &mut [Option<Packet>]) {
    debug_assert!(places.iter().all(Option::is_none));
    let (places, len) = (places.as_mut_ptr(), places.len());
    // SAFETY: borrowed from the slice of that length. An `Option<Packet>` has a packet's layout,
    // and a packet's bits are its `Some`; `None` needs no drop.
    let places = unsafe { std::slice::from_raw_parts_mut(places.cast::<MaybeUninit<Packet>>(), len) };
    let moved = batch.move_front(places);
    debug_assert_eq!(moved, len, "there is a packet for each place");
}
