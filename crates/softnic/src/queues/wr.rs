//! Work requests as programs post them: proof that a list can be read.
//!
//! Guarantees: a [`SendWr`] or [`RecvWr`] is readable, with its list of elements, the bytes of
//! inline data, and all work requests behind it. `ibv_post_send(3)` and `ibv_post_recv(3)` demand
//! that of programs. Only the entry points in `provider` and `queues::pending`, which keeps copies,
//! make these values.

use rdma_sys::*;
use std::ffi::c_int;
use std::ops::Deref;

/// The longest message: 2^31 bytes, `ibv_post_send(3)`.
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1 << 31;

/// In `send_flags` of a bind kept for later: `invalidated_rkey` is the handle's key at the post. No
/// flag of libibverbs uses this bit. If a program sets it all the same, it only chooses a key to
/// compare.
const HANDLE_KEPT: u32 = 1 << 31;
/// In `send_flags` of a work request kept for later: it was cancelled. The bit is cleared in work
/// requests that a program posts.
const CANCELLED: u32 = 1 << 30;

/// A send work request that can be read.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct SendWr<'a>(&'a ibv_send_wr);

impl Deref for SendWr<'_> {
    type Target = ibv_send_wr;
    #[inline(always)]
    fn deref(&self) -> &ibv_send_wr {
        self.0
    }
}

impl<'a> SendWr<'a> {
    /// The front of a list.
    ///
    /// # Safety
    /// During `'a` the list is as `ibv_post_send(3)` demands: each work request of it, its elements
    /// and its inline data can be read, and the objects that it names are alive.
    #[inline(always)]
    pub(crate) unsafe fn list(wr: *const ibv_send_wr) -> Option<SendWr<'a>> {
        // SAFETY: readable for `'a`: the contract.
        unsafe { wr.as_ref() }.map(SendWr)
    }

    /// The next work request of the list.
    #[inline(always)]
    pub(crate) fn next(self) -> Option<SendWr<'a>> {
        // SAFETY: the contract of `list` covers the whole list.
        unsafe { SendWr::list(self.0.next) }
    }

    /// The C interface's pointer.
    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut ibv_send_wr {
        std::ptr::from_ref(self.0).cast_mut()
    }

    /// The elements. None if their number is negative.
    #[inline(always)]
    pub(crate) fn sges(self) -> &'a [ibv_sge] {
        // SAFETY: `num_sge` elements can be read, by the contract of `list`.
        unsafe { elements(self.0.sg_list, self.0.num_sge) }
    }

    /// The element, if there is exactly one.
    #[inline(always)]
    pub(crate) fn only_sge(self) -> Option<&'a ibv_sge> {
        // SAFETY: one element can be read, so the pointer isn't null, by the contract of `list`.
        (self.0.num_sge == 1).then(|| unsafe {
            std::hint::assert_unchecked(!self.0.sg_list.is_null());
            &*self.0.sg_list
        })
    }

    /// The bytes of the element, if there is exactly one.
    pub(crate) fn inline_bytes(self) -> Option<&'a [u8]> {
        let sge = self.only_sge().filter(|_| self.is_inline())?;
        // SAFETY: inline data can be read, by the contract of `list`.
        Some(unsafe { std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize) })
    }

    #[inline(always)]
    pub(crate) fn is_inline(self) -> bool {
        self.0.send_flags & ibv_send_flags::IBV_SEND_INLINE.0 != 0
    }

    #[inline(always)]
    pub(crate) fn is_solicited(self) -> bool {
        self.0.send_flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0
    }

    /// The remote address and key of an RDMA WRITE or READ.
    #[inline(always)]
    pub(crate) fn rdma(self) -> rdma_t {
        // SAFETY: integers, in whichever arm they were written.
        unsafe { self.0.wr.rdma }
    }

    /// Immediate data, or the R_Key to invalidate, depending on the opcode.
    #[inline(always)]
    pub(crate) fn imm_or_rkey(self) -> u32 {
        // SAFETY: both arms of the union are a number.
        unsafe { self.0.imm_data_invalidated_rkey_union.imm_data }
    }

    /// A copy for later, with its elements at `sg_list`. A bind's copy notes the handle's key: the
    /// program may change the handle as soon as the post has returned.
    pub(crate) fn copied(self, sg_list: *mut ibv_sge, num_sge: c_int) -> ibv_send_wr {
        // SAFETY: numbers, pointers and unions of them, which may be copied.
        let mut copy = unsafe { std::ptr::read(self.0) };
        (copy.next, copy.sg_list, copy.num_sge) = (std::ptr::null_mut(), sg_list, num_sge);
        copy.send_flags &= !CANCELLED;
        if copy.opcode == ibv_wr_opcode::IBV_WR_BIND_MW {
            // SAFETY: a bind's arm of the union; its window is alive, by the contract of `list`.
            copy.imm_data_invalidated_rkey_union.invalidated_rkey =
                unsafe { (*copy.bind_mw_tso_union.bind_mw.mw).rkey };
            copy.send_flags |= HANDLE_KEPT;
        }
        copy
    }

    /// Whether it was cancelled while it was kept: [`cancel`].
    pub(crate) fn is_cancelled(self) -> bool {
        is_cancelled(self.0)
    }

    /// For the copy of a bind: the handle's key at the post.
    pub(crate) fn kept_handle_key(self) -> Option<u32> {
        (self.0.send_flags & HANDLE_KEPT != 0).then(|| self.imm_or_rkey())
    }
}

