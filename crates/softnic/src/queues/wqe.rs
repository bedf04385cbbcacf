//! Receive work requests in their ring.
//!
//! Guarantees: a reader sees the entry as written, if the queue keeps its order: the receiver
//! writes an entry before it publishes its index, a sender reads it after, and an entry is used
//! again only once its completion was polled. The words are atomics, so that memory is safe even if
//! a program breaks that order by posting on two threads at once.

use crate::key_table::RegionKey;
use crate::queues::wr::{MESSAGE_BYTES_MAX, RecvWr, sge_bytes};
use rdma_sys::ibv_sge;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Entries of one stride each: [`Head`], then the elements.
#[derive(Debug)]
pub(crate) struct WqeRing {
    words: Box<[AtomicU64]>,
    /// In words.
    stride: usize,
    mask: u64,
    max_sge: usize,
}

#[repr(C)]
struct Head {
    wr_id: AtomicU64,
    /// The number of elements: never more than the ring's `max_sge`.
    count: AtomicU64,
}

/// One element. Each field is read separately, on demand: most elements need few.
#[repr(C)]
pub(crate) struct Element {
    addr: AtomicU64,
    length: AtomicU32,
    lkey: AtomicU32,
}

/// The location of the entries, to keep in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    words: *const AtomicU64,
    stride: usize,
    mask: u64,
    ring: PhantomData<&'a WqeRing>,
}

/// One entry.
#[derive(Clone, Copy)]
pub(crate) struct Wqe<'a> {
    head: &'a Head,
    elements: *const Element,
}

const HEAD_WORDS: usize = size_of::<Head>() / 8;
const ELEMENT_WORDS: usize = size_of::<Element>() / 8;

impl WqeRing {
    /// Room for `entries` (a power of two) of up to `max_sge` elements each.
    pub(crate) fn new(entries: usize, max_sge: u32) -> WqeRing {
        assert!(entries.is_power_of_two());
        let max_sge = max_sge as usize;
        // At least one element, so that an entry's first one can always be read.
        let stride = HEAD_WORDS + ELEMENT_WORDS * max_sge.max(1);
        let words = (0..entries * stride).map(|_| AtomicU64::new(0)).collect();
        WqeRing { words, stride, mask: entries as u64 - 1, max_sge }
    }

    /// The entry of that index.
    #[inline(always)]
    pub(crate) fn wqe(&self, index: u64) -> Wqe<'_> {
        self.places().wqe(index)
    }

    /// A copy, valid as long as the ring.
    #[inline(always)]
    pub(crate) fn places(&self) -> Places<'_> {
        Places { words: self.words.as_ptr(), stride: self.stride, mask: self.mask, ring: PhantomData }
    }

    /// Prefetches the entry's line.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch affects only timing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(
                self.words.as_ptr().wrapping_add((index & self.mask) as usize * self.stride).cast(),
            );
        }
        let _ = index;
    }

    /// Writes an entry, of at most as many elements as there is room for. Returns the bytes that it
    /// can take: 0 if `key` doesn't grant them, so that a sender looks closer.
    #[inline(always)]
    pub(crate) fn write(&self, index: u64, wr: RecvWr<'_>, key: &mut RegionKey) -> u32 {
        let wqe = self.wqe(index);
        let sges = wr.sges();
        // Relaxed, here and in all reads: published by the count of posted receives.
        wqe.head.wr_id.store(wr.wr_id, Relaxed);
        let (mut capacity, mut granted) = (0u64, true);
        if let [sge] = sges {
            // As below, for one element: a fifth of the whole call.
            wqe.head.count.store(1, Relaxed);
            capacity = sge_bytes(sge);
            granted = key.check(sge.lkey, sge.addr, capacity).is_ok();
            wqe.element(0).set(sge);
        } else {
            debug_assert!(sges.len() <= self.max_sge);
            let sges = &sges[..sges.len().min(self.max_sge)];
            wqe.head.count.store(sges.len() as u64, Relaxed);
            for (at, sge) in sges.iter().enumerate() {
                let bytes = sge_bytes(sge);
                capacity += bytes;
                granted &= key.check(sge.lkey, sge.addr, bytes).is_ok();
                wqe.element(at).set(sge);
            }
        }
        if granted { capacity.min(MESSAGE_BYTES_MAX) as u32 } else { 0 }
    }
}

impl<'a> Places<'a> {
    /// Like [`WqeRing::wqe`].
    #[inline(always)]
    pub(crate) fn wqe(self, index: u64) -> Wqe<'a> {
        // SAFETY: masked, so inside the ring's words, which are valid for `'a`; an entry is a head
        // and elements by `new`.
        unsafe {
            let at = self.words.add((index & self.mask) as usize * self.stride);
            Wqe { head: &*at.cast(), elements: at.add(HEAD_WORDS).cast() }
        }
    }
}

impl Element {
    #[inline(always)]
    pub(crate) fn addr(&self) -> u64 {
        self.addr.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn length(&self) -> u32 {
        self.length.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey.load(Relaxed)
    }

    #[inline(always)]
    fn set(&self, sge: &ibv_sge) {
        self.addr.store(sge.addr, Relaxed);
        self.length.store(sge.length, Relaxed);
        self.lkey.store(sge.lkey, Relaxed);
    }
}

impl<'a> Wqe<'a> {
    #[inline(always)]
    pub(crate) fn wr_id(self) -> u64 {
        self.head.wr_id.load(Relaxed)
    }

    /// The number of elements.
    #[inline(always)]
    pub(crate) fn count(self) -> usize {
        self.head.count.load(Relaxed) as usize
    }

    /// `index` is 0, or below a count that `WqeRing::write` stored.
    #[inline(always)]
    pub(crate) fn element(self, index: usize) -> &'a Element {
        // SAFETY: an entry has as many elements as its ring's `max_sge`, at least one; no count
        // exceeds it (`WqeRing::write`).
        unsafe { &*self.elements.add(index) }
    }

    /// The first element; arbitrary contents if there is none.
    #[inline(always)]
    pub(crate) fn first(self) -> &'a Element {
        self.element(0)
    }

    /// The elements.
    #[inline]
    pub(crate) fn sges(self) -> impl Iterator<Item = ibv_sge> + use<'a> {
        (0..self.count()).map(move |index| {
            let element = self.element(index);
            ibv_sge { addr: element.addr(), length: element.length(), lkey: element.lkey() }
        })
    }

    /// The bytes that its elements describe.
    pub(crate) fn bytes(self) -> u64 {
        self.sges().map(|sge| sge_bytes(&sge)).sum()
    }
}
