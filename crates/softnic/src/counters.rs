//! Hardware counters of a queue pair, like those of cards in
//! `/sys/class/infiniband/*/ports/*/hw_counters`.

use crate::objects::Object;
use crate::objects::qp::Qp;
use rdma_sys::ibv_qp;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// From now on counts into `counter` the messages to the queue pair that find no receive posted
/// (`out_of_buffer`): on UD and UC they are lost, on RC their sender waits, and counts once. False
/// if they are counted elsewhere already.
///
/// # Safety
/// The queue pair is alive, and was made by this crate.
pub unsafe fn count_out_of_buffer(qp: *mut ibv_qp, counter: Arc<AtomicU64>) -> bool {
    // SAFETY: the queue pair is alive, as the caller answers for.
    unsafe { Qp::from_raw(qp) }.out_of_buffer.set(counter).is_ok()
}
