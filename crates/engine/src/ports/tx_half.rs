//! The send half of a port with one or many queue pairs. If the port carries out operations, sends
//! and operations share one list, so that a WRITE in front of a SEND arrives before it.
//!
//! Each queue pair has a lane of the port's [`OperationQueue`], which lies in the port's sink.

use verbline_mem::Batch;
use verbline_verbs::{Completion, Stale};

use crate::connection::port_qp::{PortQp, SendDone};
use crate::operations::queue::OperationQueue;
use crate::operations::queue::posting::ListDone;
use crate::operations::send_with::Returning;
use crate::ports::datagrams::Datagrams;
use crate::ports::sink::Sink;
use crate::stats::counters::PortStats;
use crate::stats::drop_reason::DropReason;

/// The send half. See the top of this file.
#[derive(Debug)]
pub(crate) struct Sending {
    /// The index of the sink that gathers for it.
    pub(crate) sink: usize,
    /// The distance between two signaled sends of a queue pair.
    pub(crate) signal_every_wr: u32,
    /// The sends of one queue pair that may be outstanding.
    pub(super) depth_wr: usize,
    /// Packets returned by a completion, on their way to their pool.
    pub(crate) freed: Batch,
    /// Whether the last send of every list is signaled. It is while a run drains, so that the lcore
    /// can wait for its sends.
    pub(super) signal_ends: bool,
    /// The port carries out operations, whose queue is in the sink.
    pub(super) operates: bool,
    /// The port has no operations, and its packets carry no options.
    pub(super) is_plain: bool,
    /// Packets that come back, for a port without operations whose packets carry options.
    pub(super) returning: Option<Returning>,
    /// The peers of a UD port with several.
    pub(crate) datagrams: Option<Box<Datagrams>>,
}

impl Sending {
    pub(crate) fn new(sink: usize, signal_every_wr: u32, depth_wr: usize) -> Sending {
        let freed = Batch::with_capacity(depth_wr);
        Sending {
            sink,
            signal_every_wr,
            depth_wr,
            freed,
            signal_ends: false,
            operates: false,
            is_plain: true,
            returning: None,
            datagrams: None,
        }
    }

    /// Returns a half that takes the packets' options and has no operations, if `returning` is
    /// given: the place for packets that come back.
    pub(crate) fn with_options(self, returning: Option<Returning>) -> Sending {
        Sending { is_plain: returning.is_none(), returning, ..self }
    }

    /// Returns a half that carries out operations: up to `ops_depth_wr` at once on one queue pair.
    pub(crate) fn with_operations(self, ops_depth_wr: usize) -> Sending {
        let freed = Batch::with_capacity(self.depth_wr + ops_depth_wr);
        Sending { freed, operates: true, is_plain: false, ..self }
    }

    /// Adds several peers. If these include senders, the last send of every batch is signaled: an
    /// address handle that was replaced is kept until no posted send may use it.
    pub(crate) fn know_peers(&mut self, datagrams: Option<Box<Datagrams>>) {
        self.signal_ends = datagrams.as_ref().is_some_and(|datagrams| datagrams.knows_senders());
        self.datagrams = datagrams;
    }

    /// Handles the completion of sends whose packets may ask to come back.
    pub(super) fn sent_as_asked(
        &mut self,
        qp: &mut PortQp,
        completion: &Completion,
        sinks: &mut [Sink],
    ) -> Result<SendDone, Stale> {
        let done = qp.sent_into(completion, &mut self.freed);
        if let Some(returning) = &mut self.returning {
            returning.take(completion, &mut self.freed);
        }
        self.freed.clear();
        self.hand_back(sinks);
        done
    }

    /// Returns the packets that come back, where the port has any.
    fn returning<'a>(&'a mut self, sinks: &'a mut [Sink]) -> Option<&'a mut Returning> {
        match self.operates {
            true => sinks[self.sink].operations()?.0.returning.as_mut(),
            false => self.returning.as_mut(),
        }
    }

    /// Hands on the packets whose sends have ended. Packets without room there are dropped and
    /// counted there.
    pub(super) fn hand_back(&mut self, sinks: &mut [Sink]) {
        let Some((to, mut ended)) = self.returning(sinks).and_then(Returning::take_ended) else { return };
        let count = ended.len();
        for packet in ended.drain_front(count) {
            sinks[usize::from(to)].push(packet);
        }
        if let Some(returning) = self.returning(sinks) {
            returning.ended = ended;
        }
    }

    /// Returns the operations, and the packets that wait beside them.
    pub(super) fn operations<'c>(&self, sinks: &'c mut [Sink]) -> Option<(&'c mut OperationQueue, &'c mut Batch)> {
        if self.operates { sinks[self.sink].operations() } else { None }
    }

    /// Whether nothing waits.
    pub(super) fn is_settled(&self, sinks: &[Sink]) -> bool {
        let sink = &sinks[self.sink];
        sink.batch.is_empty() && (self.is_plain || self.is_settled_beside(sink))
    }

    /// Whether nothing waits besides the sink's packets.
    fn is_settled_beside(&self, sink: &Sink) -> bool {
        let operates = self.operates && sink.queue().is_some_and(OperationQueue::is_waiting);
        !operates && self.datagrams.as_ref().is_none_or(|datagrams| datagrams.is_settled())
    }

    /// Handles the completion of listed work requests of a lane's queue pair. `None`: nothing that
    /// is posted matches it.
    pub(super) fn operated(
        &mut self,
        lane: usize,
        qp: &mut PortQp,
        completion: &Completion,
        sinks: &mut [Sink],
        stats: &PortStats,
    ) -> Option<ListDone> {
        let mut queue = self.operations(sinks).map(|(queue, _)| queue);
        let done = queue.as_mut().and_then(|queue| queue.completed(lane, qp, completion, &mut self.freed).ok());
        if let Some(returning) = queue.and_then(|queue| queue.returning.as_mut()) {
            returning.take(completion, &mut self.freed);
        }
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

    /// Handles a send completion of a port whose other sends are all listed: this one is of the
    /// marker behind all the work of a released queue pair. Returns false if it is not.
    pub(super) fn marker_done(&mut self, qp: &mut PortQp, completion: &Completion, stats: &PortStats) -> bool {
        let is_marker = qp.sent(completion, &mut self.freed).is_ok() && qp.is_marked();
        stats.stale.add((!is_marker).into());
        is_marker
    }
}
