//! Scatter/gather lists: receive work requests in their ring, and moving bytes between lists.
//!
//! What it guarantees: every byte that is read or written lies in a range that its key granted just before, inside a
//! guard that keeps the region registered. A length of 0 in an element means 2^31 bytes (`ibv_post_send(3)`).

use crate::copy::copy;
use crate::objects::device::{MESSAGE_BYTES_MAX, SGE_MAX};
use crate::objects::key_table::{self, Denied, RegionKey};
use rdma_sys::{ibv_recv_wr, ibv_sge};
use std::mem::MaybeUninit;

/// The bytes that an element describes.
#[inline(always)]
pub(crate) fn sge_bytes(sge: &ibv_sge) -> u64 {
    if sge.length == 0 { MESSAGE_BYTES_MAX } else { u64::from(sge.length) }
}

/// Receive work requests: `wr_id`, the number of elements, the elements; one stride each. The receiver writes an entry
/// before it publishes its index; a sender reads it after; its slot is used again only once its completion was polled.
#[derive(Debug)]
pub(crate) struct WqeRing(Places);

/// Where the entries are, to have in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    words: *mut u64,
    stride: usize,
    mask: u64,
}

// SAFETY: who may touch an entry is decided by the indices, as the type says.
unsafe impl Sync for WqeRing {}
// SAFETY: as above.
unsafe impl Send for WqeRing {}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe(*mut u64);

const WQE_HEAD_WORDS: usize = 2;
const SGE_WORDS: usize = size_of::<ibv_sge>() / 8;

impl WqeRing {
    /// Room for `entries` (a power of two) of up to `max_sge` elements.
    pub(crate) fn new(entries: usize, max_sge: u32) -> WqeRing {
        assert!(entries.is_power_of_two());
        let stride = WQE_HEAD_WORDS + SGE_WORDS * max_sge as usize;
        let words = vec![0u64; entries * stride].into_boxed_slice();
        WqeRing(Places { words: Box::into_raw(words).cast(), stride, mask: entries as u64 - 1 })
    }

    /// The entry of that index.
    ///
    /// # Safety
    /// The caller owns the entry by the protocol of the type.
    #[inline(always)]
    pub(crate) unsafe fn wqe(&self, index: u64) -> Wqe {
        // SAFETY: the caller's; the ring is there.
        unsafe { self.0.wqe(index) }
    }

    /// A copy, good for as long as the ring.
    #[inline(always)]
    pub(crate) fn places(&self) -> Places {
        self.0
    }

    /// Asks for the entry's line.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: masked, and a prefetch has no effect but on timing.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.0.words.add((index & self.0.mask) as usize * self.0.stride).cast());
        }
        let _ = index;
    }
}

impl Places {
    /// As [`WqeRing::wqe`].
    ///
    /// # Safety
    /// As there, and the ring is there.
    #[inline(always)]
    pub(crate) unsafe fn wqe(&self, index: u64) -> Wqe {
        // SAFETY: masked.
        Wqe(unsafe { self.words.add((index & self.mask) as usize * self.stride) })
    }
}

impl Drop for WqeRing {
    fn drop(&mut self) {
        let Places { words, stride, mask } = self.0;
        let len = (mask as usize + 1) * stride;
        // SAFETY: the box that `new` made.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(words, len)) });
    }
}

impl Wqe {
    /// # Safety
    /// The entry is the caller's to read.
    #[inline(always)]
    pub(crate) unsafe fn wr_id(&self) -> u64 {
        // SAFETY: the caller's.
        unsafe { *self.0 }
    }

    /// # Safety
    /// As [`wr_id`](Self::wr_id).
    #[inline(always)]
    pub(crate) unsafe fn sges(&self) -> usize {
        // SAFETY: the caller's.
        unsafe { *self.0.add(1) as usize }
    }

    /// Element `index`.
    ///
    /// # Safety
    /// As [`wr_id`](Self::wr_id), and `index` is one that the ring has room for.
    #[inline(always)]
    pub(crate) unsafe fn sge(&self, index: usize) -> ibv_sge {
        // SAFETY: the caller's; an element is two words, of any value.
        unsafe { self.0.add(WQE_HEAD_WORDS + SGE_WORDS * index).cast::<ibv_sge>().read() }
    }

    /// Writes the entry; gives how many bytes it can take by what `key` grants: 0 if it doesn't, so that a sender looks
    /// closer.
    ///
    /// # Safety
    /// The entry is the caller's to write; `wr` and its list are readable and no longer than the ring's `max_sge`.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, wr: &ibv_recv_wr, key: &mut RegionKey) -> u32 {
        let mut capacity = 0u64;
        let mut granted = true;
        // SAFETY: the caller's.
        unsafe {
            *self.0 = wr.wr_id;
            *self.0.add(1) = wr.num_sge as u64;
            if wr.num_sge == 1 {
                // As below, once: a fifth of the whole call.
                let sge = *wr.sg_list;
                capacity = sge_bytes(&sge);
                granted = key.check(sge.lkey, sge.addr, capacity).is_ok();
                self.0.add(WQE_HEAD_WORDS).cast::<ibv_sge>().write(sge);
            } else {
                for index in 0..wr.num_sge as usize {
                    let sge = *wr.sg_list.add(index);
                    let bytes = sge_bytes(&sge);
                    capacity += bytes;
                    granted &= key.check(sge.lkey, sge.addr, bytes).is_ok();
                    self.0.add(WQE_HEAD_WORDS + SGE_WORDS * index).cast::<ibv_sge>().write(sge);
                }
            }
        }
        if granted { capacity.min(MESSAGE_BYTES_MAX) as u32 } else { 0 }
    }

    /// The bytes that its elements describe.
    ///
    /// # Safety
    /// As [`wr_id`](Self::wr_id).
    pub(crate) unsafe fn bytes(&self) -> u64 {
        // SAFETY: the caller's.
        unsafe { (0..self.sges()).map(|index| sge_bytes(&self.sge(index))).sum() }
    }
}

