//! Packets to be sent through a port with operations: their options, and the fate of those that are
//! not sent.

use verbline_mem::{Batch, Packet};
use verbline_verbs::PostStop;
use verbline_verbs::rdma::{Work, WorkMemory};

use super::OperationQueue;
use crate::operations::operation::OperationError;
use crate::operations::send_with::{asks_for_something, options_of};
use crate::stats::drop_reason::DropReason;

impl OperationQueue {
    /// The work request of a packet to be sent, with its options if the port honours them.
    #[inline]
    pub(super) fn send_of(&self, packet: Packet) -> Work {
        match &self.returning {
            Some(_) if asks_for_something(&packet) => {
                let mut options = options_of(&packet);
                // Only RC has operations to wait for.
                options.fence &= !self.is_uc;
                Work::SendWith { packet, options }
            }
            _ => Work::Send(packet),
        }
    }

    /// Refuses the packets that wait in the sink, for this reason. Returns their number.
    pub(crate) fn refuse_sends(&mut self, batch: &mut Batch, reason: DropReason) -> usize {
        let count = batch.len();
        batch.drain_front(count).for_each(|packet| self.refuse_send(packet, reason));
        count
    }

    /// Refuses a packet, for this reason.
    #[cold]
    pub(super) fn refuse_send(&mut self, packet: Packet, reason: DropReason) {
        if let Some(returning) = &mut self.returning {
            returning.refuse(packet, reason);
        }
    }
}

/// The reason for the drop of a packet that its queue pair refuses.
pub(crate) fn refusal(stop: PostStop) -> DropReason {
    match stop {
        PostStop::TooLong { .. } => DropReason::TooLong,
        _ => DropReason::SendError,
    }
}

/// Like [`refusal`], by the error with which operations would come back.
pub(super) fn reason_of(error: OperationError) -> DropReason {
    match error {
        OperationError::Refused(stop) => refusal(stop),
        OperationError::PortDown => DropReason::PortDown,
        OperationError::ConnectionOver => DropReason::NoConnection,
        OperationError::Status(_) | OperationError::BadBlock(_) | OperationError::Lost => DropReason::SendError,
    }
}

/// The memory that a work request brings back.
pub(super) fn memory_of(work: Work) -> Option<WorkMemory> {
    match work {
        Work::Send(packet) | Work::SendWith { packet, .. } => Some(WorkMemory::Packet(packet)),
        Work::Operation { operation, .. } => operation.into_memory(),
    }
}
