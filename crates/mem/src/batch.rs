//! A batch: an array of packets that never grows.
//!
//! Packets are 8-byte handles, so moving a batch is copying that many words. What does not fit
//! stays with the caller. Dropping or clearing a batch returns its packets in bulk: one copy into
//! the bound cache, or one compare-and-swap on the free list, for each run of one pool's packets.

use std::mem::{self, MaybeUninit};
use std::slice;
use std::vec;

use crate::cache_array;
use crate::handles::Handles;
use crate::packet::Packet;
use crate::shared::RawPacket;

/// Up to `capacity()` packets, in order.
///
/// ```
/// use verbline_mem::Batch;
/// # use verbline_mem::{PageChoice, PageSize, Pool, PoolSpec, Region, RegionSpec};
/// # let spec = PoolSpec { name: "t".into(), packets: 64, data_bytes: 64, headroom_bytes: 0 };
/// # let region = Region::map(&RegionSpec { name: "t".into(), len_bytes: Pool::required_bytes(&spec),
/// #     pages: PageChoice::Exactly(PageSize::Small4K), lock: false })?;
/// # let pool = Pool::new(region, spec)?;
/// # let cache = pool.cache(32);
/// let mut burst = Batch::with_capacity(32);
/// assert_eq!(cache.get_bulk(&mut burst, 32), 32);
///
/// burst.retain_mut(|packet| packet.fill(b"tick"));
/// let mut next = Batch::with_capacity(20);
/// assert_eq!(next.append(&mut burst), 20); // as many as fit; 12 stay
/// burst.clear();
/// assert_eq!(pool.account().held, 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Batch {
    /// Never longer than `capacity`, so it never reallocates.
    pub(crate) packets: Vec<Packet>,
    capacity: usize,
    handles: Handles,
}

