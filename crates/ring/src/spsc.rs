//! The ring: a bounded queue from one lcore to another, moved through in batches.
//!
//! It is an `rtrb` ring, reached only by its chunks: one store publishes a batch, one store frees
//! its slots.
//!
//! What it guarantees: items arrive in order, each once. A full ring refuses: what doesn't fit
//! stays with the caller, and nothing is overwritten. An empty one hands out nothing. No call waits
//! for the other end, allocates or enters the kernel. When an end is dropped the other one can tell
//! ([`Producer::is_abandoned`], [`Consumer::is_abandoned`]); items that are then still in the ring
//! can be taken, or are dropped with it.

use rtrb::RingBuffer;
use rtrb::chunks::{ReadChunk, WriteChunkUninit};
use std::hint::spin_loop;
use std::iter::FusedIterator;
use std::mem::MaybeUninit;

use crate::prefetch;

/// How far ahead of the last item written the producer asks for lines to write: 20 lines, 160 items
/// of 8 bytes. From 8 to 32 lines it was all the same. With the consumer's pause below an item in
/// bulks of 32 takes 1.2 to 1.25 ns where it took 1.3 to 1.7, in turn with the ring before it in
/// one process (EPYC 9004, two cores); in phases of the machine in which it took 1.12 it still
/// does.
const AHEAD_BYTES: usize = 1280;

/// PAUSE instructions between emptying the ring and looking for more, 25 ns each on an EPYC 9004;
/// see [`Consumer::look`]. One gave half of what two give, and eight some 3 % more.
const PAUSES: usize = 2;

/// Makes a ring of `capacity` items and hands out its two ends.
///
/// Its memory is allocated and touched here, so that no page fault is left for the first lap. A
/// ring of capacity 0 refuses every item.
///
/// # Panics
/// If `capacity` items take more than `isize::MAX` bytes.
pub fn spsc<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let (mut inner, consumer) = RingBuffer::new(capacity);
    if let Ok(mut chunk) = inner.write_chunk_uninit(capacity) {
        // Not committed: the slots stay free.
        chunk.as_mut_slices().0.fill_with(MaybeUninit::zeroed);
    }
    (Producer { inner }, Consumer { inner: consumer, fed: false })
}

/// The end that puts items in. Moves between threads, but isn't shared by them.
// Each end writes its own copies of both indices at every batch, and the two ends are made side by
// side. On one cache line, which goes to and fro between the cores, an item in bulks of 32 took 1.6
// to 1.8 ns (raw rtrb, whose ends do share one); apart 1.25 (EPYC 9004). 128 bytes, as x86
// prefetches lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct Producer<T> {
    inner: rtrb::Producer<T>,
}

impl<T> Producer<T> {
    /// Moves up to `n` items from `items` into the ring and publishes them at once; returns how
    /// many.
    ///
    /// It calls `next` at most `min(n, room)` times, so an item that doesn't fit is never taken out
    /// of the iterator: pass `&mut items` and the rest is still there. An adaptor that empties its
    /// source when dropped (`Vec::drain`) must be given no more items than
    /// [`room_for`](Self::room_for) says.
    ///
    /// If `items` panics, what was already pulled from it is leaked, and nothing is published.
    ///
    /// After publishing, ring the consumer's [`Waker`](crate::Waker).
    // There is no push from a slice beside it: item by item from a `Vec::drain` is as fast as a
    // copy of the whole (0.46 and 0.43 ns an item into and out of the ring on one core of an EPYC
    // 9004, batches of 32 of 8 bytes).
    #[inline]
    pub fn push_iter(&mut self, n: usize, items: impl IntoIterator<Item = T>) -> usize {
        let pushed = match self.chunk(n) {
            Some(chunk) => chunk.fill_from_iter(items),
            None => 0,
        };
        self.look_ahead(pushed);
        pushed
    }

    /// Moves one item into the ring, or gives it back. For control messages; batches go through
    /// [`push_iter`](Self::push_iter).
    ///
    /// # Errors
    /// The item, if the ring is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        self.inner.push(item).map_err(|rtrb::PushError::Full(item)| item)
    }

    /// How many items fit now. Another core may only make it more. Reads the consumer's cache line.
    #[inline]
    pub fn room(&self) -> usize {
        self.inner.slots()
    }

    /// How many of `n` items fit: `min(n, room)`. Reads the consumer's cache line only when the
    /// slots that were seen free at the last look don't suffice; ask this, not
    /// [`room`](Self::room), before each batch.
    #[inline]
    pub fn room_for(&self, n: usize) -> usize {
        match self.inner.cached_slots() {
            seen if seen >= n => n,
            _ => n.min(self.inner.slots()),
        }
    }

    /// How many items are in the ring now. Another core may only make it fewer. Reads the
    /// consumer's cache line.
    #[inline]
    pub fn len(&self) -> usize {
        self.capacity() - self.room()
    }

    /// Whether the ring holds nothing now: everything that was put in has been taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items fit when it is empty.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.inner.buffer().capacity()
    }

    /// Whether the consumer is gone, for good. What is put in now is dropped with the ring.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.inner.is_abandoned()
    }

    /// Asks for the lines that a later push will write, of as many items as the last one moved, if
    /// their slots are known to be free: what the consumer has yet to read is left to it.
    #[inline(always)]
    fn look_ahead(&mut self, items: usize) {
        let ahead = AHEAD_BYTES / size_of::<T>().max(1);
        if self.inner.cached_slots() < ahead + items {
            return;
        }
        if let Ok(mut chunk) = self.inner.write_chunk_uninit(ahead + items) {
            let (first, second) = chunk.as_mut_slices();
            match first.get(ahead..) {
                Some(far) => prefetch::for_writing(far),
                None => prefetch::for_writing(&second[ahead - first.len()..]),
            }
        }
    }

    /// The next `min(n, room)` free slots, if any.
    #[inline]
    fn chunk(&mut self, n: usize) -> Option<WriteChunkUninit<'_, T>> {
        let n = self.room_for(n);
        if n == 0 { None } else { self.inner.write_chunk_uninit(n).ok() }
    }
}

