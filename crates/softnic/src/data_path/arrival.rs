//! Arrival of a message: finds the receiver, takes a receive, completes it, and tells the sender
//! the outcome.
//!
//! Guarantees: an error on the receiving side completes its receive with that error and moves the
//! receiver to ERR; an RC sender then fails with the matching remote error, a UC sender isn't told
//! (IB specification, vol. 1, 9.9: responder error behaviour).

use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::data_path::psn;
use crate::events::async_event::Kind;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::queues::pending::{Why, WrOutcome};
use crate::queues::wr::SendWr;
use crate::queues::{AWAITS_FIRST, NOT_ESTABLISHED, SENDS_FIRST};
use rdma_sys::*;
use std::sync::atomic::Ordering;
use verbline_sync::ring::Overrun;

/// A message's properties beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// `IBV_WC_RECV` or `IBV_WC_RECV_RDMA_WITH_IMM`.
    pub(crate) opcode: u32,
    pub(crate) bytes: u64,
    /// Immediate data or invalidated R_Key, with its flag.
    pub(crate) imm: u32,
    pub(crate) flags: u32,
    pub(crate) solicited: bool,
}

/// The statuses of a failed receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedReceive {
    /// The receive's status.
    pub(crate) local: u32,
    /// The RC sender's status.
    pub(crate) remote: u32,
}

/// Some buffer of the receive isn't accessible.
pub(crate) const PROTECTION: FailedReceive =
    FailedReceive { local: ibv_wc_status::IBV_WC_LOC_PROT_ERR, remote: ibv_wc_status::IBV_WC_REM_OP_ERR };
/// The message is longer than the receive.
pub(crate) const TOO_SHORT: FailedReceive =
    FailedReceive { local: ibv_wc_status::IBV_WC_LOC_LEN_ERR, remote: ibv_wc_status::IBV_WC_REM_INV_REQ_ERR };

/// The peer, if it exists, accepts our messages and expects the next. The first message establishes
/// the connection.
pub(crate) fn peer<'p>(qp: &Qp, pinned: Pinned<'p>) -> Option<&'p Qp> {
    let peer = fabric::lookup(pinned, qp.sq.destination())?;
    // Acquire pairs with the Release in `modify`: the peer is ready before it accepts.
    let accept = peer.inbound.accept.load(Ordering::Acquire);
    let from_us = accept & !(NOT_ESTABLISHED | AWAITS_FIRST) == qp.sq.expect() & !SENDS_FIRST;
    if !from_us || !psn::agree(qp, peer, accept) {
        return None;
    }
    if accept & NOT_ESTABLISHED != 0 {
        first_message(peer);
    }
    Some(peer)
}

/// Called when something arrived for a carried queue pair: the first arrival establishes the
/// connection.
pub(crate) fn establish(qp: &Qp) {
    // Relaxed: `first_message` looks again.
    if qp.inbound.accept.load(Ordering::Relaxed) & NOT_ESTABLISHED != 0 {
        first_message(qp);
    }
}

#[cold]
fn first_message(qp: &Qp) {
    // AcqRel: of two threads that see it, one raises the event; pairs with the Acquire in `peer`.
    let before = qp.inbound.accept.fetch_and(!NOT_ESTABLISHED, Ordering::AcqRel);
    if before & NOT_ESTABLISHED != 0 {
        qp.context().events.raise(qp, Kind::CommEst);
    }
}

/// The outcome if nobody answers: RC tries again, UC isn't told.
pub(crate) fn unreachable_peer(qp: &Qp) -> WrOutcome {
    if qp.transport == Transport::Rc { WrOutcome::Wait(Why::NoPeer) } else { WrOutcome::Done(0) }
}

