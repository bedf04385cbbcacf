//! The work requests that a thread posts from: linked once, each with its own SGE, and rewritten
//! for every post.
//!
//! A device copies work requests before the post returns, so one list serves all queues that a
//! thread posts to. It stays in the nearest cache whichever queue is next, and constant fields are
//! never rewritten. Between posts every work request has one SGE, its own, and is a plain SEND. A
//! poster that changes this says so ([`WrList::altered`]), and the entries are restored right after
//! the post. A post cuts the list at its end for the time of the call.
//!
//! Lists of inline sends only have work requests of their own ([`WrList::inline_of_thread`]), with
//! flags and keys preset so that an address, a length and a number complete a send. Another set
//! serves posters that write every field anew ([`WrList::written_of_thread`]).

use std::cell::Cell;
use std::ptr::{self, NonNull};

use rdma_sys::{ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wr_opcode};
use verbline_mem::Packet;

/// The longest list posted at once.
pub(crate) const LONGEST: usize = 64;

/// A work request behind its SGE. All fields that a send without immediate, address or remote
/// memory writes are in one cache line.
#[repr(C, align(64))]
pub(crate) struct WrEntry<W> {
    pub(crate) sge: ibv_sge,
    pub(crate) wr: W,
}

/// The difference between `ibv_send_wr` and `ibv_recv_wr` for the list.
pub(crate) trait WorkRequest: Sized {
    fn set_next(&mut self, next: *mut Self);
    /// Restores the fields to their values between posts.
    fn set_usual(&mut self, sge: *mut ibv_sge);
    /// The thread's entries of this type.
    fn entries(lists: NonNull<Lists>) -> *mut Entries<Self>;
}

impl WorkRequest for ibv_send_wr {
    #[inline]
    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }

    fn set_usual(&mut self, sge: *mut ibv_sge) {
        (self.sg_list, self.num_sge, self.opcode) = (sge, 1, ibv_wr_opcode::IBV_WR_SEND);
    }

    #[inline]
    fn entries(lists: NonNull<Lists>) -> *mut Entries<Self> {
        // SAFETY: the address of a field of a live allocation.
        unsafe { &raw mut (*lists.as_ptr()).send }
    }
}

impl WorkRequest for ibv_recv_wr {
    #[inline]
    fn set_next(&mut self, next: *mut Self) {
        self.next = next;
    }

    fn set_usual(&mut self, sge: *mut ibv_sge) {
        (self.sg_list, self.num_sge) = (sge, 1);
    }

    #[inline]
    fn entries(lists: NonNull<Lists>) -> *mut Entries<Self> {
        // SAFETY: the address of a field of a live allocation, the lists of the thread.
        unsafe { &raw mut (*lists.as_ptr()).recv }
    }
}

/// The entries of one thread.
#[repr(C)]
pub(crate) struct Entries<W> {
    /// Posted by itself, so not linked.
    lone: WrEntry<W>,
    /// Linked. The last entry is never posted, so that a list of any length has an entry behind it.
    list: [WrEntry<W>; LONGEST + 1],
}

pub(crate) struct Lists {
    recv: Entries<ibv_recv_wr>,
    send: Entries<ibv_send_wr>,
    inline: Entries<ibv_send_wr>,
    written: Entries<ibv_send_wr>,
}

thread_local! {
    /// This thread's lists; null before its first post. Plain memory without a destructor, so that
    /// it is quick to reach.
    static HERE: Cell<*mut Lists> = const { Cell::new(ptr::null_mut()) };
    /// Frees the lists when the thread ends.
    static OWNED: Owned = const { Owned };
}

struct Owned;

impl Drop for Owned {
    fn drop(&mut self) {
        let lists = HERE.replace(ptr::null_mut());
        if !lists.is_null() {
            // SAFETY: came from a box in `make`, and nobody has the address any more. No handle is
            // in use: the thread is ending.
            drop(unsafe { Box::from_raw(lists) });
        }
    }
}

/// Makes this thread's work requests now: its first post would allocate them.
pub fn prepare_thread() {
    if HERE.get().is_null() {
        make();
    }
}

