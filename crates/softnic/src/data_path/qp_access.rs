//! Remote operations that a peer lets in, and the failure of the others.
//!
//! Guarantees: an operation that the queue pair doesn't let in fails with `REM_INV_REQ_ERR`, one
//! that the key doesn't grant with `REM_ACCESS_ERR`; either moves an RC peer to ERR (IB
//! specification, vol. 1, 9.7.4.1 and 9.9).

use crate::data_path::arrival;
use crate::data_path::errors::Errors;
use crate::events::async_event::Kind;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::queues::pending::WrOutcome;
use rdma_sys::ibv_wc_status;
use std::sync::atomic::Ordering;

/// The peer of a read or an atomic, if it permits the operation and has resources for it; else the
/// outcome of the request.
pub(crate) fn reading_peer<'p>(
    qp: &Qp,
    pinned: Pinned<'p>,
    need: u32,
    errors: &mut Errors,
) -> Result<&'p Qp, WrOutcome> {
    let peer = arrival::peer(qp, pinned).ok_or_else(|| arrival::unreachable_peer(qp))?;
    // Relaxed: set before the peer accepted.
    if !lets_in(peer, need) || peer.inbound.max_dest_rd_atomic.load(Ordering::Relaxed) == 0 {
        return Err(refuse_request(qp, peer, errors));
    }
    Ok(peer)
}

/// Whether the queue pair's access flags let the operation in.
pub(crate) fn lets_in(peer: &Qp, need: u32) -> bool {
    // Relaxed: changed by the control path only.
    peer.inbound.access.load(Ordering::Relaxed) & need != 0
}

#[cold]
pub(crate) fn refuse_access(qp: &Qp, peer: &Qp, errors: &mut Errors) -> WrOutcome {
    refuse(qp, peer, Kind::QpAccessErr, ibv_wc_status::IBV_WC_REM_ACCESS_ERR, errors)
}

#[cold]
pub(crate) fn refuse_request(qp: &Qp, peer: &Qp, errors: &mut Errors) -> WrOutcome {
    refuse(qp, peer, Kind::QpReqErr, ibv_wc_status::IBV_WC_REM_INV_REQ_ERR, errors)
}

/// Moves an RC peer to ERR with an event, and fails its initiator. UC drops the message.
fn refuse(qp: &Qp, peer: &Qp, kind: Kind, status: u32, errors: &mut Errors) -> WrOutcome {
    if peer.transport == Transport::Rc {
        errors.fail_with_event(peer, kind);
    }
    arrival::remote(qp, status)
}