/// The end that takes items out. Moves between threads, but isn't shared by them.
// On lines of its own, as the producer is.
#[derive(Debug)]
#[repr(align(128))]
pub struct Consumer<T> {
    inner: rtrb::Consumer<T>,
    /// Whether the last look at the producer's line found anything.
    fed: bool,
}

impl<T> Consumer<T> {
    /// Takes up to `n` items out of the ring and hands each to `sink`, in order; returns how many.
    ///
    /// Their slots are free again when it returns. If `sink` panics, what it has been given is gone
    /// from the ring and the rest is still in it.
    #[inline]
    pub fn pop_into(&mut self, n: usize, sink: impl FnMut(T)) -> usize {
        let Some(chunk) = self.chunk(n) else { return 0 };
        let taken = chunk.len();
        chunk.into_iter().for_each(sink);
        taken
    }

    /// Takes up to `n` items out of the ring, as they are iterated.
    ///
    /// The slots of the items that were taken become free when the iterator is dropped; items that
    /// it didn't reach stay in the ring.
    #[inline]
    pub fn pop_iter(&mut self, n: usize) -> PopIter<'_, T> {
        PopIter { inner: self.chunk(n).map(ReadChunk::into_iter) }
    }

    /// Takes one item out. For control messages; batches go through [`pop_into`](Self::pop_into).
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.inner.pop().ok()
    }

    /// How many items are in the ring now. Another core may only make it more. Reads the producer's
    /// cache line.
    #[inline]
    pub fn len(&self) -> usize {
        self.inner.slots()
    }

    /// Whether there is nothing to take now. Reads the producer's cache line only if nothing was
    /// left at the last look; this is the poll to repeat after
    /// [`Sleeper::arm`](crate::Sleeper::arm).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// How many items fit when it is empty.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.inner.buffer().capacity()
    }

    /// Whether the producer is gone, for good. Ask this *before* finding the ring empty, and
    /// nothing is overlooked.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.inner.is_abandoned()
    }

    /// The next `min(n, len)` items, if any. The producer's cache line is read only when the items
    /// that were seen at the last look don't suffice.
    #[inline]
    fn chunk(&mut self, n: usize) -> Option<ReadChunk<'_, T>> {
        let n = match self.inner.cached_slots() {
            seen if seen >= n => n,
            _ => n.min(self.look()),
        };
        if n == 0 { None } else { self.inner.read_chunk(n).ok() }
    }

    /// Reads the producer's cache line: how many items there are.
    ///
    /// A consumer that has just emptied the ring and looks at once takes that line from a producer
    /// that is about to write it, whose stores then wait in order behind it: the faster the
    /// consumer, the slower the producer. So the first look after one that found something waits
    /// for a moment, in which more comes. Later looks don't wait, so a lone batch isn't found
    /// later.
    #[inline]
    fn look(&mut self) -> usize {
        if self.fed {
            (0..PAUSES).for_each(|_| spin_loop());
        }
        let items = self.inner.slots();
        self.fed = items > 0;
        items
    }
}

/// Items on their way out of a ring: what [`Consumer::pop_iter`] returns.
#[derive(Debug)]
#[must_use = "items are taken as it is iterated"]
pub struct PopIter<'a, T> {
    inner: Option<rtrb::chunks::ReadChunkIntoIter<'a, T>>,
}

impl<T> Iterator for PopIter<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.inner.as_mut()?.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.as_ref().map_or((0, Some(0)), Iterator::size_hint)
    }

    // The ring's own fold goes segment by segment, without a test for the wrap at each item.
    #[inline]
    fn fold<B, F: FnMut(B, T) -> B>(self, init: B, f: F) -> B {
        match self.inner {
            Some(items) => items.fold(init, f),
            None => init,
        }
    }
}

impl<T> ExactSizeIterator for PopIter<'_, T> {}
impl<T> FusedIterator for PopIter<'_, T> {}