/// Host ranges, checked. Filled in place, since it is half a kilobyte: returned by value it cost 60 ns a message.
pub(crate) struct Pieces {
    pieces: [MaybeUninit<(*mut u8, usize)>; SGE_MAX as usize],
    count: usize,
}

impl Pieces {
    #[inline(always)]
    pub(crate) fn new() -> Pieces {
        Pieces { pieces: [const { MaybeUninit::uninit() }; _], count: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, at: *mut u8, len: usize) {
        self.pieces[self.count].write((at, len));
        self.count += 1;
    }

    #[inline]
    fn as_slice(&self) -> &[(*mut u8, usize)] {
        // SAFETY: the first `count` are written.
        unsafe { std::slice::from_raw_parts(self.pieces.as_ptr().cast(), self.count) }
    }

    /// Adds the ranges of a work request's list that is read from (`need` 0) or written to
    /// ([`key_table::LOCAL_WRITE`]). With `inline`, addresses are taken as they are.
    ///
    /// # Safety
    /// `sges` has `count` readable elements, at most [`SGE_MAX`]; a guard is entered.
    #[inline]
    pub(crate) unsafe fn add_list(
        &mut self,
        pd: u32,
        sges: *const ibv_sge,
        count: usize,
        inline: bool,
        need: u32,
    ) -> Result<(), Denied> {
        for index in 0..count {
            // SAFETY: the caller's.
            let sge = unsafe { &*sges.add(index) };
            let bytes = sge_bytes(sge);
            let at =
                if inline { sge.addr as *mut u8 } else { key_table::check_local(pd, sge.lkey, sge.addr, bytes, need)? };
            self.push(at, bytes as usize);
        }
        Ok(())
    }

    /// Adds `len` bytes of a receive's buffers, after the first `skip`. The receive has room for `skip` + `len`.
    ///
    /// # Safety
    /// The entry is the caller's to read; a guard is entered.
    #[inline]
    pub(crate) unsafe fn add_wqe(&mut self, pd: u32, wqe: &Wqe, mut skip: u64, mut len: u64) -> Result<(), Denied> {
        // SAFETY: the caller's.
        let count = unsafe { wqe.sges() };
        for index in 0..count {
            if len == 0 {
                break;
            }
            // SAFETY: the caller's; below the count.
            let sge = unsafe { wqe.sge(index) };
            let bytes = sge_bytes(&sge);
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let take = len.min(bytes - skip);
            // No region reaches beyond the last address.
            let addr = sge.addr.checked_add(skip).ok_or(Denied)?;
            let at = key_table::check_local(pd, sge.lkey, addr, take, key_table::LOCAL_WRITE)?;
            self.push(at, take as usize);
            (skip, len) = (0, len - take);
        }
        Ok(())
    }
}

/// Copies `len` bytes from one list to another; both have at least that many. One that had not would be copied as far as it goes.
///
/// # Safety
/// The ranges are readable and writable for as long as this takes (their keys granted it, a guard is entered), and none
/// of one list overlaps one of the other.
#[inline]
pub(crate) unsafe fn move_bytes(to: &Pieces, from: &Pieces, mut len: u64) {
    let (mut to, mut from) = (to.as_slice().iter().copied(), from.as_slice().iter().copied());
    let (mut target, mut source) = ((std::ptr::null_mut(), 0usize), (std::ptr::null_mut(), 0usize));
    while len > 0 {
        if target.1 == 0 {
            let Some(next) = to.next() else { return };
            target = next;
        }
        if source.1 == 0 {
            let Some(next) = from.next() else { return };
            source = next;
        }
        let step = target.1.min(source.1).min(usize::try_from(len).unwrap_or(usize::MAX));
        // SAFETY: the caller's; `step` stays inside both ranges.
        unsafe {
            copy(target.0, source.0, step);
            target = (target.0.add(step), target.1 - step);
            source = (source.0.add(step), source.1 - step);
        }
        len -= step as u64;
    }
}

/// Copies `len` bytes to the front of a receive's buffers.
///
/// # Safety
/// As [`Pieces::add_wqe`]; `from` has `len` bytes.
#[cold]
pub(crate) unsafe fn from_bytes(pd: u32, wqe: &Wqe, from: *const u8, len: usize) -> Result<(), Denied> {
    // SAFETY: the caller's.
    unsafe {
        let (mut to, mut source) = (Pieces::new(), Pieces::new());
        to.add_wqe(pd, wqe, 0, len as u64)?;
        source.push(from.cast_mut(), len);
        move_bytes(&to, &source, len as u64);
    }
    Ok(())
}
