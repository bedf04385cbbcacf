//! ibv_bind_mw(3) of a scripted device: a work request like others.

use rdma_sys::{ibv_mw, ibv_mw_bind, ibv_qp, ibv_send_wr};

/// # Safety
/// The contract of ibv_bind_mw(3): a live QP and window, and a bind that can be read.
pub(super) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, _: *mut ibv_mw, bind: *mut ibv_mw_bind) -> i32 {
    // SAFETY: integers, pointers and unions of them, for which all zeros is a value.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    // SAFETY: the caller of ibv_bind_mw(3) keeps the bind readable during the call.
    (wr.wr_id, wr.send_flags) = unsafe { ((*bind).wr_id, (*bind).send_flags) };
    let mut bad = std::ptr::null_mut();
    // SAFETY: the QP is live; the list is one local, without parts.
    unsafe { super::post_send(qp, &raw mut wr, &raw mut bad) }
}
