//! The send half of a port, whether it has one queue pair or many, and what it shares with its
//! operations where it carries out some: then sends and operations go the same way, as one list, so
//! that a WRITE in front of a SEND arrives before it.
//!
//! Each queue pair has a lane of the port's [`OperationQueue`], which lies in the port's sink.

use verbline_mem::Batch;
use verbline_verbs::Completion;

use crate::connection::port_qp::PortQp;
use crate::operations::queue::OperationQueue;
use crate::operations::queue::posting::ListDone;
use crate::ports::sink::Sink;
use crate::stats::counters::PortStats;
use crate::stats::drop_reason::DropReason;

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Sending {
    /// Index of the sink that gathers for it.
    pub(crate) sink: usize,
    /// The distance between two signaled sends of a queue pair.
    pub(crate) signal_every_wr: u32,
    /// Sends of one queue pair that may be outstanding.
    pub(super) depth_wr: usize,
    /// Packets that a completion gave back, on their way to their pool.
    pub(crate) freed: Batch,
    /// Whether the last send of every list is signaled. It is while a run drains, so that the lcore
    /// can wait for its sends.
    pub(super) signal_ends: bool,
    /// It carries out operations, whose queue is in the sink.
    pub(super) operates: bool,
}

impl Sending {
    pub(crate) fn new(sink: usize, signal_every_wr: u32, depth_wr: usize) -> Sending {
        let freed = Batch::with_capacity(depth_wr);
        Sending { sink, signal_every_wr, depth_wr, freed, signal_ends: false, operates: false }
    }

    /// The same of a port that carries out operations: `ops_depth_wr` of one queue pair at once.
    pub(crate) fn with_operations(self, ops_depth_wr: usize) -> Sending {
        Sending { freed: Batch::with_capacity(self.depth_wr + ops_depth_wr), operates: true, ..self }
    }

    /// The operations, and the packets that wait beside them.
    pub(super) fn operations<'c>(&self, sinks: &'c mut [Sink]) -> Option<(&'c mut OperationQueue, &'c mut Batch)> {
        if self.operates { sinks[self.sink].operations() } else { None }
    }

    /// Whether nothing waits.
    pub(super) fn is_settled(&self, sinks: &[Sink]) -> bool {
        let sink = &sinks[self.sink];
        sink.batch.is_empty() && !(self.operates && sink.queue().is_some_and(OperationQueue::is_waiting))
    }

    /// Takes the completion of listed work requests of a lane's queue pair. `None`: it is of
    /// nothing that is posted.
    pub(super) fn operated(
        &mut self,
        lane: usize,
        qp: &mut PortQp,
        completion: &Completion,
        sinks: &mut [Sink],
        stats: &PortStats,
    ) -> Option<ListDone> {
        let queue = self.operations(sinks).map(|(queue, _)| queue);
        let done = queue.and_then(|queue| queue.completed(lane, qp, completion, &mut self.freed).ok());
        self.freed.clear();
        let Some(done) = done else {
            stats.stale.add(1);
            return None;
        };
        qp.sends = qp.sends.saturating_sub(done.sends);
        if !completion.is_ok() && !done.of_operation {
            stats.drops.add(DropReason::SendError, 1);
        }
        Some(done)
    }

    /// Takes the completion of a send of a port whose others are all listed: it is of the marker
    /// behind everything of a queue pair that is released. False if it is not.
    pub(super) fn marker_done(&mut self, qp: &mut PortQp, completion: &Completion, stats: &PortStats) -> bool {
        let is_marker = qp.sent(completion, &mut self.freed).is_ok() && qp.is_marked();
        stats.stale.add((!is_marker).into());
        is_marker
    }
}
