//! The free list that all lcores share: a lock-free stack of chunks of packet indices.
//!
//! A Treiber stack: `head` holds the top index and a 32-bit tag, and the chunk at an index holds
//! that index, up to [`REST`] more, and the index of the chunk below. A bulk get or put of any
//! length is one compare-and-swap. Every change of `head` counts the tag up, so a get whose walk
//! was overtaken fails and walks again; it would take exactly 2³² changes within one walk to fool
//! it.
//!
//! A walk waits for memory once a chunk, not once an index. With a link for each index, packets
//! that had lost their order (dealt out by key, say) cost a cache miss each, one after another.
//!
//! Beside the stack stands `home`, how many indices are on it. It is the protocol of the pool's
//! end:
//! - a put adds to `home` with Release as its **last** access to anything of the pool's;
//! - gets need a live `Pool` handle, so when the last one goes there are no more gets;
//! - a thread that drops that handle and reads `home == packets` with Acquire has therefore all
//!   puts behind it and may free everything. Any less, and some packet is still out: the pool is
//!   leaked.

use std::ptr::NonNull;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// No index: below the last chunk of the stack, and behind the last index of one.
const NIL: u32 = u32::MAX;

/// Indices of a chunk beside its own. Models have few, so that they reach every case.
const REST: usize = if cfg!(loom) { 1 } else { 15 };

pub(crate) struct FreeList {
    hot: Hot,
    /// The chunk of each packet, in use while that packet is the first of a chunk on the stack.
    chunks: Box<[Chunk]>,
}

/// One cache line. Every value ever written to it is `NIL` or below `chunks.len()`.
#[repr(align(64))]
struct Chunk {
    /// The first index of the chunk below.
    below: AtomicU32,
    /// The chunk's other packets, up to the first `NIL`.
    rest: [AtomicU32; REST],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Chunk>() == 64);

impl Chunk {
    fn new() -> Self {
        Self { below: AtomicU32::new(NIL), rest: std::array::from_fn(|_| AtomicU32::new(NIL)) }
    }

    fn rest_at(&self, place: usize) -> Option<u32> {
        // Relaxed: if nobody changed `head` meanwhile, this was written before the push that `head`
        // showed; if somebody did, it may be stale (never out of range) and the swap fails.
        self.rest.get(place).map(|index| index.load(Ordering::Relaxed)).filter(|&index| index != NIL)
    }

    /// Writes the indices of a chunk beside its own: those of `items`, of which there are [`REST`]
    /// at most.
    fn fill<T>(&self, items: &[T], index_of: &impl Fn(&T) -> u32) {
        for (rest, item) in self.rest.iter().zip(items) {
            // Relaxed, here and below: published by the Release of the push.
            rest.store(index_of(item), Ordering::Relaxed);
        }
        if let Some(end) = self.rest.get(items.len()) {
            end.store(NIL, Ordering::Relaxed);
        }
    }
}

/// How many indices a walk takes: all of a chunk at once while `most` allows, part of one if it
/// has not got to `least` otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Want {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl Want {
    pub(crate) fn exactly(count: usize) -> Self {
        Self { least: count, most: count }
    }
}

/// The result of a walk along the stack, valid if no other thread changed the stack meanwhile.
struct Walk {
    taken: usize,
    /// The first chunk that was left alone.
    below: u32,
    /// The chunk that was taken in part, and how many of it were.
    cut: Option<(u32, usize)>,
}

/// Both words that every put and get changes, on a line shared with nothing else: 128 bytes, as x86
/// prefetches lines in pairs.
#[repr(align(128))]
struct Hot {
    /// Tag in the high half, index in the low.
    head: AtomicU64,
    /// Modulo 2³². Lags behind `head`; exact when nothing is in progress.
    home: AtomicU32,
}

impl FreeList {
    /// A list of `packets` indices, all on it, 0 on top. `None` when there is no memory for it.
    pub(crate) fn full(packets: u32) -> Option<Self> {
        assert!(packets < NIL);
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(packets as usize).ok()?;
        chunks.extend((0..packets).map(|_| Chunk::new()));
        let hot = Hot { head: AtomicU64::new(pack(0, NIL)), home: AtomicU32::new(packets) };
        let list = Self { hot, chunks: chunks.into_boxed_slice() };
        for first in (0..packets).step_by(1 + REST).rev() {
            let count = (1 + REST).min((packets - first) as usize);
            let chunk: [u32; 1 + REST] = std::array::from_fn(|k| first + k as u32);
            list.push(&chunk[..count], |&index| index);
        }
        Some(list)
    }

    /// Takes indices, top first, and gives how many: at least `want.least` if there are that many,
    /// and at most `want.most`. `found(k, index)` is called for the k-th of a walk; a walk that was
    /// overtaken is made again from k = 0, and only what the last one found has been taken.
    ///
    /// The rest of a chunk that was taken in part is put back at once. Meanwhile other threads may
    /// miss less than a chunk, and find the list empty; not so where `most` is a chunk above
    /// `least`.
    pub(crate) fn take(&self, want: Want, mut found: impl FnMut(usize, u32)) -> usize {
        // Acquire, here and on failure below: pairs with the Release in `push`. All changes of
        // `head` are read-modify-writes, so this sees every earlier push, its chunks and what its
        // packets hold, whichever change it reads.
        let mut head = self.hot.head.load(Ordering::Acquire);
        loop {
            let (tag, top) = unpack(head);
            let walk = self.walk(top, want, &mut found);
            if walk.taken == 0 {
                return 0;
            }
            let below = pack(tag.wrapping_add(1), walk.below);
            // Relaxed on success: it reads the very change that the Acquire load read, and
            // publishes nothing.
            match self.hot.head.compare_exchange_weak(head, below, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => {
                    if let Some((first, taken)) = walk.cut {
                        self.put_rest_back(first, taken);
                    }
                    // Relaxed: only the owner's `all_home` orders anything by `home`, and it comes
                    // after every get (see above).
                    self.hot.home.fetch_sub(walk.taken as u32, Ordering::Relaxed);
                    return walk.taken;
                }
                Err(seen) => head = seen,
            }
        }
    }

