//! Messages and one-sided work requests through indirect keys: `message` and `one_sided` continue
//! here when a key was denied.
//!
//! Guarantees: the same checks in the same order. Paths that know only regions call nothing here
//! until a key was denied, and continue here only if it is an indirect key; otherwise the outcome
//! is their own.
//!
//! A work request whose own key found a fault succeeds all the same: the fault is recorded when the
//! queue's completions are polled, and a queue pair for signature pipelining stops behind the work
//! request ([`WrOutcome::Stopped`]).

use crate::data_path::arrival::{self, Arrival, FailedReceive, PROTECTION, TOO_SHORT};
use crate::data_path::bind;
use crate::data_path::completion::{self, Header};
use crate::data_path::errors::Errors;
use crate::data_path::psn;
use crate::data_path::qp_access;
use crate::data_path::sge_list::Sources;
use crate::data_path::signature::indirect_sge::{From, To, transfer};
use crate::key_table::{self, Denied};
use crate::objects::cq::Cq;
use crate::objects::guards::{Held, Pinned};
use crate::objects::qp::Qp;
use crate::queues::pending::WrOutcome;
use crate::queues::wqe::Wqe;
use crate::queues::wr::MESSAGE_BYTES_MAX;
use crate::queues::wr::SendWr;
use crate::signature::mkey::{self, Mkey};
use rdma_sys::*;

/// Carries out a SEND.
#[cold]
pub(crate) fn send(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, errors: &mut Errors) -> WrOutcome {
    let mut source = From::new(pinned);
    if add_source(&mut source, qp, pinned, wr).is_err() {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    }
    let bytes = source.wire_bytes();
    if bytes > MESSAGE_BYTES_MAX {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    }
    let Some(peer) = arrival::peer(qp, pinned) else { return arrival::unreachable_peer(qp) };
    let Some(index) = arrival::take(peer) else { return arrival::no_receive(qp, peer) };
    let (imm, flags) = arrival::extra(wr);
    let arrival = Arrival { opcode: completion::RECV, bytes, imm, flags, solicited: wr.is_solicited() };
    if flags == ibv_wc_flags::IBV_WC_WITH_INV.0 && !bind::invalidate(peer, pinned, imm) {
        return arrival::refuse_invalidation(qp, peer, index, arrival, errors);
    }
    let mut stops = false;
    let wqe = peer.receive(index);
    // SAFETY: the message is between these two queue pairs.
    if let Err(fault) = unsafe { deliver(qp, peer, pinned, wqe, &source, &mut stops) } {
        return arrival::refuse(qp, peer, index, arrival, fault, errors);
    }
    done(qp, pinned, arrival::arrive(qp, peer, index, arrival, errors), stops)
}

/// Carries out an RDMA WRITE.
#[cold]
pub(crate) fn write(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, errors: &mut Errors) -> WrOutcome {
    let mut source = From::new(pinned);
    if add_source(&mut source, qp, pinned, wr).is_err() {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    }
    let bytes = source.wire_bytes();
    if bytes > MESSAGE_BYTES_MAX {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    }
    let Some(peer) = arrival::peer(qp, pinned) else { return arrival::unreachable_peer(qp) };
    if !qp_access::lets_in(peer, key_table::REMOTE_WRITE) {
        return qp_access::refuse_request(qp, peer, errors);
    }
    let (remote, mut target) = (wr.rdma(), To::new(pinned));
    if target.add_remote(peer, remote.rkey, remote.remote_addr, bytes).is_err() {
        return qp_access::refuse_access(qp, peer, errors);
    }
    let with_imm = wr.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
    let receive = if with_imm { arrival::take(peer) } else { None };
    if with_imm && receive.is_none() {
        return arrival::no_receive(qp, peer);
    }
    let mut stops = false;
    let mut found = |key: &_, of_target| found_by_requester(qp, key, of_target, &mut stops);
    // SAFETY: beside the two queue pairs, this thread uses only objects that the ends' keys led to.
    if unsafe { transfer(Held::ends(qp.qpn, peer.qpn), &target, &source, &mut found) }.is_err() {
        return qp_access::refuse_access(qp, peer, errors);
    }
    let Some(index) = receive else { return done(qp, pinned, WrOutcome::Done(bytes), stops) };
    let (imm, flags) = arrival::extra(wr);
    let arrival = Arrival { opcode: completion::RECV_RDMA_WITH_IMM, bytes, imm, flags, solicited: wr.is_solicited() };
    done(qp, pinned, arrival::arrive(qp, peer, index, arrival, errors), stops)
}

/// Carries out an RDMA READ.
#[cold]
pub(crate) fn read(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, errors: &mut Errors) -> WrOutcome {
    let mut target = To::new(pinned);
    let added = wr.sges().iter().try_for_each(|sge| target.add_local(qp.pd, sge, u64::MAX));
    if added.is_err() {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    }
    let peer = match qp_access::reading_peer(qp, pinned, key_table::REMOTE_READ, errors) {
        Ok(peer) => peer,
        Err(outcome) => return outcome,
    };
    let (remote, mut source, bytes) = (wr.rdma(), From::new(pinned), target.wire_bytes());
    if bytes > MESSAGE_BYTES_MAX {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    }
    if source.add_remote(peer, remote.rkey, remote.remote_addr, bytes).is_err() {
        return qp_access::refuse_access(qp, peer, errors);
    }
    let mut stops = false;
    // The written end is the requester's own here.
    let mut found = |key: &_, of_target: bool| found_by_requester(qp, key, !of_target, &mut stops);
    // SAFETY: beside the two queue pairs, this thread uses only objects that the ends' keys led to.
    if unsafe { transfer(Held::ends(qp.qpn, peer.qpn), &target, &source, &mut found) }.is_err() {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    }
    done(qp, pinned, WrOutcome::Done(bytes), stops)
}

