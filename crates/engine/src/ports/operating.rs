//! The send half of a port with operations.

use verbline_mem::Batch;

use crate::operations::queue::OperationQueue;
use crate::ports::sink::{Sink, SinkStats};

/// The sending half of a port that carries out operations.
#[derive(Debug)]
pub(crate) struct Operating {
    /// Index of the sink that gathers for it, and that has its [`OperationQueue`].
    pub(crate) sink: usize,
    /// `tx_depth_wr`.
    pub(super) sends_max: usize,
    /// Packets that a completion gave back, on their way to their pool.
    pub(super) freed: Batch,
    /// The queue pair was replaced with something posted to it.
    pub(super) lost: bool,
}

impl Operating {
    pub(crate) fn new(sink: usize, tx_depth_wr: usize, ops_depth_wr: usize) -> Operating {
        let freed = Batch::with_capacity(tx_depth_wr + ops_depth_wr);
        Operating { sink, sends_max: tx_depth_wr, freed, lost: false }
    }

    pub(super) fn queue<'c>(&self, sinks: &'c mut [Sink]) -> Option<(&'c mut OperationQueue, &'c mut Batch)> {
        let sink = &mut sinks[self.sink];
        match &mut sink.stats {
            SinkStats::Operations(queue) => Some((queue, &mut sink.batch)),
            SinkStats::Stage(_) | SinkStats::Port(_) | SinkStats::Ring(_) => None,
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_settled(&self, sinks: &[Sink]) -> bool {
        let sink = &sinks[self.sink];
        let waits = matches!(&sink.stats, SinkStats::Operations(queue) if queue.is_waiting());
        sink.batch.is_empty() && !waits && !self.lost
    }
}
