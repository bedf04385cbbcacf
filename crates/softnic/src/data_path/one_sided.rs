//! RDMA WRITE, READ and atomics: the initiator reaches into the peer's memory itself.
//!
//! Guarantees: before a byte is touched, the peer queue pair's access flags, the R_Key's protection
//! domain, bounds and rights are checked. An operation that the queue pair doesn't let in fails
//! with `REM_INV_REQ_ERR`, one that the key doesn't grant with `REM_ACCESS_ERR`. Either moves an RC
//! peer to ERR, as the specification demands for a responder's class C errors (IB specification,
//! vol. 1, 9.7.4.1 and 9.9). Atomics are atomic to each other and to the CPU's (`IBV_ATOMIC_GLOB`).

use crate::data_path::arrival::{self, Arrival};
use crate::data_path::completion;
use crate::data_path::errors::Errors;
use crate::data_path::qp_access;
use crate::data_path::sge_list::{Sources, Targets, move_all, move_bytes};
use crate::data_path::signature::indirect;
use crate::key_table;
use crate::objects::guards::{Held, Pinned};
use crate::objects::qp::Qp;
use crate::queues::pending::WrOutcome;
use crate::queues::wr::SendWr;
use rdma_sys::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Carries out `IBV_WR_RDMA_WRITE` and `_WITH_IMM`.
pub(crate) fn write(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, bytes: u64, errors: &mut Errors) -> WrOutcome {
    let (mut source, mut target) = (Sources::new(pinned), Targets::new(pinned));
    if source.add_list(qp.pd, wr).is_err() {
        return indirect::write(qp, pinned, wr, errors);
    }
    let Some(peer) = arrival::peer(qp, pinned) else { return arrival::unreachable_peer(qp) };
    if !qp_access::lets_in(peer, Targets::REMOTE) {
        return qp_access::refuse_request(qp, peer, errors);
    }
    let remote = wr.rdma();
    let Ok(region) = target.add_remote(peer, remote.rkey, remote.remote_addr, bytes) else {
        return indirect::write(qp, pinned, wr, errors);
    };
    // With immediate data the receive comes first: without one nothing is written.
    let with_imm = wr.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
    let receive = if with_imm { arrival::take(peer) } else { None };
    if with_imm && receive.is_none() {
        return arrival::no_receive(qp, peer);
    }
    // SAFETY: `held` has both ends and all regions.
    unsafe { move_all(&target, &source, bytes, || Some(held(qp, peer, wr, region))) };
    let Some(index) = receive else { return WrOutcome::Done(bytes) };
    let (imm, flags) = arrival::extra(wr);
    let arrival = Arrival { opcode: completion::RECV_RDMA_WITH_IMM, bytes, imm, flags, solicited: wr.is_solicited() };
    arrival::arrive(qp, peer, index, arrival, errors)
}

/// Carries out `IBV_WR_RDMA_READ`.
pub(crate) fn read(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, bytes: u64, errors: &mut Errors) -> WrOutcome {
    let (mut source, mut target) = (Sources::new(pinned), Targets::new(pinned));
    match add_local_target(&mut target, qp, wr) {
        Ok(()) => {}
        Err(ibv_wc_status::IBV_WC_LOC_PROT_ERR) => return indirect::read(qp, pinned, wr, errors),
        Err(status) => return WrOutcome::Failed(status),
    }
    let peer = match qp_access::reading_peer(qp, pinned, Sources::REMOTE, errors) {
        Ok(peer) => peer,
        Err(outcome) => return outcome,
    };
    let remote = wr.rdma();
    let Ok(region) = source.add_remote(peer, remote.rkey, remote.remote_addr, bytes) else {
        return indirect::read(qp, pinned, wr, errors);
    };
    // SAFETY: `held` has both ends and all regions.
    unsafe { move_all(&target, &source, bytes, || Some(held(qp, peer, wr, region))) };
    WrOutcome::Done(bytes)
}

/// The objects that a WRITE or a READ holds: both ends, the regions of its own keys, and the peer's
/// region, which a window may have led to. The window is not held: it may be bound anew meanwhile.
fn held(qp: &Qp, peer: &Qp, wr: SendWr<'_>, region: u32) -> Held {
    let keys = wr.sges().iter().map(|sge| sge.lkey);
    keys.fold(Held::ends(qp.qpn, peer.qpn).key(region), Held::key)
}

/// Carries out `IBV_WR_ATOMIC_CMP_AND_SWP` and `_FETCH_AND_ADD`, on eight bytes.
pub(crate) fn atomic(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, errors: &mut Errors) -> WrOutcome {
    let mut target = Targets::new(pinned);
    if let Err(status) = add_local_target(&mut target, qp, wr) {
        return WrOutcome::Failed(status);
    }
    let need = key_table::REMOTE_ATOMIC;
    let peer = match qp_access::reading_peer(qp, pinned, need, errors) {
        Ok(peer) => peer,
        Err(outcome) => return outcome,
    };
    // SAFETY: integers, in whichever arm they were written.
    let remote = unsafe { wr.wr.atomic };
    let Ok((at, _)) = key_table::check_remote(peer.pd, peer.qpn, remote.rkey, remote.remote_addr, 8, need) else {
        return qp_access::refuse_access(qp, peer, errors);
    };
    if !at.cast::<u64>().is_aligned() {
        return qp_access::refuse_request(qp, peer, errors);
    }
    // SAFETY: eight aligned bytes that the key granted while we are pinned; others access them with
    // atomics, or race as they would with a device.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    // SeqCst, all: atomics on one word by all initiators are in one order, which also orders the
    // data that they guard.
    let before = if wr.opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
        word.fetch_add(remote.compare_add, Ordering::SeqCst)
    } else {
        match word.compare_exchange(remote.compare_add, remote.swap, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) | Err(before) => before,
        }
    };
    let before = before.to_ne_bytes();
    let mut source = Sources::new(pinned);
    source.add_own(&before);
    move_bytes(&target, &source, 8);
    WrOutcome::Done(8)
}

/// Adds the target of a read's or an atomic's answer; or returns the status of its failure.
fn add_local_target<'p>(target: &mut Targets<'p>, qp: &Qp, wr: SendWr<'p>) -> Result<(), u32> {
    // Relaxed: changed by the control path only.
    if qp.sq.max_rd_atomic.load(Ordering::Relaxed) == 0 {
        return Err(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
    }
    target.add_list(qp.pd, wr).map_err(|_| ibv_wc_status::IBV_WC_LOC_PROT_ERR)
}
