//! Flushing a queue pair in ERR: every posted work request completes with `IBV_WC_WR_FLUSH_ERR`.
//!
//! Guarantees: each posted work request completes exactly once, also if others post meanwhile. The
//! flush sees each receive posted before it; the post of a later receive sees that it must flush
//! itself (`credit`).

use crate::data_path::carrier;
use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::events::async_event::Kind;
use crate::objects::fabric;
use crate::objects::guards::{self, Pinned};
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use crate::queues::pending::Pending;
use rdma_sys::ibv_wc_status;
use std::sync::atomic::Ordering;
use verbline_sync::credit::{Attention, FLUSHING, WAITING};

/// Flushes both queues. The caller holds the control lock, is inside no guard, and the queue pair
/// is in ERR.
pub(crate) fn everything(qp: &Qp, pinned: Pinned<'_>) {
    // Release pairs with the Acquire of senders.
    qp.inbound.accept.store(0, Ordering::Release);
    qp.sq.close();
    if let Some(carrier) = carrier::of_qp(qp) {
        carrier.fail(qp);
    }
    // After this no sender consumes receives and no thread carries out sends.
    guards::quiesce(guards::Taken::Qp(qp.qpn));
    let first = qp.inbound.attention.raise(FLUSHING);
    Attention::settle();
    let mut errors = Errors::new();
    {
        let mut waiting = qp.sq.pending.lock();
        pending(qp, &mut waiting, &mut errors);
        unstall(qp, pinned, &mut waiting);
    }
    match qp.srq() {
        None => receives(qp),
        Some(_) if first => qp.context().events.raise(qp, Kind::QpLastWqeReached),
        Some(_) => {}
    }
    // Only lost completions can be in here, of a queue pair that is in ERR already.
    drop(errors);
}

/// Flushes the queue pairs that failed, after leaving the guard.
#[inline(always)]
pub(crate) fn finish(errors: Errors) {
    if !errors.is_empty() {
        finish_locking(errors);
    }
}

#[cold]
fn finish_locking(errors: Errors) {
    finish_under(errors, &fabric::control());
}

/// Like [`finish`], under the control lock.
pub(crate) fn finish_under(errors: Errors, control: &fabric::Control) {
    errors.in_error(control.pinned()).for_each(|qp| everything(qp, control.pinned()));
}

/// Flushes the pending work requests.
pub(crate) fn pending(qp: &Qp, pending: &mut Pending, errors: &mut Errors) {
    while let Some((wr, position, _)) = pending.first() {
        execute::flush(qp, wr, position, errors);
        pending.advance();
    }
    pending.draining = false;
}

/// Marks that nothing is pending any more. Called also if nothing was: lowers a flag that a reset
/// left behind.
pub(crate) fn unstall(qp: &Qp, pinned: Pinned<'_>, pending: &mut Pending) {
    pending.disarm(qp.qpn);
    if let Some(peer) = fabric::lookup(pinned, qp.sq.destination())
        && !qp.is_datagram()
        && peer.sq.destination() == qp.qpn
        && peer.inbound.attention.read() & WAITING != 0
    {
        peer.inbound.attention.lower(WAITING);
    }
    if !qp.sq.is_stalled() {
        return;
    }
    qp.send_cq().stalled.remove(qp.qpn);
    qp.sq.set_stalled(false);
}

/// Frees the entries of receives of a shared queue that `qp` took and that were not polled, which
/// they never will be now. Completes each anew as [`completion::LEFT`] under `tag`, the queue
/// pair's former one. Control path; no data path is at work for the queue pair.
pub(crate) fn give_back(srq: &Srq, qp: &Qp, tag: u32) {
    for word in srq.reclaim(qp.qpn) {
        let status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
        let header = Header { word, qpn: qp.qpn, status, opcode: completion::LEFT, ..Header::default() };
        // If an overrun loses it, the queue's event has told of it.
        let _ = completion::push(qp.recv_cq(), tag, &header, [0, 0], true);
    }
}

/// Flushes the posted receives. The queue pair is in ERR and no sender is consuming them.
pub(crate) fn receives(qp: &Qp) {
    let _lock = qp.rq.lock.lock();
    loop {
        let known = qp.rq.known();
        if known.is_empty() {
            return;
        }
        for word in known.clone() {
            let status = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
            let header = Header { word, qpn: qp.qpn, status, opcode: completion::RECV, ..Header::default() };
            // If an overrun loses it, the queue's event has told of it.
            let _ = completion::push(qp.recv_cq(), qp.tag(), &header, [0, 0], true);
        }
        qp.rq.consume(known.end);
    }
}