#[cold]
fn make() -> NonNull<Lists> {
    // SAFETY: work requests and SGEs are integers, pointers and unions of them: all zeros is a
    // value.
    let lists = Box::into_raw(unsafe { Box::<Lists>::new_zeroed().assume_init() });
    // SAFETY: a box is not null.
    let lists = unsafe { NonNull::new_unchecked(lists) };
    for_each_usual(WrList { entries: ibv_send_wr::entries(lists) }, |_| ());
    for_each_usual(WrList { entries: inline_entries(lists) }, |wr| wr.send_flags = ibv_send_flags::IBV_SEND_INLINE.0);
    for_each_usual(WrList { entries: written_entries(lists) }, |_| ());
    for_each_usual(WrList { entries: ibv_recv_wr::entries(lists) }, |_| ());
    HERE.set(lists.as_ptr());
    // If the thread is already ending, the lists are leaked.
    let _ = OWNED.try_with(|_| ());
    lists
}

/// Sets and links the entries as usual, and applies `more` for fields particular to this list.
fn for_each_usual<W: WorkRequest>(mut list: WrList<W>, more: impl Fn(&mut W)) {
    list.restore(list.lone_ptr());
    more(&mut list.lone().wr);
    for index in 0..=LONGEST {
        list.restore(list.at(index));
        list.relink(index);
    }
    list.entries().iter_mut().for_each(|entry| more(&mut entry.wr));
}

#[inline]
fn inline_entries(lists: NonNull<Lists>) -> *mut Entries<ibv_send_wr> {
    // SAFETY: the address of a field of a live allocation.
    unsafe { &raw mut (*lists.as_ptr()).inline }
}

#[inline]
fn written_entries(lists: NonNull<Lists>) -> *mut Entries<ibv_send_wr> {
    // SAFETY: the address of a field of a live allocation.
    unsafe { &raw mut (*lists.as_ptr()).written }
}

impl WrList<ibv_send_wr> {
    /// The work requests for posters that write all that the opcode reads. Each listed entry keeps
    /// its link and its one SGE; a poster that points one at other SGEs calls [`WrList::altered`]
    /// after the post.
    ///
    /// # Safety
    /// The contract of [`WrList::of_thread`], for these entries.
    #[inline]
    pub(crate) unsafe fn written_of_thread() -> WrList<ibv_send_wr> {
        WrList { entries: written_entries(NonNull::new(HERE.get()).unwrap_or_else(make)) }
    }

    /// The work requests for lists of inline sends. Between posts their flags are INLINE alone and
    /// their keys 0; code that sets another flag clears it after the post.
    ///
    /// # Safety
    /// The contract of [`WrList::of_thread`], for these entries.
    #[inline]
    pub(crate) unsafe fn inline_of_thread() -> WrList<ibv_send_wr> {
        WrList { entries: inline_entries(NonNull::new(HERE.get()).unwrap_or_else(make)) }
    }
}

/// Writes the entry of each packet; stops and returns false when `write` does. There are at least
/// as many entries as packets. Unrolled by four, which halves the cost of the loop itself.
#[inline(always)]
pub(crate) fn for_each<W>(
    packets: &[Packet],
    entries: &mut [WrEntry<W>; LONGEST],
    mut write: impl FnMut(&Packet, &mut WrEntry<W>) -> bool,
) -> bool {
    let (fours, rest) = packets.as_chunks::<4>();
    let (of_fours, of_rest) = entries[..packets.len()].as_chunks_mut::<4>();
    for (packets, entries) in fours.iter().zip(of_fours) {
        if !packets.iter().zip(entries).all(|(packet, entry)| write(packet, entry)) {
            return false;
        }
    }
    rest.iter().zip(of_rest).all(|(packet, entry)| write(packet, entry))
}

/// The right to this thread's work requests of one type.
pub(crate) struct WrList<W> {
    /// The entries are reached through pointers inside themselves, so by address only.
    entries: *mut Entries<W>,
}

impl<W: WorkRequest> WrList<W> {
    /// # Safety
    /// The thread has no other handle of this type while this one is used: code with a handle calls
    /// nothing that may post, except the device.
    #[inline]
    pub(crate) unsafe fn of_thread() -> WrList<W> {
        WrList { entries: W::entries(NonNull::new(HERE.get()).unwrap_or_else(make)) }
    }