/// The outcome if no receive is posted: RC waits, UC loses the message.
pub(crate) fn no_receive(qp: &Qp, peer: &Qp) -> WrOutcome {
    if qp.transport == Transport::Rc {
        // Relaxed: a number that the peer chose before it accepted.
        WrOutcome::Wait(Why::NoReceive(peer.inbound.min_rnr_timer.load(Ordering::Relaxed)))
    } else {
        peer.count_out_of_buffer();
        WrOutcome::Done(0)
    }
}

/// Takes a receive of a connected peer. The peer accepts messages from us only, and one thread at a
/// time carries out ours.
pub(crate) fn take(peer: &Qp) -> Option<u64> {
    match peer.srq() {
        None => peer.rq.take(),
        Some(srq) => srq.take(peer.qpn),
    }
}

/// Completes the receive with success.
pub(crate) fn arrive(qp: &Qp, peer: &Qp, index: u64, arrival: Arrival, errors: &mut Errors) -> WrOutcome {
    if complete_receive(peer, index, arrival, completion::SUCCESS, [0, 0]).is_ok() {
        return WrOutcome::Done(arrival.bytes);
    }
    // The receiver's completion queue overran: the completion is lost, and the receiver fails.
    errors.fail_fatally(peer);
    remote(qp, ibv_wc_status::IBV_WC_REM_OP_ERR)
}

/// Completes the receive with an error; the receiver goes to ERR.
#[cold]
pub(crate) fn refuse(
    qp: &Qp,
    peer: &Qp,
    index: u64,
    arrival: Arrival,
    fault: FailedReceive,
    errors: &mut Errors,
) -> WrOutcome {
    let arrival = Arrival { flags: 0, bytes: 0, ..arrival };
    // If an overrun loses the completion, the queue's event has told of it.
    let _ = complete_receive(peer, index, arrival, fault.local, [0, 0]);
    errors.fail(peer);
    remote(qp, fault.remote)
}

/// Like [`refuse`], for a message that invalidates a key which the receiver keeps. Raises the event
/// after the move to ERR: a handler that queries the state sees ERR.
#[cold]
pub(crate) fn refuse_invalidation(qp: &Qp, peer: &Qp, index: u64, arrival: Arrival, errors: &mut Errors) -> WrOutcome {
    let fault =
        FailedReceive { local: ibv_wc_status::IBV_WC_LOC_ACCESS_ERR, remote: ibv_wc_status::IBV_WC_REM_ACCESS_ERR };
    let refused = refuse(qp, peer, index, arrival, fault, errors);
    peer.context().events.raise(peer, Kind::QpAccessErr);
    refused
}

/// The sender's outcome of an error at the receiver.
pub(crate) fn remote(qp: &Qp, status: u32) -> WrOutcome {
    if qp.transport == Transport::Rc { WrOutcome::Failed(status) } else { WrOutcome::Done(0) }
}

/// Adds the completion of receive `index`.
pub(crate) fn complete_receive(
    peer: &Qp,
    index: u64,
    arrival: Arrival,
    status: u32,
    extra: completion::Extra,
) -> Result<(), Overrun> {
    let header = Header {
        word: index,
        qpn: peer.qpn,
        status,
        byte_len: arrival.bytes as u32,
        imm: arrival.imm,
        opcode: arrival.opcode,
        flags: arrival.flags,
    };
    let strong = arrival.solicited || status != completion::SUCCESS;
    completion::push(peer.recv_cq(), peer.tag(), &header, extra, strong)
}

/// Immediate data or R_Key to invalidate, with the flag of its kind.
pub(crate) fn extra(wr: SendWr<'_>) -> (u32, u32) {
    use ibv_wr_opcode::{IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV};
    match wr.opcode {
        IBV_WR_SEND_WITH_IMM | IBV_WR_RDMA_WRITE_WITH_IMM => (wr.imm_or_rkey(), ibv_wc_flags::IBV_WC_WITH_IMM.0),
        IBV_WR_SEND_WITH_INV => (wr.imm_or_rkey(), ibv_wc_flags::IBV_WC_WITH_INV.0),
        _ => (0, 0),
    }
}