impl Batch {
    /// An empty batch; the only allocation of its life.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { packets: Vec::with_capacity(capacity), capacity, handles: Handles::new() }
    }

    /// Packets in it.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// There are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Packets that it can hold.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Packets that it can still take.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.packets.len()
    }

    /// There is no room.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// Adds a packet at the end.
    ///
    /// # Errors
    /// Gives the packet back when the batch is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.is_full() {
            return Err(packet);
        }
        self.packets.push(packet);
        Ok(())
    }

    /// Adds packets from the iterator while there is room; gives how many. Pass `iter.by_ref()` to
    /// keep the rest, which is not asked for.
    pub fn push_iter(&mut self, packets: impl IntoIterator<Item = Packet>) -> usize {
        let before = self.len();
        // `Vec::extend` would reserve by the iterator's hint; `take` bounds that to the room.
        self.packets.extend(packets.into_iter().take(self.room()));
        self.len() - before
    }

    /// Adds packets as long as `next` gives one, at most `n` and what there is room for; gives how
    /// many. It is asked with 0, 1, 2, ….
    #[inline]
    pub fn push_up_to(&mut self, n: usize, mut next: impl FnMut(usize) -> Option<Packet>) -> usize {
        /// Takes in what was written, also if `next` panics.
        struct Written<'a> {
            batch: &'a mut Batch,
            count: usize,
        }
        impl Drop for Written<'_> {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: `count` slots behind the packets were written.
                unsafe { self.batch.assume(self.count) };
            }
        }
        let n = n.min(self.room());
        let first = self.packets.spare_capacity_mut().as_mut_ptr();
        let mut written = Written { batch: self, count: 0 };
        let mut push = |count: &mut usize| {
            let Some(packet) = next(*count) else { return false };
            // SAFETY: below the room, which the vector has allocated behind its packets; the batch
            // is borrowed, so that they stay there.
            unsafe { first.add(*count).write(MaybeUninit::new(packet)) };
            *count += 1;
            true
        };
        // Four in a row, which halves what the loop itself takes.
        while n - written.count >= 4 {
            for _ in 0..4 {
                if !push(&mut written.count) {
                    return written.count;
                }
            }
        }
        while written.count < n && push(&mut written.count) {}
        written.count
    }

    /// Takes the last packet.
    #[inline]
    #[must_use = "dropping it gives it back: `truncate` does that in bulk"]
    pub fn pop(&mut self) -> Option<Packet> {
        self.packets.pop()
    }

    /// Exchanges all that two batches hold, and their capacities.
    #[inline]
    pub fn swap(&mut self, other: &mut Batch) {
        // Not the handles' means, which are the machine's.
        mem::swap(&mut self.packets, &mut other.packets);
        mem::swap(&mut self.capacity, &mut other.capacity);
    }

    /// Moves packets from the front of `from` to the end of this batch, as many as fit, in order;
    /// gives how many.
    #[inline]
    pub fn append(&mut self, from: &mut Batch) -> usize {
        if self.is_empty() && self.capacity == from.capacity {
            // Two batches of one size change places, whatever they hold: no packet is copied.
            mem::swap(&mut self.packets, &mut from.packets);
            return self.len();
        }
        self.append_by_copy(from)
    }

    /// [`Batch::append`] of some: apart, so that the usual case is small enough to be part of its
    /// callers.
    #[inline(never)]
    fn append_by_copy(&mut self, from: &mut Batch) -> usize {
        if from.len() == 1 && !self.is_full() {
            // A lone packet needs no copy of a range.
            self.packets.extend(from.packets.pop());
            return 1;
        }
        let moved = from.len().min(self.room());
        if moved == from.len() {
            self.packets.append(&mut from.packets);
        } else {
            self.packets.extend(from.packets.drain(..moved));
        }
        moved
    }

    /// Takes up to `n` packets off the front. Those that the iterator is not asked for return to
    /// their pools when it is dropped; the rest of the batch moves up.
    pub fn drain_front(&mut self, n: usize) -> DrainFront<'_> {
        let n = n.min(self.len());
        DrainFront(self.packets.drain(..n))
    }

    /// Takes the first packet; the rest moves up.
    #[inline]
    #[must_use = "dropping it gives it back"]
    pub fn take_first(&mut self) -> Option<Packet> {
        match self.len() {
            0 | 1 => self.packets.pop(),
            _ => Some(self.packets.remove(0)),
        }
    }

    /// Moves packets from the front into `places`, as many as there are of both, and gives how
    /// many; the rest of the batch moves up. What the places held before is not dropped.
    #[inline]
    #[must_use = "that many places hold a packet now, which nothing else will drop"]
    pub fn move_front(&mut self, places: &mut [MaybeUninit<Packet>]) -> usize {
        let len = self.len();
        let moved = len.min(places.len());
        let packets = self.packets.as_mut_ptr();
        // SAFETY: both ranges are `moved` long, and `places` is foreign to the batch, being
        // borrowed mutably. The packets that were moved are the places' now: the rest takes their
        // room, and the length covers the rest alone.
        unsafe {
            self.packets.set_len(len - moved);
            self.handles.copy(packets.cast(), places.as_mut_ptr().cast(), moved);
            if moved < len {
                std::ptr::copy(packets.add(moved), packets, len - moved);
            }
        }
        moved
    }

    /// The packets in order.
    #[inline]
    pub fn iter(&self) -> slice::Iter<'_, Packet> {
        self.packets.iter()
    }

    /// The packets in order, to change.
    #[inline]
    pub fn iter_mut(&mut self) -> slice::IterMut<'_, Packet> {
        self.packets.iter_mut()
    }

    /// The packets as a slice.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[Packet] {
        &self.packets
    }

    /// The packets as a slice, to change or reorder.
    #[inline]
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// Returns all packets to their pools, in bulk.
    #[inline]
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Keeps the first `len` packets and returns the others to their pools, in bulk. No effect when
    /// there are no more than that.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        let Some(others) = self.packets.get(len..) else { return };
        let others = raw(others);
        let (start, count) = (others.as_ptr(), others.len());
        // SAFETY: `len` is at most the length, as `get` found. The packets above it are given up to
        // `give_back` below, and so not dropped here.
        unsafe { self.packets.set_len(len) };
        // SAFETY: these slots stay allocated and unchanged while `self` is borrowed; the rights in
        // them are nobody's since `set_len`.
        unsafe { cache_array::give_back(slice::from_raw_parts(start, count)) };
    }

    /// Keeps the packets that `keep` says to, in order; the others return to their pools.
    pub fn retain_mut(&mut self, keep: impl FnMut(&mut Packet) -> bool) {
        self.packets.retain_mut(keep);
    }

    /// The first `n` free slots, to write handles to.
    #[inline]
    pub(crate) fn spare(&mut self, n: usize) -> &mut [MaybeUninit<RawPacket>] {
        let n = n.min(self.room());
        // SAFETY: the vector was made with room for `capacity`, so that this is at most what it has
        // spare.
        let spare = unsafe { self.packets.spare_capacity_mut().get_unchecked_mut(..n) };
        // SAFETY: a packet is a transparent handle, so the slots have that type's layout;
        // uninitialised either way.
        unsafe { mem::transmute::<&mut [MaybeUninit<Packet>], &mut [MaybeUninit<RawPacket>]>(spare) }
    }

    /// Takes in what was written to the first `n` slots of `spare`.
    ///
    /// # Safety
    /// They hold handles, and the caller gives up the right to each.
    #[inline]
    pub(crate) unsafe fn assume(&mut self, n: usize) {
        debug_assert!(n <= self.room());
        // SAFETY: the caller's word; a packet is a transparent handle.
        unsafe { self.packets.set_len(self.len() + n) };
    }

    /// The handles of all packets.
    #[inline]
    pub(crate) fn raw(&self) -> &[RawPacket] {
        raw(&self.packets)
    }

    /// Forgets all packets: something else has taken over the rights.
    #[inline]
    pub(crate) fn disown(&mut self) {
        // SAFETY: shortening a vector; what is cut off is not dropped.
        unsafe { self.packets.set_len(0) };
    }
}

#[inline]
fn raw(packets: &[Packet]) -> &[RawPacket] {
    // SAFETY: a packet is a transparent handle.
    unsafe { mem::transmute::<&[Packet], &[RawPacket]>(packets) }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Packet;
    type IntoIter = slice::Iter<'a, Packet>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Batch {
    type Item = &'a mut Packet;
    type IntoIter = slice::IterMut<'a, Packet>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// The packets of [`Batch::drain_front`].
#[derive(Debug)]
pub struct DrainFront<'a>(vec::Drain<'a, Packet>);

impl Iterator for DrainFront<'_> {
    type Item = Packet;

    #[inline]
    fn next(&mut self) -> Option<Packet> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for DrainFront<'_> {}