    /// The list, to be written from the first entry on. Links, `sg_list` and the usual fields must
    /// stay unchanged.
    #[inline]
    pub(crate) fn entries(&mut self) -> &mut [WrEntry<W>; LONGEST] {
        // SAFETY: alive, initialised, and the handle is the only one.
        unsafe { &mut *(&raw mut (*self.entries).list).cast() }
    }

    /// The work request to post by itself; the same rules apply.
    #[inline]
    pub(crate) fn lone(&mut self) -> &mut WrEntry<W> {
        // SAFETY: the entry is alive and initialised, and the handle is the only one.
        unsafe { &mut *self.lone_ptr() }
    }

    /// Passes the lone entry to `post`, which returns the verb's result and may set `bad_wr`.
    /// Returns `None` if it was posted; else how many were taken all the same, as for
    /// [`WrList::post`], and the verb's result.
    #[inline(always)]
    pub(crate) fn post_lone(&mut self, post: impl FnOnce(*mut W, &mut *mut W) -> i32) -> Option<(u32, i32)> {
        // SAFETY: the address of a field of ours.
        let wr = unsafe { &raw mut (*self.lone_ptr()).wr };
        let mut bad = ptr::null_mut();
        let ret = post(wr, &mut bad);
        if ret == 0 { None } else { self.refused(bad, ret) }
    }

    #[cold]
    fn refused(&mut self, bad: *mut W, ret: i32) -> Option<(u32, i32)> {
        // SAFETY: the address of a field of ours.
        let wr = unsafe { &raw mut (*self.lone_ptr()).wr };
        Some((u32::from(!ptr::eq(wr, bad)), ret))
    }

    /// Passes the first `count` entries to `post` as a list; `post` returns the verb's result and
    /// may set `bad_wr`. Returns how many of them the device took, and the verb's result.
    ///
    /// A refusal whose `bad_wr` is not in the list counts as "all were posted": slots may stay
    /// occupied without need, but memory that the device may still write is never given back.
    ///
    /// # Panics
    /// If `count` is 0 or above [`LONGEST`].
    #[inline]
    pub(crate) fn post(&mut self, count: u32, post: impl FnOnce(*mut W, &mut *mut W) -> i32) -> (u32, i32) {
        let last = (count as usize).wrapping_sub(1);
        assert!(last < LONGEST, "a list of {count} of {LONGEST} work requests");
        // SAFETY: an entry of ours, initialised, that nothing else uses outside of `post`.
        unsafe { (*self.at(last)).wr.set_next(ptr::null_mut()) };
        let mut bad = ptr::null_mut();
        // SAFETY: the address of a field of ours.
        let ret = post(unsafe { &raw mut (*self.at(0)).wr }, &mut bad);
        self.relink(last);
        if ret == 0 { (count, 0) } else { (self.taken_before(bad, count), ret) }
    }

    /// Restores the first `count` entries and the lone one. Must be called after a post that
    /// changed their usual fields.
    #[cold]
    pub(crate) fn altered(&mut self, count: usize) {
        self.restore(self.lone_ptr());
        for index in 0..count.min(LONGEST) {
            self.restore(self.at(index));
        }
    }

    #[cold]
    fn taken_before(&self, bad: *mut W, count: u32) -> u32 {
        // SAFETY: an address within an entry of ours.
        let taken = (0..count).find(|&index| ptr::eq(unsafe { &raw const (*self.at(index as usize)).wr }, bad));
        taken.unwrap_or(count)
    }

    fn restore(&mut self, entry: *mut WrEntry<W>) {
        // SAFETY: an entry of ours, initialised; the handle is the only one.
        unsafe { (*entry).wr.set_usual(&raw mut (*entry).sge) };
    }

    /// Links an entry of the list to the next one.
    #[inline]
    fn relink(&mut self, index: usize) {
        if index < LONGEST {
            // SAFETY: both are entries of ours, initialised; the handle is the only one.
            unsafe { (*self.at(index)).wr.set_next(&raw mut (*self.at(index + 1)).wr) };
        }
    }

