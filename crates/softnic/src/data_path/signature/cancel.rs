//! Signature pipelining: the stop behind a transfer whose check failed, and cancelling the work
//! requests posted behind it (`mlx5dv_qp_cancel_posted_send_wrs(3)`).
//!
//! Guarantees: the queue stops right behind that work request, before every later one. A work
//! request that was carried out is not cancelled. The gate opens only in RTS: it is opened, and
//! closed for a stop, under the lock of the pending work requests.

use crate::events::async_event::Kind;
use crate::objects::qp::Qp;
use crate::objects::qp_table::State;
use crate::queues::pending::Pending;
use std::ffi::c_int;

/// Moves the queue pair to SQD, behind the work request that was just completed. A queue pair that
/// left RTS meanwhile stays in its new state.
#[cold]
pub(crate) fn stop(qp: &Qp, pending: &mut Pending) {
    qp.sq.close();
    let drains = std::mem::take(&mut pending.draining) && qp.state() == State::Sqd;
    if drains || qp.leave_for(State::Rts, State::Sqd) {
        pending.notify_drained = false;
        qp.context().events.raise(qp, Kind::SqDrained);
    }
}

/// Makes the pending work requests of that `wr_id` do nothing, and returns their number. `EINVAL`
/// unless the queue pair is in SQD, and drained; `EOPNOTSUPP` if it is carried, since a carrier
/// can't take a work request back.
pub(crate) fn cancel(qp: &Qp, wr_id: u64) -> Result<u32, c_int> {
    let mut pending = qp.sq.pending.lock();
    if qp.state() != State::Sqd || pending.draining {
        return Err(libc::EINVAL);
    }
    if qp.sq.is_carried() {
        return Err(libc::EOPNOTSUPP);
    }
    Ok(pending.cancel(wr_id))
}