    /// Goes down from `top`. The chunks may be another's by now: then the numbers mean nothing.
    fn walk(&self, top: u32, want: Want, found: &mut impl FnMut(usize, u32)) -> Walk {
        let mut walk = Walk { taken: 0, below: top, cut: None };
        while walk.below != NIL && walk.taken < want.most && walk.cut.is_none() {
            let first = walk.below;
            let chunk = &self.chunks[first as usize];
            let room = want.most - walk.taken;
            if room <= REST && walk.taken >= want.least && chunk.rest_at(room - 1).is_some() {
                break;
            }
            found(walk.taken, first);
            let mut taken = 1;
            for place in 0..REST.min(room - 1) {
                let Some(index) = chunk.rest_at(place) else { break };
                found(walk.taken + taken, index);
                taken += 1;
            }
            walk.taken += taken;
            walk.cut = chunk.rest_at(taken - 1).map(|_| (first, taken));
            // Relaxed: as in `rest_at`.
            walk.below = chunk.below.load(Ordering::Relaxed);
        }
        walk
    }

    /// Puts back what is left of a chunk whose first `taken` indices the caller has taken. These
    /// indices never left `home`.
    #[cold]
    fn put_rest_back(&self, first: u32, taken: usize) {
        let chunk = &self.chunks[first as usize];
        let left: [u32; REST] = std::array::from_fn(|k| chunk.rest_at(taken - 1 + k).unwrap_or(NIL));
        // Its first index is the caller's, so nobody writes the chunk while it is read.
        let count = left.iter().take_while(|&&index| index != NIL).count();
        self.push(&left[..count], |&index| index);
    }

    /// Puts the indices of `items`, the first on top. The list may be gone when this returns.
    ///
    /// # Safety
    /// `this` is alive until the put's last access, which holding the packets guarantees: the list
    /// is not freed while one is out. Each index is in range, was taken from this list, and is not
    /// put twice.
    pub(crate) unsafe fn put<T>(this: NonNull<Self>, items: &[T], index_of: impl Fn(&T) -> u32) {
        if items.is_empty() {
            return;
        }
        // SAFETY: alive, by the caller's word; the reference ends before the last access.
        unsafe { this.as_ref() }.push(items, index_of);
        // SAFETY: as above: until the add below is seen, `home` is short and the owner does not
        // free. The reference is to an atomic alone, as memory that goes away under a call's feet
        // has to be.
        let home = unsafe { &(*this.as_ptr()).hot.home };
        // Release: pairs with the Acquire in `all_home`; nothing of the pool is touched after it.
        home.fetch_add(items.len() as u32, Ordering::Release);
    }

    fn push<T>(&self, items: &[T], index_of: impl Fn(&T) -> u32) {
        let mut chunks = items.chunks(1 + REST).filter_map(<[T]>::split_first);
        let Some((first, rest)) = chunks.next() else { return };
        let top = index_of(first);
        let mut last = &self.chunks[top as usize];
        last.fill(rest, &index_of);
        for (first, rest) in chunks {
            let first = index_of(first);
            // Relaxed, here and below: published by the swap's Release.
            last.below.store(first, Ordering::Relaxed);
            last = &self.chunks[first as usize];
            last.fill(rest, &index_of);
        }
        // Relaxed, here and on failure: a put looks at nothing below the head.
        let mut head = self.hot.head.load(Ordering::Relaxed);
        loop {
            let (tag, below) = unpack(head);
            last.below.store(below, Ordering::Relaxed);
            let new = pack(tag.wrapping_add(1), top);
            // Release: pairs with the Acquire in `take`.
            match self.hot.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }

    /// How many indices are on the list: exact when no get or put is in progress.
    pub(crate) fn len(&self) -> u32 {
        // Relaxed: a count for people. A get may have been counted before the put that fed it: that
        // is none, not four billion.
        let home = self.hot.home.load(Ordering::Relaxed);
        if home > self.packets() { 0 } else { home }
    }

    /// How many indices there are in all.
    pub(crate) fn packets(&self) -> u32 {
        self.chunks.len() as u32
    }

    /// Every index is back and every put is over. To be asked by the last one who can get.
    pub(crate) fn all_home(&self) -> bool {
        // Acquire: pairs with the Release that ends each put.
        self.hot.home.load(Ordering::Acquire) == self.packets()
    }
}

/// Under loom, freeing the list is an access to all of it: the model fails if anyone may still be
/// at it.
#[cfg(loom)]
impl Drop for FreeList {
    fn drop(&mut self) {
        self.hot.head.with_mut(|_| ());
        self.hot.home.with_mut(|_| ());
        for chunk in &mut self.chunks {
            chunk.below.with_mut(|_| ());
            chunk.rest.iter_mut().for_each(|index| index.with_mut(|_| ()));
        }
    }
}

fn pack(tag: u32, index: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(index)
}

fn unpack(head: u64) -> (u32, u32) {
    ((head >> 32) as u32, head as u32)
}
