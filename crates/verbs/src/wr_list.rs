//! The work requests that a queue posts from: linked once, each with its own SGE, and written anew for every post.
//!
//! A device copies a work request before the post returns, so every post begins at the first one: what is written again and
//! again is as many lines as the longest list, and what never changes is never written. A post cuts the list at its end for the
//! time of the call.

use std::ptr::{self, NonNull};

use rdma_sys::{ibv_recv_wr, ibv_send_wr, ibv_sge};

/// What differs between `ibv_send_wr` and `ibv_recv_wr` as far as the list goes.
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

/// A work request behind its SGE: all that a send without immediate, address or remote memory writes is in one line.
#[repr(C, align(64))]
pub(crate) struct Entry<W> {
    pub(crate) sge: ibv_sge,
    pub(crate) wr: W,
}

/// The work requests of one post at a time.
pub(crate) struct WrList<W> {
    /// Reached through pointers inside itself, so it is no box.
    entries: NonNull<Entry<W>>,
    len: u32,
}

// SAFETY: the list owns its entries; nothing else points into them between calls.
unsafe impl<W> Send for WrList<W> {}

impl<W: WorkRequest> WrList<W> {
    /// `len` of them, at least 1, linked.
    pub(crate) fn new(len: u32) -> WrList<W> {
        let len = len.max(1);
        let entries = Box::<[Entry<W>]>::new_zeroed_slice(len as usize);
        // SAFETY: `WorkRequest` promises that zeros are a value; an ibv_sge is integers.
        let entries: *mut Entry<W> = Box::into_raw(unsafe { entries.assume_init() }).cast();
        // SAFETY: a box is not null.
        let list = WrList { entries: unsafe { NonNull::new_unchecked(entries) }, len };
        for index in 0..len {
            let entry = list.at(index);
            // SAFETY: `at` gives addresses of entries of ours, initialised, and nobody else has them yet.
            unsafe {
                (*entry).wr.set_sges(&raw mut (*entry).sge);
                (*entry).wr.set_next(list.after(index));
            }
        }
        list
    }

    /// All of them, to format from the first on. Links and `sg_list` are to stay as they are.
    #[inline]
    pub(crate) fn entries(&mut self) -> &mut [Entry<W>] {
        // SAFETY: ours, initialised, and borrowed as long as the list is.
        unsafe { std::slice::from_raw_parts_mut(self.entries.as_ptr(), self.len as usize) }
    }

    /// The first one.
    #[inline]
    pub(crate) fn first(&mut self) -> &mut Entry<W> {
        // SAFETY: there is at least one; as above.
        unsafe { self.entries.as_mut() }
    }

    /// Hands the first `count` on to `post` as a list. It returns what the verb returned and the `bad_wr` that it set. Gives how
    /// many of them the device took, and the verb's answer.
    ///
    /// A refusal whose `bad_wr` is not one of the list's is taken as "all were posted": a slot too many may stay occupied, but
    /// no memory is given back that the device may still write.
    ///
    /// # Panics
    /// If there are fewer than `count`, or that is 0.
    #[inline]
    pub(crate) fn post(&mut self, count: u32, post: impl FnOnce(*mut W) -> (i32, *mut W)) -> (u32, i32) {
        assert!(count.wrapping_sub(1) < self.len, "a list of {count} of {} work requests", self.len);
        let last = self.at(count - 1);
        // SAFETY: an entry of ours, initialised, that nothing else uses outside of `post`.
        unsafe { (*last).wr.set_next(ptr::null_mut()) };
        // SAFETY: as above.
        let (ret, bad) = post(unsafe { &raw mut (*self.entries.as_ptr()).wr });
        let next = self.after(count - 1);
        // SAFETY: as above.
        unsafe { (*last).wr.set_next(next) };
        if ret == 0 { (count, 0) } else { (self.taken_before(bad, count), ret) }
    }

    #[cold]
    fn taken_before(&self, bad: *mut W, count: u32) -> u32 {
        // SAFETY: an address within an entry of ours.
        let taken = (0..count).find(|&index| ptr::eq(unsafe { &raw const (*self.at(index)).wr }, bad));
        taken.unwrap_or(count)
    }

    /// The address of an entry; `index` is below `len`, as everything here sees to.
    #[inline]
    fn at(&self, index: u32) -> *mut Entry<W> {
        debug_assert!(index < self.len);
        // SAFETY: inside the array.
        unsafe { self.entries.as_ptr().add(index as usize) }
    }

    /// What follows on an entry in the whole list.
    #[inline]
    fn after(&self, index: u32) -> *mut W {
        if index + 1 == self.len {
            return ptr::null_mut();
        }
        // SAFETY: the address of a field of an entry of ours.
        unsafe { &raw mut (*self.at(index + 1)).wr }
    }
}

impl<W> Drop for WrList<W> {
    fn drop(&mut self) {
        // SAFETY: came from a box of this length and is freed once.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.entries.as_ptr(), self.len as usize)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_sees_its_list_and_no_more_and_the_list_stays_whole() {
        let mut list = WrList::<ibv_recv_wr>::new(5);
        for count in [1, 4, 5, 2, 5] {
            let (taken, _) = list.post(count, |mut wr| {
                let mut seen = 0;
                while !wr.is_null() {
                    seen += 1;
                    // SAFETY: the list is alive.
                    wr = unsafe { (*wr).next };
                }
                assert_eq!(seen, count);
                (0, ptr::null_mut())
            });
            assert_eq!(taken, count);
        }
        assert!(list.entries().iter().all(|entry| ptr::eq(entry.wr.sg_list, &entry.sge)));
    }

    #[test]
    fn what_came_before_bad_wr_was_taken() {
        let mut list = WrList::<ibv_send_wr>::new(8);
        let bad = &raw mut list.entries()[2].wr;
        assert_eq!(list.post(4, |_| (libc::ENOMEM, bad)), (2, libc::ENOMEM));
        assert_eq!(list.post(4, |first| (libc::ENOMEM, first)), (0, libc::ENOMEM));
        assert_eq!(list.post(2, |_| (libc::ENOMEM, bad)), (2, libc::ENOMEM));
        assert_eq!(list.post(4, |_| (libc::EINVAL, ptr::null_mut())), (4, libc::EINVAL));
    }
}
