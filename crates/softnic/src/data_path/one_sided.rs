//! RDMA WRITE, READ and atomics: the initiator reaches into the peer's memory itself.
//!
//! What it guarantees: before a byte is touched, the peer queue pair's access flags, the R_Key's protection domain,
//! bounds and rights are checked. An operation that the queue pair doesn't let in is `REM_INV_REQ_ERR`, one that the key
//! doesn't grant `REM_ACCESS_ERR`; either moves an RC peer to ERR, as the specification has it for a responder's class
//! C errors (IB specification, vol. 1, 9.7.4.1 and 9.9). Atomics are atomic to each other and to the CPU's (`IBV_ATOMIC_GLOB`).

use crate::data_path::completion;
use crate::data_path::errors::Errors;
use crate::data_path::execute::Outcome;
use crate::data_path::message::{self, Arrival};
use crate::data_path::scatter::{Pieces, move_bytes};
use crate::events::async_event::Kind;
use crate::objects::key_table;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use rdma_sys::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Carries out `IBV_WR_RDMA_WRITE` and `_WITH_IMM`.
///
/// # Safety
/// As [`crate::data_path::execute::execute`].
pub(crate) unsafe fn write(qp: &Qp, wr: &ibv_send_wr, bytes: u64, errors: &mut Errors) -> Outcome {
    let (mut source, mut target) = (Pieces::new(), Pieces::new());
    // SAFETY: the caller's.
    if unsafe { message::add_source(&mut source, qp, wr) }.is_err() {
        return Outcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    }
    let Some(peer) = message::peer(qp) else { return message::unreachable_peer(qp) };
    // SAFETY: a write's arm of the union.
    let remote = unsafe { wr.wr.rdma };
    let need = key_table::REMOTE_WRITE;
    if !lets_in(peer, need) {
        return refuse_request(qp, peer, errors);
    }
    if add_remote(&mut target, peer, remote.rkey, remote.remote_addr, bytes, need).is_err() {
        return refuse_access(qp, peer, errors);
    }
    // With immediate data the receive comes first: without one nothing is written.
    let with_imm = wr.opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
    let receive = if with_imm { message::take(peer) } else { None };
    if with_imm && receive.is_none() {
        return message::no_receive(qp, peer);
    }
    // SAFETY: both ranges were granted by their keys, inside this guard.
    unsafe { move_bytes(&target, &source, bytes) };
    let Some(index) = receive else { return Outcome::Done(bytes) };
    let (imm, flags) = message::extra(wr);
    let solicited = wr.send_flags & ibv_send_flags::IBV_SEND_SOLICITED.0 != 0;
    let arrival = Arrival { opcode: completion::RECV_RDMA_WITH_IMM, bytes, imm, flags, solicited };
    message::arrive(qp, peer, index, arrival, errors)
}

/// Carries out `IBV_WR_RDMA_READ`.
///
/// # Safety
/// As [`crate::data_path::execute::execute`].
pub(crate) unsafe fn read(qp: &Qp, wr: &ibv_send_wr, bytes: u64, errors: &mut Errors) -> Outcome {
    let (mut source, mut target) = (Pieces::new(), Pieces::new());
    // SAFETY: the caller's.
    if let Err(status) = unsafe { add_local_target(&mut target, qp, wr) } {
        return Outcome::Failed(status);
    }
    let peer = match reading_peer(qp, key_table::REMOTE_READ, errors) {
        Ok(peer) => peer,
        Err(outcome) => return outcome,
    };
    // SAFETY: a read's arm of the union.
    let remote = unsafe { wr.wr.rdma };
    if add_remote(&mut source, peer, remote.rkey, remote.remote_addr, bytes, key_table::REMOTE_READ).is_err() {
        return refuse_access(qp, peer, errors);
    }
    // SAFETY: both ranges were granted by their keys, inside this guard.
    unsafe { move_bytes(&target, &source, bytes) };
    Outcome::Done(bytes)
}

