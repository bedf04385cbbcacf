//! Posting receives, to a queue pair or to a shared queue.
//!
//! Guarantees: the post of a receive starts a sender that waits for one. A receive posted to a
//! queue pair in ERR is flushed.

use crate::data_path::errors::Errors;
use crate::data_path::flush;
use crate::data_path::progress;
use crate::key_table::{self, RegionKey};
use crate::objects::Object;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::State;
use crate::objects::srq::Srq;
use crate::queues::wr::RecvWr;
use rdma_sys::*;
use std::ffi::c_int;
use verbline_sync::credit::{FLUSHING, WAITING};

/// `ibv_post_recv(3)`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: ibv_post_recv(3): the queue pair is alive, the list can be read.
    let (qp, list) = unsafe { (Qp::from_raw(qp), RecvWr::list(wr)) };
    let mut errors = Errors::new();
    let mut next = list;
    let code = post_all(qp, &mut next, &mut errors);
    flush::finish(errors);
    if code != 0 {
        // SAFETY: ibv_post_recv(3): `bad_wr` can be written.
        unsafe { *bad_wr = next.map_or(std::ptr::null_mut(), RecvWr::as_ptr) };
    }
    code
}

/// `ibv_post_srq_recv(3)`.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: ibv_post_srq_recv(3): the queue is alive, the list can be read.
    let (srq, list) = unsafe { (Srq::from_raw(srq), RecvWr::list(wr)) };
    let mut next = list;
    let (code, waiting) = srq.post(&mut next);
    if let [first, ..] = *waiting {
        progress::progress_numbers(&waiting);
        srq.pass_turn(first);
    }
    if code != 0 {
        // SAFETY: ibv_post_srq_recv(3): `bad_wr` can be written.
        unsafe { *bad_wr = next.map_or(std::ptr::null_mut(), RecvWr::as_ptr) };
    }
    code
}

/// Posts the list. If it stops before the end, `next` is the refused work request.
#[inline(always)]
fn post_all(qp: &Qp, next: &mut Option<RecvWr<'_>>, errors: &mut Errors) -> c_int {
    if qp.state() == State::Reset || qp.srq().is_some() {
        return libc::EINVAL;
    }
    let rq = &qp.rq;
    // Copies, since for all the compiler knows each store below could change the queue pair.
    let (depth, max_sge) = (qp.cap.max_recv_wr, qp.cap.max_recv_sge);
    let free = rq.room(depth);
    let (mut posted, mut limit) = (free.start, free.end);
    let mut key = RegionKey::new(qp.pd, key_table::LOCAL_WRITE);
    let mut code = 0;
    let mut rest = *next;
    while let Some(wr) = rest {
        if wr.num_sge as u32 > max_sge {
            // As unsigned, a negative number is large.
            code = libc::EINVAL;
            break;
        }
        if posted >= limit {
            limit = rq.look_again(depth);
            if posted >= limit {
                code = libc::ENOMEM;
                break;
            }
        }
        rq.write(posted, wr, &mut key);
        posted += 1;
        rest = wr.next();
    }
    *next = rest;
    if posted != free.start {
        let attention = rq.publish(posted, &qp.inbound.attention);
        if attention != 0 {
            attend(qp, attention, errors);
        }
    }
    code
}

/// After posting: a sender waits for the receive, or the receive must be flushed.
#[cold]
fn attend(qp: &Qp, attention: u32, errors: &mut Errors) {
    let inside = qp.rq.guard().enter();
    let pinned = Pinned::inside(&inside);
    if attention & FLUSHING != 0 {
        flush::receives(qp);
    } else if attention & WAITING != 0
        && let Some(sender) = fabric::lookup(pinned, qp.sq.destination())
    {
        progress::progress(sender, pinned, errors);
    }
}
