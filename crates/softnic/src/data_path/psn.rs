//! Packet sequence numbers: an RC receiver takes messages from the number on that it was told to
//! expect.
//!
//! What it guarantees: the first message of a sender gets through only if its `sq_psn` is the
//! receiver's `rq_psn` and it is the receiver's first as well. Another one isn't answered: a number
//! that is ahead is a gap, one that is behind a duplicate, and the answer to either is about
//! packets that the sender doesn't wait for (IB specification, vol. 1, 9.7.4.1). So its time-outs
//! run out. After the first message the two count alike until one of them is reset; then they part
//! again. A UC receiver takes a message that starts anywhere (9.8.2), so nothing is compared there.
//!
//! Packets aren't counted: what is compared is compared once a connection, away from the fast path,
//! which both flags close.

use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::queues::inbound_filter::{AWAITS_FIRST, SENDS_FIRST};
use std::sync::atomic::Ordering;

/// `flag`, where numbers are compared.
pub(crate) fn where_compared(transport: Transport, flag: u32) -> u32 {
    if transport == Transport::Rc { flag } else { 0 }
}

/// Whether `peer`, whose `accept` was read, expects what `qp` sends next.
pub(crate) fn agree(qp: &Qp, peer: &Qp, accept: u32) -> bool {
    match (qp.sq.expect() & SENDS_FIRST != 0, accept & AWAITS_FIRST != 0) {
        (false, false) => true,
        // Relaxed, both: the control path's, before the one accepted and the other sent.
        (true, true) => qp.sq.psn.load(Ordering::Relaxed) == peer.inbound.rq_psn.load(Ordering::Relaxed),
        _ => false,
    }
}

/// A work request of `qp` was carried out: from now on both ends count alike.
#[inline(always)]
pub(crate) fn carried_out(qp: &Qp, pinned: Pinned<'_>) {
    if qp.sq.expect() & SENDS_FIRST != 0 {
        first_arrived(qp, pinned);
    }
}

#[cold]
fn first_arrived(qp: &Qp, pinned: Pinned<'_>) {
    if let Some(peer) = fabric::lookup(pinned, qp.sq.destination()) {
        // AcqRel: as every change of it but the control path's, which waits for our guard first.
        peer.inbound.accept.fetch_and(!AWAITS_FIRST, Ordering::AcqRel);
    }
    qp.sq.first_was_sent();
}
