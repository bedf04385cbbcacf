//! Messages to a connected queue pair that consume a receive: SEND in its forms, and the end of
//! RDMA WRITE with immediate data.
//!
//! Guarantees: the bytes go from the sender's buffers straight into the posted ones, in one copy,
//! and then the receive completes. An error on the receiving side completes its receive with that
//! error and moves the receiver to ERR; an RC sender then fails with the matching remote error, a
//! UC sender isn't told (IB specification, vol. 1, 9.9: responder error behaviour).

use crate::data_path::arrival::{self, Arrival, FailedReceive, PROTECTION, TOO_SHORT};
use crate::data_path::bind;
use crate::data_path::completion;
use crate::data_path::errors::Errors;
use crate::data_path::sge_list::{Sources, Targets, move_all};
use crate::data_path::signature::indirect;
use crate::objects::guards::{Held, Pinned};
use crate::objects::qp::Qp;
use crate::queues::pending::WrOutcome;
use crate::queues::wr::SendWr;
use rdma_sys::*;

/// Carries out `IBV_WR_SEND`, `_WITH_IMM`, `_WITH_INV` on a connected queue pair.
pub(crate) fn send(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, bytes: u64, errors: &mut Errors) -> WrOutcome {
    let mut source = Sources::new(pinned);
    if source.add_list(qp.pd, wr).is_err() {
        return indirect::send(qp, pinned, wr, errors);
    }
    let Some(peer) = arrival::peer(qp, pinned) else { return arrival::unreachable_peer(qp) };
    let Some(index) = arrival::take(peer) else { return arrival::no_receive(qp, peer) };
    let (imm, flags) = arrival::extra(wr);
    let arrival = Arrival { opcode: completion::RECV, bytes, imm, flags, solicited: wr.is_solicited() };
    if flags == ibv_wc_flags::IBV_WC_WITH_INV.0 && !bind::invalidate(peer, pinned, imm) {
        return arrival::refuse_invalidation(qp, peer, index, arrival, errors);
    }
    // SAFETY: both ends, and the keys of both lists. They are regions' keys: others are denied
    // here.
    let placed = unsafe {
        place(peer, pinned, index, &source, 0, bytes, || {
            let receive = peer.receive(index);
            let keys = wr.sges().iter().map(|sge| sge.lkey).chain(receive.sges().map(|sge| sge.lkey));
            Some(keys.fold(Held::ends(qp.qpn, peer.qpn), Held::key))
        })
    };
    match placed {
        Ok(()) => arrival::arrive(qp, peer, index, arrival, errors),
        Err(fault) => arrival::refuse(qp, peer, index, arrival, fault, errors),
    }
}

/// Copies `bytes` of `source` into the buffers of a receive that was taken and isn't completed yet,
/// behind their first `skip` bytes.
///
/// # Safety
/// `held` returns `None`, or a value that satisfies `Pinned::hold`.
pub(crate) unsafe fn place(
    peer: &Qp,
    pinned: Pinned<'_>,
    index: u64,
    source: &Sources<'_>,
    skip: u64,
    bytes: u64,
    held: impl FnOnce() -> Option<Held>,
) -> Result<(), FailedReceive> {
    let wqe = peer.receive(index);
    if wqe.bytes() < skip + bytes {
        // SAFETY: `held` is the caller's, who guarantees it.
        return unsafe { indirect::place(peer, pinned, index, source, skip, TOO_SHORT, held) };
    }
    let mut target = Targets::new(pinned);
    if target.add_wqe(peer.receives_pd(), wqe, skip, bytes).is_err() {
        // SAFETY: `held` is the caller's, who guarantees it.
        return unsafe { indirect::place(peer, pinned, index, source, skip, PROTECTION, held) };
    }
    // SAFETY: `held` names all objects in use, as the caller guarantees.
    unsafe { move_all(&target, source, bytes, held) };
    Ok(())
}
