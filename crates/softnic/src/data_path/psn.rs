//! Packet sequence numbers: an RC receiver accepts messages from its configured number on.
//!
//! Guarantees: the first message of a sender gets through only if its `sq_psn` is the receiver's
//! `rq_psn` and it is the receiver's first as well. Another one isn't answered: a number ahead is a
//! gap, a number behind is a duplicate, and the answer to either is about packets that the sender
//! doesn't wait for (IB specification, vol. 1, 9.7.4.1). So the sender's time-outs expire. After
//! the first message the two count alike until one of them is reset; then they differ again. A UC
//! receiver takes a message that starts anywhere (9.8.2), so nothing is compared there.
//!
//! Packets aren't counted: the numbers are compared once per connection, off the fast path, which
//! both flags close.

use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::queues::{AWAITS_FIRST, SENDS_FIRST};
use std::sync::atomic::Ordering;

/// `flag`, on transports that compare numbers.
pub(crate) fn where_compared(transport: Transport, flag: u32) -> u32 {
    if transport == Transport::Rc { flag } else { 0 }
}

/// Whether `peer`, whose `accept` was read, expects the next message of `qp`.
pub(crate) fn agree(qp: &Qp, peer: &Qp, accept: u32) -> bool {
    match (qp.sq.expect() & SENDS_FIRST != 0, accept & AWAITS_FIRST != 0) {
        (false, false) => true,
        // Relaxed, both: set by the control path before the one accepted and the other sent.
        (true, true) => qp.sq.psn.load(Ordering::Relaxed) == peer.inbound.rq_psn.load(Ordering::Relaxed),
        _ => false,
    }
}

/// Called after a work request of `qp`: from now on both ends count alike.
#[inline(always)]
pub(crate) fn carried_out(qp: &Qp, pinned: Pinned<'_>) {
    if qp.sq.expect() & SENDS_FIRST != 0 {
        first_arrived(qp, pinned);
    }
}

#[cold]
fn first_arrived(qp: &Qp, pinned: Pinned<'_>) {
    if let Some(peer) = fabric::lookup(pinned, qp.sq.destination()) {
        // AcqRel: like every change of it except the control path's, which waits for our guard
        // first.
        peer.inbound.accept.fetch_and(!AWAITS_FIRST, Ordering::AcqRel);
    }
    qp.sq.first_was_sent();
}
