//! Posting to a queue pair that configures keys on a card.
//!
//! A card takes a configuration by calls between `ibv_wr_start` and `ibv_wr_complete`, and other
//! work requests by `ibv_post_send`; both may alternate on one queue pair (`ibv_wr_post(3)`). So
//! such a queue pair has a posting function of ours in place of the driver's: it takes the same
//! lists, and cuts them at configurations. Other queue pairs do not use it.

use std::ffi::c_int;
use std::ptr;

use rdma_sys::{ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_wr_opcode};

use super::configuration::{Configuration, Setters};
use super::ffi::{exported::QpCancelPostedSendWrs, mlx5dv_qp_ex};
use super::functions::Functions;
use crate::wr::post_verb::PostSend;

/// A verb with the signature of `ibv_post_send(3)`.
type PostSendVerb = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

/// Functions and limits for posting to such a queue pair. `ibv_qp.qp_context`, the program's own
/// field, points here.
pub(crate) struct ExtendedQp {
    ex: *mut ibv_qp_ex,
    dv: *mut mlx5dv_qp_ex,
    start: unsafe extern "C" fn(*mut ibv_qp_ex),
    complete: unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int,
    setters: Setters,
    /// The driver's own.
    post_send: PostSendVerb,
    cancel: QpCancelPostedSendWrs,
    /// The most layout entries of one work request.
    max_entries: usize,
}

impl ExtendedQp {
    /// Prepares a new queue pair that configures keys; `None` if it cannot. The result must live as
    /// long as the queue pair is posted to.
    ///
    /// # Safety
    /// The queue pair is live and the library's.
    pub(crate) unsafe fn of(functions: &Functions, qp: *mut ibv_qp, max_entries: usize) -> Option<Box<ExtendedQp>> {
        // SAFETY: the contract above; a QP with the extended table gives a pointer to it, and the
        // tables stay as they are for its life.
        let extended = unsafe {
            let ex = ptr::NonNull::new((functions.qp_to_qp_ex)(qp))?.as_ptr();
            let dv = ptr::NonNull::new((functions.qp_ex_from_ibv_qp_ex)(ex))?.as_ptr();
            Box::new(ExtendedQp {
                ex,
                dv,
                start: (*ex).wr_start?,
                complete: (*ex).wr_complete?,
                setters: Setters {
                    configure: (*dv).wr_mkey_configure?,
                    access_flags: (*dv).wr_set_mkey_access_flags?,
                    layout_list: (*dv).wr_set_mkey_layout_list?,
                    layout_interleaved: (*dv).wr_set_mkey_layout_interleaved?,
                    sig_block: (*dv).wr_set_mkey_sig_block?,
                },
                post_send: (*(*qp).context).ops.post_send?,
                cancel: functions.qp_cancel_posted_send_wrs,
                max_entries,
            })
        };
        // SAFETY: live by the contract above; the field is the program's, and ours alone.
        unsafe { (*qp).qp_context = ptr::from_ref(&*extended).cast_mut().cast() };
        Some(extended)
    }

    /// The function for posting to its queue pair.
    pub(crate) fn post_verb(qp: *mut ibv_qp) -> PostSend {
        PostSend::by(qp, post_send)
    }

    /// Like `mlx5dv_qp_cancel_posted_send_wrs(3)`.
    ///
    /// # Safety
    /// The queue pair is live.
    pub(crate) unsafe fn cancel(&self, wr_id: u64) -> c_int {
        // SAFETY: the contract above; `dv` is the QP's.
        unsafe { (self.cancel)(self.dv, wr_id) }
    }

    /// Posts a configuration.
    ///
    /// # Safety
    /// The queue pair is live, `wr` points to a [`Configuration`], and that points to live objects.
    unsafe fn configure(&self, wr: &ibv_send_wr) -> c_int {
        // SAFETY: the contract above: its one SGE has the address of a configuration.
        let configuration = unsafe { &*((*wr.sg_list).addr as *const Configuration) };
        if configuration.entries() > self.max_entries {
            // The library would return ENOMEM, as if completions could help.
            return libc::EINVAL;
        }
        // SAFETY: the contract above; `ex` and `dv` are of the QP, and nothing is posted between
        // start and complete but this.
        unsafe {
            (self.start)(self.ex);
            ((*self.ex).wr_id, (*self.ex).wr_flags) = (wr.wr_id, wr.send_flags);
            configuration.tell(self.dv, &self.setters);
            (self.complete)(self.ex)
        }
    }
}

/// `ibv_post_send(3)` for such a queue pair: in order, up to the first refused work request.
///
/// # Safety
/// The contract of `ibv_post_send(3)`; `qp_context` points to an [`ExtendedQp`], and each
/// `IBV_WR_DRIVER1` to a [`Configuration`].
unsafe extern "C" fn post_send(qp: *mut ibv_qp, mut wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: by the contract above, `qp_context` leads to one, which outlives the QP.
    let extended = unsafe { &*(*qp).qp_context.cast::<ExtendedQp>() };
    while !wr.is_null() {
        // SAFETY: the contract above: each of the list is a work request, and `bad` can be written.
        unsafe {
            if is_configuration(wr) {
                match extended.configure(&*wr) {
                    0 => wr = (*wr).next,
                    errno => {
                        *bad = wr;
                        return errno;
                    }
                }
            } else {
                let last = last_before_configuration(wr);
                let rest = std::mem::replace(&mut (*last).next, ptr::null_mut());
                let ret = (extended.post_send)(qp, wr, bad);
                (*last).next = rest;
                if ret != 0 {
                    return ret;
                }
                wr = rest;
            }
        }
    }
    0
}

/// # Safety
/// `wr` points to a work request.
unsafe fn is_configuration(wr: *mut ibv_send_wr) -> bool {
    // SAFETY: by the contract above, it is a work request.
    unsafe { (*wr).opcode == ibv_wr_opcode::IBV_WR_DRIVER1 }
}

/// The last of the list that `wr` begins, or the last before a configuration.
///
/// # Safety
/// `wr` points to a list of work requests that ends.
unsafe fn last_before_configuration(wr: *mut ibv_send_wr) -> *mut ibv_send_wr {
    let mut last = wr;
    // SAFETY: the contract above: each is one until the end, which is null.
    unsafe {
        while !(*last).next.is_null() && !is_configuration((*last).next) {
            last = (*last).next;
        }
    }
    last
}