/// Carries out `IBV_WR_ATOMIC_CMP_AND_SWP` and `_FETCH_AND_ADD`.
///
/// # Safety
/// As [`crate::data_path::execute::execute`].
pub(crate) unsafe fn atomic(qp: &Qp, wr: &ibv_send_wr, errors: &mut Errors) -> Outcome {
    let (mut source, mut target) = (Pieces::new(), Pieces::new());
    // SAFETY: the caller's.
    if let Err(status) = unsafe { add_local_target(&mut target, qp, wr) } {
        return Outcome::Failed(status);
    }
    let need = key_table::REMOTE_ATOMIC;
    let peer = match reading_peer(qp, need, errors) {
        Ok(peer) => peer,
        Err(outcome) => return outcome,
    };
    // SAFETY: an atomic's arm of the union.
    let remote = unsafe { wr.wr.atomic };
    let Ok(at) = key_table::check_remote(peer.pd, peer.qpn, remote.rkey, remote.remote_addr, 8, need) else {
        return refuse_access(qp, peer, errors);
    };
    if !at.cast::<u64>().is_aligned() {
        return refuse_request(qp, peer, errors);
    }
    // SAFETY: eight aligned bytes that the key granted; others reach them with atomics, or race as they would with a
    // device.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    // SeqCst, all: atomics on one word by any number of initiators are in one order, which orders what they guard.
    let before = if wr.opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
        word.fetch_add(remote.compare_add, Ordering::SeqCst)
    } else {
        match word.compare_exchange(remote.compare_add, remote.swap, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(before) | Err(before) => before,
        }
    };
    source.push((&raw const before).cast_mut().cast(), 8);
    // SAFETY: a local, and a range that its key granted; validation made sure that it has eight bytes.
    unsafe { move_bytes(&target, &source, 8) };
    Outcome::Done(8)
}

/// Adds where a read's or an atomic's answer goes; or the status with which it fails.
///
/// # Safety
/// As [`crate::data_path::execute::execute`].
unsafe fn add_local_target(target: &mut Pieces, qp: &Qp, wr: &ibv_send_wr) -> Result<(), u32> {
    // Relaxed: changed by the control path only.
    if qp.sq.max_rd_atomic.load(Ordering::Relaxed) == 0 {
        return Err(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
    }
    // SAFETY: the caller's.
    unsafe { target.add_list(qp.pd, wr.sg_list, wr.num_sge as usize, false, key_table::LOCAL_WRITE) }
        .map_err(|_| ibv_wc_status::IBV_WC_LOC_PROT_ERR)
}

/// The peer of a read or an atomic, which needs its leave and its resources; or what becomes of the request.
fn reading_peer<'a>(qp: &'a Qp, need: u32, errors: &mut Errors) -> Result<&'a Qp, Outcome> {
    let peer = message::peer(qp).ok_or_else(|| message::unreachable_peer(qp))?;
    // Relaxed: set before the peer accepted.
    if !lets_in(peer, need) || peer.inbound.max_dest_rd_atomic.load(Ordering::Relaxed) == 0 {
        return Err(refuse_request(qp, peer, errors));
    }
    Ok(peer)
}

/// Whether the queue pair's access flags let the operation in.
fn lets_in(peer: &Qp, need: u32) -> bool {
    // Relaxed: changed by the control path only.
    peer.inbound.access.load(Ordering::Relaxed) & need != 0
}

/// Adds the peer's range, if the key allows it. Nothing is checked for an empty one (IB specification,
/// vol. 1, 9.7.4.1.5: a zero-length request's R_Key isn't validated).
fn add_remote(
    range: &mut Pieces,
    peer: &Qp,
    rkey: u32,
    addr: u64,
    bytes: u64,
    need: u32,
) -> Result<(), key_table::Denied> {
    if bytes > 0 {
        range.push(key_table::check_remote(peer.pd, peer.qpn, rkey, addr, bytes, need)?, bytes as usize);
    }
    Ok(())
}

#[cold]
fn refuse_access(qp: &Qp, peer: &Qp, errors: &mut Errors) -> Outcome {
    refuse(qp, peer, Kind::QpAccessErr, ibv_wc_status::IBV_WC_REM_ACCESS_ERR, errors)
}

#[cold]
fn refuse_request(qp: &Qp, peer: &Qp, errors: &mut Errors) -> Outcome {
    refuse(qp, peer, Kind::QpReqErr, ibv_wc_status::IBV_WC_REM_INV_REQ_ERR, errors)
}

/// An RC peer goes to ERR with an event, and its initiator fails. UC drops the message.
fn refuse(qp: &Qp, peer: &Qp, kind: Kind, status: u32, errors: &mut Errors) -> Outcome {
    if peer.transport == Transport::Rc {
        peer.context().events.raise_qp(peer, kind);
        errors.fail(peer);
    }
    message::remote(qp, status)
}
