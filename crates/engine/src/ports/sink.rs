//! Where packets wait within one lcore: a [`Sink`] is a bounded batch that gathers packets for a
//! stage, a port or a ring.
//!
//! A sink never grows. A packet that does not fit is dropped, and counted with the sink's drop
//! reason.

use verbline_mem::{Batch, Packet};

use crate::operations::queue::OperationQueue;
use crate::stats::counter::{Drops, Shared};
use crate::stats::counters::{PortStats, RingProducerStats, StageStats};
use crate::stats::drop_reason::DropReason;

/// The counters of the sink's owner.
#[derive(Debug)]
pub(crate) enum SinkStats {
    Stage(Shared<StageStats>),
    Port(Shared<PortStats>),
    Ring(Shared<RingProducerStats>),
    /// A port that carries out operations: they wait beside the packets.
    Operations(Box<OperationQueue>),
}

impl SinkStats {
    pub(crate) fn drops(&self) -> &Drops {
        match self {
            SinkStats::Stage(stats) => &stats.drops,
            SinkStats::Port(stats) => &stats.drops,
            SinkStats::Ring(stats) => &stats.drops,
            SinkStats::Operations(queue) => queue.drops(),
        }
    }
}

/// A bounded batch on its way to a stage, a port or a ring of the same lcore.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) batch: Batch,
    pub(crate) full: DropReason,
    pub(crate) stats: SinkStats,
}

impl Sink {
    /// The index of a sink that stays empty, on an lcore some of whose stages may be held back.
    pub(crate) const EMPTY: usize = 0;

    pub(crate) fn new(capacity: usize, full: DropReason, stats: SinkStats) -> Sink {
        Sink { batch: Batch::with_capacity(capacity), full, stats }
    }

    /// Returns the operations of the port that it gathers for, and the packets that wait beside
    /// them.
    #[inline]
    pub(crate) fn operations(&mut self) -> Option<(&mut OperationQueue, &mut Batch)> {
        match &mut self.stats {
            SinkStats::Operations(queue) => Some((queue, &mut self.batch)),
            SinkStats::Stage(_) | SinkStats::Port(_) | SinkStats::Ring(_) => None,
        }
    }

    /// Returns the operations only, read-only.
    pub(crate) fn queue(&self) -> Option<&OperationQueue> {
        match &self.stats {
            SinkStats::Operations(queue) => Some(queue),
            SinkStats::Stage(_) | SinkStats::Port(_) | SinkStats::Ring(_) => None,
        }
    }

    /// Takes the packet, or drops and counts it. Returns true if it took it.
    #[inline]
    pub(crate) fn push(&mut self, packet: Packet) -> bool {
        match self.batch.push(packet) {
            Ok(()) => true,
            Err(refused) => self.overflow(refused),
        }
    }

    /// Counts a packet without room. For a ring that drops the oldest, an older packet makes room
    /// for it.
    #[cold]
    fn overflow(&mut self, packet: Packet) -> bool {
        self.stats.drops().add(self.full, 1);
        if self.displaces() {
            drop(self.batch.take_first());
            return self.batch.push(packet).is_ok();
        }
        drop(packet);
        false
    }

    #[inline]
    pub(crate) fn displaces(&self) -> bool {
        self.full == DropReason::Displaced
    }

    /// Returns the number of packets that it takes.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        match self.batch.room() {
            0 if self.displaces() => usize::MAX,
            room => room,
        }
    }

    /// Takes the packet, or returns it.
    #[inline]
    pub(crate) fn offer(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.displaces() {
            self.push(packet);
            return Ok(());
        }
        self.batch.push(packet)
    }
}

/// The destination of a port's `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Sink(u16),
    Drop,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::stats::counter::shared;

    #[test]
    fn a_full_sink_drops_the_new_packet_or_the_oldest_where_the_ring_says_so() {
        let rig = Rig::new(8);
        for (full, kept) in [(DropReason::RingFull, [0, 1]), (DropReason::Displaced, [2, 3])] {
            let mut sink = Sink::new(2, full, SinkStats::Ring(shared()));
            for mark in 0..4 {
                let mut packet = rig.pool.cache(0).get().unwrap();
                packet.set_mark(mark);
                assert_eq!(sink.push(packet), kept.contains(&mark) || sink.displaces());
            }
            assert_eq!(sink.batch.iter().map(Packet::mark).collect::<Vec<_>>(), kept);
            assert_eq!(sink.stats.drops().count(full), 2);
        }
    }
}
