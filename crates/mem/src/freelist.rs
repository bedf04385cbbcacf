//! The free list that all lcores share: a lock-free stack of packet indices, in chains.
//!
//! A Treiber stack: `head` holds the top index and a 32-bit tag, `next[i]` the index below `i`. A
//! bulk get or put of any length is one compare-and-swap. Every change of `head` counts the tag up,
//! so a get whose walk was overtaken fails and walks again; it would take exactly 2³² changes
//! within one walk to fool it.
//!
//! Beside the stack stands `home`, how many indices are on it. It is the protocol of the pool's
//! end:
//! - a put adds to `home` with Release as its **last** access to anything of the pool's;
//! - gets need a live `Pool` handle, so when the last one goes there are no more gets;
//! - whoever drops that handle and reads `home == packets` with Acquire has therefore all puts
//!   behind it and may free everything. Any less, and some packet is still out: the pool is leaked.

use std::ptr::NonNull;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// No index: below the last one on the stack.
const NIL: u32 = u32::MAX;

pub(crate) struct FreeList {
    hot: Hot,
    /// Indexed by packet; `NIL` or below `next.len()`.
    next: Box<[AtomicU32]>,
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
    /// A list of `packets` indices, all on it, 0 on top.
    pub(crate) fn full(packets: u32) -> Self {
        assert!(packets < NIL);
        let next = (1..=packets).map(|below| AtomicU32::new(if below < packets { below } else { NIL })).collect();
        let top = if packets > 0 { 0 } else { NIL };
        let hot = Hot { head: AtomicU64::new(pack(0, top)), home: AtomicU32::new(packets) };
        Self { hot, next }
    }

    /// Takes up to `want` indices, top first, and gives how many. `found(k, index)` is called for
    /// the k-th of a walk; a walk that was overtaken is made again from k = 0, and only what the
    /// last one found has been taken.
    pub(crate) fn take(&self, want: usize, mut found: impl FnMut(usize, u32)) -> usize {
        // Acquire, here and on failure below: pairs with the Release in `push`. All changes of
        // `head` are read-modify-writes, so this sees every earlier push, its links and what its
        // packets hold, whichever change it reads.
        let mut head = self.hot.head.load(Ordering::Acquire);
        loop {
            let (tag, mut index) = unpack(head);
            let mut taken = 0;
            while taken < want && index != NIL {
                found(taken, index);
                taken += 1;
                // Relaxed: if nobody changed `head` meanwhile, this link was written before the
                // push that `head` showed; if somebody did, the value may be stale (but never out
                // of range) and the swap below fails.
                index = self.next[index as usize].load(Ordering::Relaxed);
            }
            if taken == 0 {
                return 0;
            }
            let below = pack(tag.wrapping_add(1), index);
            // Relaxed on success: it reads the very change that the Acquire load read, and
            // publishes nothing.
            match self.hot.head.compare_exchange_weak(head, below, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => {
                    // Relaxed: only the owner's `all_home` orders anything by `home`, and it comes
                    // after every get (see above).
                    self.hot.home.fetch_sub(taken as u32, Ordering::Relaxed);
                    return taken;
                }
                Err(seen) => head = seen,
            }
        }
    }

    /// Puts `count` indices, `index_of(0)` on top. The list may be gone when this returns.
    ///
    /// # Safety
    /// `this` is alive until the put's last access, which holding the packets guarantees: the list
    /// is not freed while one is out. Each index is in range, was taken from this list, and is not
    /// put twice.
    pub(crate) unsafe fn put(this: NonNull<Self>, count: usize, index_of: impl Fn(usize) -> u32) {
        if count == 0 {
            return;
        }
        // SAFETY: alive, by the caller's word; the reference ends before the last access.
        unsafe { this.as_ref() }.push(count, index_of);
        // SAFETY: as above: until the add below is seen, `home` is short and the owner does not
        // free. The reference is to an atomic alone, as memory that goes away under a call's feet
        // has to be.
        let home = unsafe { &(*this.as_ptr()).hot.home };
        // Release: pairs with the Acquire in `all_home`; nothing of the pool is touched after it.
        home.fetch_add(count as u32, Ordering::Release);
    }

    fn push(&self, count: usize, index_of: impl Fn(usize) -> u32) {
        let top = index_of(0);
        let mut last = top;
        for k in 1..count {
            let index = index_of(k);
            // Relaxed, here and below: published by the swap's Release.
            self.next[last as usize].store(index, Ordering::Relaxed);
            last = index;
        }
        // Relaxed, here and on failure: a put looks at nothing below the head.
        let mut head = self.hot.head.load(Ordering::Relaxed);
        loop {
            let (tag, below) = unpack(head);
            self.next[last as usize].store(below, Ordering::Relaxed);
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
        self.next.len() as u32
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
        for next in &mut self.next {
            next.with_mut(|_| ());
        }
    }
}

fn pack(tag: u32, index: u32) -> u64 {
    u64::from(tag) << 32 | u64::from(index)
}

fn unpack(head: u64) -> (u32, u32) {
    ((head >> 32) as u32, head as u32)
}
