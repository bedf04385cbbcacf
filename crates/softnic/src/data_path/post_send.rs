//! Posts sends. Small messages (`fast_send_inline`), long ones (`fast_send_copy`) and plain RDMA
//! WRITEs and READs (`fast_rdma`) have fast paths, which check their common properties once per
//! run.
//!
//! Guarantees: the posting thread carries out work requests in order, before `ibv_post_send(3)`
//! returns, unless one has to wait (`progress`); then it and those behind it are kept in order.
//! `bad_wr` is the first refused work request; it and its successors have no effect.

use crate::data_path::carrier;
use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::data_path::fast_rdma;
use crate::data_path::fast_send_copy;
use crate::data_path::fast_send_inline;
use crate::data_path::flush;
use crate::data_path::poster::{Poster, Refused};
use crate::data_path::progress;
use crate::data_path::signature::cancel;
use crate::data_path::signature::configure;
use crate::objects::Object;
use crate::objects::mw::Mw;
use crate::objects::qp::Qp;
use crate::queues::pending::WrOutcome;
use crate::queues::wr::SendWr;
use rdma_sys::*;
use std::ffi::c_int;

/// `ibv_post_send(3)`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let mut errors = Errors::new();
    // SAFETY: ibv_post_send(3): the queue pair is alive.
    let qp = unsafe { Qp::from_raw(qp) };
    let refused = {
        let inside = qp.sq.guard.enter();
        // SAFETY: ibv_post_send(3): the list can be read, and one thread at a time posts.
        let (poster, list) = unsafe { (Poster::new(qp, &inside), SendWr::list(wr)) };
        let refused = post_all(poster, list, &mut errors);
        if qp.is_datagram()
            && let Some(carrier) = carrier::of_datagrams(qp)
        {
            carrier.send_datagrams();
        }
        refused
    };
    flush::finish(errors);
    match refused {
        Ok(()) => 0,
        Err((code, wr)) => {
            // SAFETY: ibv_post_send(3): `bad_wr` can be written.
            unsafe { *bad_wr = wr.as_ptr() };
            code
        }
    }
}

/// `ibv_bind_mw(3)`, type 1: carried out as a work request; the handle has the new key when this
/// returns.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: ibv_bind_mw(3): the window is alive, and `bind` can be read.
    let (bind, window) = unsafe { (&*bind, Mw::from_raw(mw)) };
    if window.is_type_2() {
        return libc::EINVAL;
    }
    let old = window.handle_key();
    let new = old & !0xff | u32::from((old as u8).wrapping_add(1));
    // SAFETY: numbers, pointers and unions of them, for which zero is a value.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    (wr.wr_id, wr.send_flags, wr.opcode) = (bind.wr_id, bind.send_flags, ibv_wr_opcode::IBV_WR_BIND_MW);
    wr.bind_mw_tso_union = bind_mw_tso_union_t { bind_mw: bind_mw_t { mw, rkey: new, bind_info: bind.bind_info } };
    let mut bad = std::ptr::null_mut();
    // SAFETY: ibv_bind_mw(3) demands of the program the same as ibv_post_send(3); the list is one
    // local, without elements.
    let code = unsafe { post_send(qp, &raw mut wr, &raw mut bad) };
    if code == 0 {
        window.set_handle_key(new);
    }
    code
}

/// Posts the list.
#[inline(always)]
fn post_all<'a>(poster: Poster<'_>, mut next: Option<SendWr<'a>>, errors: &mut Errors) -> Result<(), Refused<'a>> {
    while let Some(wr) = next {
        if !poster.sq.is_open() {
            next = progress::post(poster, wr, errors)?;
        } else if !poster.is_datagram()
            && let Some(rest) = post_run(poster, wr, errors)
        {
            next = rest;
        } else {
            post_one(poster, wr, errors).map_err(|code| (code, wr))?;
            next = wr.next();
        }
    }
    Ok(())
}

/// Posts the front of the list by a fast path, if one fits and is open. Returns the rest.
#[inline(always)]
fn post_run<'a>(poster: Poster<'_>, wr: SendWr<'a>, errors: &mut Errors) -> Option<Option<SendWr<'a>>> {
    match wr.opcode {
        ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_READ => fast_rdma::post(poster, wr, errors),
        _ => fast_send_inline::post(poster, wr, errors).or_else(|| fast_send_copy::post(poster, wr, errors)),
    }
}

/// Posts one work request of any kind.
// Not inlined: its caller's usual path saves fewer registers without it.
#[inline(never)]
fn post_one(poster: Poster<'_>, wr: SendWr<'_>, errors: &mut Errors) -> Result<(), c_int> {
    let bytes = execute::validate(&poster, wr)?;
    let position = poster.sq.reserve(poster.cap.max_send_wr).ok_or(libc::ENOMEM)?;
    // The fast path is open: no other thread carries out this queue's work requests.
    match execute::execute(&poster, poster.pinned, wr, bytes, errors) {
        WrOutcome::Done(bytes) => execute::complete(&poster, wr, position, bytes, errors),
        WrOutcome::Stopped(bytes) => {
            execute::complete(&poster, wr, position, bytes, errors);
            cancel::stop(&poster, &mut poster.sq.pending.lock());
        }
        WrOutcome::Configured => configure::complete(&poster, wr, position, errors),
        WrOutcome::Wait(_) => progress::begin(poster, wr, position, errors),
        WrOutcome::Failed(status) => execute::fail(&poster, wr, position, status, errors),
    }
    Ok(())
}
