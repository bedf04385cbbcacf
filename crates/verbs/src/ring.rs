//! The circle of work requests that a queue posts from: formatted and linked once, posted as one list, reused for ever.
//!
//! Each work request points at its own SGE and at the next work request; a post cuts the list at its end for the time of the
//! call. A device copies a work request before the post returns, so nothing here is reached by it afterwards.

use std::ptr::{self, NonNull};

use rdma_sys::{ibv_recv_wr, ibv_send_wr, ibv_sge};

/// What differs between `ibv_send_wr` and `ibv_recv_wr` as far as the circle goes.
///
/// # Safety
/// All zeros is a value of the type.
pub(crate) unsafe trait WorkRequest {
    fn set_next(&mut self, next: *mut Self);
    fn set_sges(&mut self, sges: *mut ibv_sge);
}

// SAFETY: integers, pointers and unions of them.
unsafe impl WorkRequest for ibv_send_wr {
    #[inline]
    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }

    fn set_sges(&mut self, sges: *mut ibv_sge) {
        self.sg_list = sges;
    }
}

// SAFETY: integers and pointers.
unsafe impl WorkRequest for ibv_recv_wr {
    #[inline]
    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }

    fn set_sges(&mut self, sges: *mut ibv_sge) {
        self.sg_list = sges;
    }
}

/// A circle of a power of two of work requests with one SGE each.
pub(crate) struct WrRing<W> {
    wrs: NonNull<W>,
    sges: NonNull<ibv_sge>,
    /// Length - 1.
    mask: u32,
}

// SAFETY: the ring owns both arrays; nothing else points into them between calls.
unsafe impl<W> Send for WrRing<W> {}

impl<W: WorkRequest> WrRing<W> {
    /// At least `len` of them, linked in a circle.
    pub(crate) fn new(len: u32) -> WrRing<W> {
        let len = len.max(1).next_power_of_two();
        let mask = len - 1;
        // SAFETY: `WorkRequest` promises it; an ibv_sge is integers.
        let ring = unsafe { WrRing { wrs: zeroed_array(len), sges: zeroed_array(len), mask } };
        for slot in 0..len {
            // SAFETY: `slot` is in the ring, and nobody else has the arrays yet.
            unsafe {
                let wr: &mut W = &mut *ring.wr(slot);
                wr.set_next(ring.wr(slot + 1));
                wr.set_sges(ring.sge(slot));
            }
        }
        ring
    }

    /// Slots.
    pub(crate) fn len(&self) -> u32 {
        self.mask + 1
    }

    /// The slot of a position.
    #[inline]
    pub(crate) fn slot(&self, position: u32) -> usize {
        (position & self.mask) as usize
    }

    /// The slot of a sequence number.
    #[inline]
    pub(crate) fn slot_of_sequence(&self, sequence: u64) -> usize {
        (sequence & u64::from(self.mask)) as usize
    }

    /// The work request at a position; always inside the array.
    #[inline]
    pub(crate) fn wr(&self, position: u32) -> *mut W {
        // SAFETY: the slot is below the length.
        unsafe { self.wrs.as_ptr().add(self.slot(position)) }
    }

    /// Both parts of the work request at a position, to format.
    #[inline]
    pub(crate) fn parts(&mut self, position: u32) -> (&mut W, &mut ibv_sge) {
        // SAFETY: both are inside the arrays, initialised, apart from each other, and borrowed as long as the ring is.
        unsafe { (&mut *self.wr(position), &mut *self.sge(position)) }
    }

    /// The work request at a position.
    #[inline]
    pub(crate) fn get(&self, position: u32) -> &W {
        // SAFETY: inside the array and initialised; written through `&mut self` only.
        unsafe { &*self.wr(position) }
    }

    /// Hands the list of `count` work requests from `first` on to `post`, which returns what the verb returned and the
    /// `bad_wr` that it set. Gives how many of them the device took, and the verb's answer.
    ///
    /// A refusal whose `bad_wr` is not one of the list's is taken as "all were posted": a slot too many may stay occupied, but
    /// no memory is given back that the device may still write.
    #[inline]
    pub(crate) fn post(&mut self, first: u32, count: u32, post: impl FnOnce(*mut W) -> (i32, *mut W)) -> (u32, i32) {
        debug_assert!(count > 0 && count <= self.len());
        let last = first.wrapping_add(count - 1);
        self.parts(last).0.set_next(ptr::null_mut());
        let (ret, bad) = post(self.wr(first));
        let next = self.wr(last.wrapping_add(1));
        self.parts(last).0.set_next(next);
        if ret == 0 {
            return (count, 0);
        }
        let taken = (0..count).find(|&ahead| self.wr(first.wrapping_add(ahead)) == bad);
        (taken.unwrap_or(count), ret)
    }

    #[inline]
    fn sge(&self, position: u32) -> *mut ibv_sge {
        // SAFETY: the slot is below the length.
        unsafe { self.sges.as_ptr().add(self.slot(position)) }
    }
}

impl<W> Drop for WrRing<W> {
    fn drop(&mut self) {
        let len = self.mask as usize + 1;
        // SAFETY: both came from `zeroed_array` with this length and are freed once.
        unsafe {
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(self.wrs.as_ptr(), len)));
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(self.sges.as_ptr(), len)));
        }
    }
}

/// A boxed array of zeros, as a raw pointer: it is reached through pointers inside itself.
///
/// # Safety
/// All zeros is a value of `T`.
unsafe fn zeroed_array<T>(len: u32) -> NonNull<T> {
    let array = Box::<[T]>::new_zeroed_slice(len as usize);
    // SAFETY: the caller's word.
    let array = unsafe { array.assume_init() };
    // SAFETY: a box is not null.
    unsafe { NonNull::new_unchecked(Box::into_raw(array).cast()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_sees_its_list_and_no_more_and_the_circle_stays_whole() {
        let mut ring = WrRing::<ibv_recv_wr>::new(5);
        assert_eq!(ring.len(), 8);
        for first in [0, 6, u32::MAX - 1] {
            let (taken, _) = ring.post(first, 4, |mut wr| {
                let mut seen = 0;
                while !wr.is_null() {
                    seen += 1;
                    // SAFETY: the list is the ring's own.
                    wr = unsafe { (*wr).next };
                }
                assert_eq!(seen, 4);
                (0, ptr::null_mut())
            });
            assert_eq!(taken, 4);
        }
        for slot in 0..8 {
            assert_eq!(ring.get(slot).next, ring.wr(slot + 1));
        }
    }

    #[test]
    fn what_came_before_bad_wr_was_taken() {
        let mut ring = WrRing::<ibv_send_wr>::new(8);
        let bad = ring.wr(8);
        assert_eq!(ring.post(6, 4, |_| (libc::ENOMEM, bad)), (2, libc::ENOMEM));
        assert_eq!(ring.post(8, 4, |_| (libc::ENOMEM, bad)), (0, libc::ENOMEM));
        assert_eq!(ring.post(8, 4, |_| (libc::EINVAL, ptr::null_mut())), (4, libc::EINVAL));
    }
}
