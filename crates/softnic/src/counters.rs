//! Hardware counters of a queue pair, like those of cards in
//! `/sys/class/infiniband/*/ports/*/hw_counters`.

use crate::objects::Object;
use crate::objects::qp::Qp;
pub use crate::queues::due::{DueMark, take_due_marks};
use rdma_sys::ibv_qp;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Counts into `counter`, from now on, messages to the queue pair that find no receive posted
/// (`out_of_buffer`). On UD and UC such a message is lost; on RC its sender waits, and it counts
/// once. Returns false if the queue pair has a counter already.
///
/// # Safety
/// The queue pair is alive, and was made by this crate.
pub unsafe fn count_out_of_buffer(qp: *mut ibv_qp, counter: Arc<AtomicU64>) -> bool {
    // SAFETY: the caller guarantees that the queue pair is alive.
    unsafe { Qp::from_raw(qp) }.out_of_buffer.set(counter).is_ok()
}