/// Whether a copy was cancelled.
pub(crate) fn is_cancelled(copy: &ibv_send_wr) -> bool {
    copy.send_flags & CANCELLED != 0
}

/// Makes a copy do nothing but complete. Nobody reads it meanwhile.
pub(crate) fn cancel(copy: &mut ibv_send_wr) {
    copy.send_flags |= CANCELLED;
    copy.num_sge = 0;
}

/// A receive work request that can be read.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct RecvWr<'a>(&'a ibv_recv_wr);

impl Deref for RecvWr<'_> {
    type Target = ibv_recv_wr;
    #[inline(always)]
    fn deref(&self) -> &ibv_recv_wr {
        self.0
    }
}

impl<'a> RecvWr<'a> {
    /// The front of a list.
    ///
    /// # Safety
    /// During `'a` the list is as `ibv_post_recv(3)` demands: each work request of it, and its
    /// elements, can be read.
    #[inline(always)]
    pub(crate) unsafe fn list(wr: *const ibv_recv_wr) -> Option<RecvWr<'a>> {
        // SAFETY: readable for `'a`: the contract.
        unsafe { wr.as_ref() }.map(RecvWr)
    }

    /// The next work request of the list.
    #[inline(always)]
    pub(crate) fn next(self) -> Option<RecvWr<'a>> {
        // SAFETY: the contract of `list` covers the whole list.
        unsafe { RecvWr::list(self.0.next) }
    }

    /// The C interface's pointer.
    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut ibv_recv_wr {
        std::ptr::from_ref(self.0).cast_mut()
    }

    /// The elements. None if their number is negative.
    #[inline(always)]
    pub(crate) fn sges(self) -> &'a [ibv_sge] {
        // SAFETY: `num_sge` elements can be read, by the contract of `list`.
        unsafe { elements(self.0.sg_list, self.0.num_sge) }
    }
}

/// # Safety
/// `count` elements at `list` can be read during `'a`.
#[inline(always)]
unsafe fn elements<'a>(list: *const ibv_sge, count: c_int) -> &'a [ibv_sge] {
    match usize::try_from(count) {
        // SAFETY: the contract; without elements the pointer may be null.
        Ok(count) if count > 0 => unsafe { std::slice::from_raw_parts(list, count) },
        _ => &[],
    }
}

/// The bytes that an element describes: a length of 0 means 2^31 (`ibv_post_send(3)`).
#[inline(always)]
pub(crate) fn sge_bytes(sge: &ibv_sge) -> u64 {
    if sge.length == 0 { MESSAGE_BYTES_MAX } else { u64::from(sge.length) }
}