/// Like `message::place`, after that failed with `fault`: returns the fault unless an indirect key
/// is the reason.
///
/// # Safety
/// As `message::place`.
#[cold]
pub(crate) unsafe fn place(
    peer: &Qp,
    pinned: Pinned<'_>,
    index: u64,
    source: &Sources<'_>,
    skip: u64,
    fault: FailedReceive,
    held: impl FnOnce() -> Option<Held>,
) -> Result<(), FailedReceive> {
    let wqe = peer.receive(index);
    let has_indirect = wqe.sges().any(|sge| mkey::lookup(pinned, sge.lkey).is_some());
    if skip > 0 || !has_indirect {
        return Err(fault);
    }
    let mut from = From::new(pinned);
    from.add_pieces(source, held()).map_err(|_| fault)?;
    // SAFETY: the receiver is one end; the other, if it is known, is in the `held` of the pieces.
    unsafe { deliver(peer, peer, pinned, wqe, &from, &mut false) }
}

/// Like `poll::place`, after that was denied: `payload` is a small message to `qp`.
#[cold]
pub(crate) fn place_small(qp: &Qp, pinned: Pinned<'_>, wqe: Wqe<'_>, payload: &[u8]) -> Result<(), Denied> {
    let mut pieces = Sources::new(pinned);
    pieces.add_own(payload);
    let (mut source, mut target) = (From::new(pinned), To::new(pinned));
    source.add_pieces(&pieces, None)?;
    add_target(&mut target, qp, wqe, source.wire_bytes()).map_err(|_| Denied)?;
    // SAFETY: holds no list of objects, since that of one end is unknown. The message is being
    // polled.
    unsafe { transfer(Held::default(), &target, &source, &mut |key, _| key.record()) }
}

/// Moves a message of `qp` into the buffers of a receive taken from `peer`.
///
/// # Safety
/// All other objects that this thread has found, and uses later, are in the `held` of `source`.
unsafe fn deliver(
    qp: &Qp,
    peer: &Qp,
    pinned: Pinned<'_>,
    wqe: Wqe<'_>,
    source: &From<'_>,
    stops: &mut bool,
) -> Result<(), FailedReceive> {
    let mut target = To::new(pinned);
    add_target(&mut target, peer, wqe, source.wire_bytes())?;
    let mut found = |key: &_, of_target| match of_target {
        // Before the receive itself completes, on the same queue.
        true => announce(peer.recv_cq(), key),
        false => found_by_requester(qp, key, false, stops),
    };
    // SAFETY: the two queue pairs, and the objects that the caller guarantees.
    let moved = unsafe { transfer(Held::ends(qp.qpn, peer.qpn), &target, source, &mut found) };
    moved.map_err(|_| PROTECTION)
}

/// Adds a receive's buffers, as far as the first `bytes` on the wire fill them.
fn add_target(target: &mut To<'_>, peer: &Qp, wqe: Wqe<'_>, bytes: u64) -> Result<(), FailedReceive> {
    for sge in wqe.sges() {
        let left = bytes - target.wire_bytes();
        if left == 0 {
            break;
        }
        target.add_local(peer.receives_pd(), &sge, left).map_err(|_| PROTECTION)?;
    }
    if target.wire_bytes() < bytes { Err(TOO_SHORT) } else { Ok(()) }
}

/// Adds the data that a work request sends.
fn add_source<'p>(source: &mut From<'p>, qp: &Qp, pinned: Pinned<'p>, wr: SendWr<'p>) -> Result<(), Denied> {
    if wr.is_inline() {
        let mut pieces = Sources::new(pinned);
        pieces.add_list(qp.pd, wr)?;
        return source.add_pieces(&pieces, None);
    }
    wr.sges().iter().try_for_each(|sge| source.add_local(qp.pd, sge, u64::MAX))
}

/// Reports a fault found by a key: the peer's, or the work request's own.
fn found_by_requester(qp: &Qp, key: &Mkey, of_peer: bool, stops: &mut bool) {
    if of_peer {
        // The key's owner polls nothing for this access.
        return key.record();
    }
    announce(qp.send_cq(), key);
    *stops |= qp.stops_at_faults;
}

/// Tells the thread that polls the queue, ahead of all later completions.
fn announce(cq: &Cq, key: &Mkey) {
    let header = Header { word: key.number().into(), opcode: completion::KEY_FAULT, ..Header::default() };
    if completion::push(cq, completion::NO_TAG, &header, [0, 0], true).is_err() {
        // The queue is lost, as its event tells; the fault is not.
        key.record();
    }
}

fn done(qp: &Qp, pinned: Pinned<'_>, outcome: WrOutcome, stops: bool) -> WrOutcome {
    match outcome {
        WrOutcome::Done(bytes) if stops => {
            psn::carried_out(qp, pinned);
            WrOutcome::Stopped(bytes)
        }
        outcome => outcome,
    }
}
