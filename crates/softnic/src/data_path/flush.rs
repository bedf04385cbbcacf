//! Flushing a queue pair in ERR: every posted work request completes with `IBV_WC_WR_FLUSH_ERR`.
//!
//! What it guarantees: each posted work request completes exactly once, whoever posts meanwhile: a receive that is
//! posted before the flush is seen by it; one posted after sees that it must flush itself (`credit`).

use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::data_path::stall;
use crate::events::async_event::Kind;
use crate::objects::fabric;
use crate::objects::qp::Qp;
use rdma_sys::ibv_wc_status;
use std::sync::atomic::Ordering;
use verbline_sync::credit::{Attention, FLUSHING};

/// Flushes both queues. The caller holds the control lock, is inside no guard, and the queue pair is in ERR.
pub(crate) fn everything(qp: &Qp) {
    // Release pairs with the Acquire of senders.
    qp.inbound.accept.store(0, Ordering::Release);
    qp.sq.close();
    // No sender consumes receives and nobody carries out sends after this.
    fabric::quiesce();
    let first = qp.inbound.attention.raise(FLUSHING);
    Attention::settle();
    let mut errors = Errors::new();
    stall::flush(qp, &mut errors);
    match qp.srq() {
        None => receives(qp),
        Some(_) if first => qp.context().events.raise_qp(qp, Kind::QpLastWqeReached),
        Some(_) => {}
    }
    // Only lost completions can be in here, of a queue pair that is in ERR already.
    drop(errors);
}

/// Flushes the receives that are posted. The queue pair is in ERR and no sender is consuming them.
pub(crate) fn receives(qp: &Qp) {
    let _lock = qp.rq.lock.lock();
    // SAFETY: under the queue's lock, and nobody consumes without it any more.
    let consumed = unsafe { qp.rq.consumed() };
    loop {
        consumed.credit = qp.rq.posted.read();
        if consumed.head == consumed.credit {
            return;
        }
        while consumed.head != consumed.credit {
            let header = Header {
                word: consumed.head,
                qpn: qp.qpn,
                status: ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
                opcode: completion::RECV,
                ..Header::default()
            };
            // An overrun loses it: the queue's event said so.
            let _ = completion::push(qp.recv_cq(), qp.tag(), &header, [0, 0], true);
            consumed.head += 1;
        }
    }
}