    #[inline]
    fn lone_ptr(&self) -> *mut WrEntry<W> {
        // SAFETY: the address of a field of a live allocation.
        unsafe { &raw mut (*self.entries).lone }
    }

    /// The address of an entry of the list; all callers keep `index` at most [`LONGEST`].
    #[inline]
    fn at(&self, index: usize) -> *mut WrEntry<W> {
        debug_assert!(index <= LONGEST);
        // SAFETY: inside the array.
        unsafe { (&raw mut (*self.entries).list).cast::<WrEntry<W>>().add(index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list<W: WorkRequest>() -> WrList<W> {
        // SAFETY: each test has one, on its own thread.
        unsafe { WrList::of_thread() }
    }

    #[test]
    fn a_post_sees_its_list_and_no_more_and_the_list_stays_whole() {
        let mut list = list::<ibv_recv_wr>();
        for count in [1, 4, 64, 2, 63, 64] {
            let (taken, _) = list.post(count, |mut wr, _| {
                let mut seen = 0;
                while !wr.is_null() {
                    seen += 1;
                    // SAFETY: the list is alive.
                    wr = unsafe { (*wr).next };
                }
                assert_eq!(seen, count);
                0
            });
            assert_eq!(taken, count);
        }
        assert!(list.entries().iter().all(|entry| ptr::eq(entry.wr.sg_list, &entry.sge) && entry.wr.num_sge == 1));
        let refusal = list.post_lone(|wr, _| {
            // SAFETY: `wr` is this thread's lone entry, which is alive.
            assert!(unsafe { (*wr).next }.is_null());
            0
        });
        assert_eq!(refusal, None);
    }

    #[test]
    fn what_came_before_bad_wr_was_taken() {
        let mut list = list::<ibv_send_wr>();
        let third = &raw mut list.entries()[2].wr;
        let refuse = |at: *mut ibv_send_wr| {
            move |_: *mut ibv_send_wr, bad: &mut *mut ibv_send_wr| {
                *bad = at;
                libc::ENOMEM
            }
        };
        assert_eq!(list.post(4, refuse(third)), (2, libc::ENOMEM));
        let first = &raw mut list.entries()[0].wr;
        assert_eq!(list.post(4, refuse(first)), (0, libc::ENOMEM));
        assert_eq!(list.post(2, refuse(third)), (2, libc::ENOMEM));
        assert_eq!(list.post(4, |_, _| libc::EINVAL), (4, libc::EINVAL));
        let lone = &raw mut list.lone().wr;
        assert_eq!(list.post_lone(refuse(lone)), Some((0, libc::ENOMEM)));
        assert_eq!(list.post_lone(|_, _| libc::EINVAL), Some((1, libc::EINVAL)));
    }

    #[test]
    fn the_inline_ones_are_so_from_the_start() {
        // Regression: the first post of an lcore allocated them.
        prepare_thread();
        assert!(!HERE.get().is_null());
        // SAFETY: the only one of this thread.
        let mut list = unsafe { WrList::inline_of_thread() };
        let inline = |entry: &WrEntry<ibv_send_wr>| {
            let wr = &entry.wr;
            assert_eq!((entry.sge.lkey, wr.send_flags), (0, ibv_send_flags::IBV_SEND_INLINE.0));
            assert_eq!((wr.num_sge, wr.opcode), (1, ibv_wr_opcode::IBV_WR_SEND));
            assert!(ptr::eq(wr.sg_list, &entry.sge));
        };
        inline(list.lone());
        list.entries().iter().for_each(inline);
    }

    #[test]
    fn what_was_altered_is_put_right() {
        let mut list = list::<ibv_send_wr>();
        for entry in &mut list.entries()[..3] {
            (entry.wr.num_sge, entry.wr.opcode) = (0, ibv_wr_opcode::IBV_WR_RDMA_READ);
        }
        list.lone().wr.num_sge = 0;
        list.altered(3);
        assert_eq!(list.lone().wr.num_sge, 1);
        assert!(
            list.entries().iter().all(|entry| (entry.wr.num_sge, entry.wr.opcode) == (1, ibv_wr_opcode::IBV_WR_SEND))
        );
    }
}
