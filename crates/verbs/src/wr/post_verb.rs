//! The verbs that post to a QP, looked up once: the device's function, and the QP to call it for.

use std::ffi::c_int;

use rdma_sys::{ibv_qp, ibv_recv_wr, ibv_send_wr};

/// A verb that posts a list of `Wr`.
pub(crate) struct PostVerb<Wr> {
    pub(crate) qp: *mut ibv_qp,
    verb: unsafe extern "C" fn(*mut ibv_qp, *mut Wr, *mut *mut Wr) -> c_int,
}

/// ibv_post_send(3).
pub(crate) type PostSend = PostVerb<ibv_send_wr>;

/// ibv_post_recv(3).
pub(crate) type PostRecv = PostVerb<ibv_recv_wr>;

// Not derived: that would require the same of `Wr`.
impl<Wr> Clone for PostVerb<Wr> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<Wr> Copy for PostVerb<Wr> {}

impl PostSend {
    /// # Safety
    /// The QP is live.
    pub(crate) unsafe fn of(qp: *mut ibv_qp) -> PostSend {
        // SAFETY: a live QP's context is open, and its table of functions is filled.
        PostVerb { qp, verb: unsafe { (*(*qp).context).ops.post_send }.unwrap_or(not_there) }
    }

    /// Posts by another function than the driver's.
    pub(crate) fn by(
        qp: *mut ibv_qp,
        verb: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    ) -> PostSend {
        PostVerb { qp, verb }
    }
}

impl PostRecv {
    /// # Safety
    /// The QP is live.
    pub(crate) unsafe fn of(qp: *mut ibv_qp) -> PostRecv {
        // SAFETY: a live QP's context is open, and its table of functions is filled.
        PostVerb { qp, verb: unsafe { (*(*qp).context).ops.post_recv }.unwrap_or(not_there) }
    }
}

impl<Wr> PostVerb<Wr> {
    /// # Safety
    /// The QP is live. `wr` is a list of work requests that ends; their memory stays until they
    /// complete.
    #[inline(always)]
    pub(crate) unsafe fn call(self, wr: *mut Wr, bad: &mut *mut Wr) -> c_int {
        // SAFETY: by the contract above, the QP is live, and `wr` a list that ends and stays.
        unsafe { (self.verb)(self.qp, wr, bad) }
    }
}

/// # Safety
/// `bad` may be written.
unsafe extern "C" fn not_there<Wr>(_: *mut ibv_qp, wr: *mut Wr, bad: *mut *mut Wr) -> c_int {
    // SAFETY: by the contract above, `bad` may be written.
    unsafe { *bad = wr };
    libc::ENOSYS
}
