//! Where packets go within one lcore. A [`Sink`] is a bounded batch that gathers packets;
//! [`Outputs`] is a stage's view of the sinks that it may send to.
//!
//! Every link of an lcore leads to a sink: the input batch of a stage, the pending batch of a port,
//! or the pending batch of a ring. A sink never grows. A packet that does not fit is dropped, and
//! counted with the sink's drop reason.

use crossbeam_utils::CachePadded;
use verbline_mem::{Batch, Packet, PoolCache};

use crate::stats::clock::Tick;
use crate::stats::count::{Drops, Shared};
use crate::stats::counters::{LcoreStats, PortStats, RingProducerStats, StageStats};
use crate::stats::drop_reason::DropReason;
use crate::stats::turn_time::TurnTime;

/// The counters of the place that a sink belongs to.
#[derive(Debug)]
pub(crate) enum SinkStats {
    Stage(Shared<StageStats>),
    Port(Shared<PortStats>),
    Ring(Shared<RingProducerStats>),
}

impl SinkStats {
    pub(crate) fn drops(&self) -> &Drops {
        match self {
            SinkStats::Stage(stats) => &stats.drops,
            SinkStats::Port(stats) => &stats.drops,
            SinkStats::Ring(stats) => &stats.drops,
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
    pub(crate) fn new(capacity: usize, full: DropReason, stats: SinkStats) -> Sink {
        Sink { batch: Batch::with_capacity(capacity), full, stats }
    }

    /// Takes the packet, or drops it and counts that.
    #[inline]
    pub(crate) fn push(&mut self, packet: Packet) -> bool {
        match self.batch.push(packet) {
            Ok(()) => true,
            Err(refused) => {
                drop(refused);
                self.stats.drops().add(self.full, 1);
                false
            }
        }
    }
}

/// Where an output of a stage, or the `next` of a port, leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Sink(u16),
    Drop,
}

/// An output of a stage: the index of its name in
/// [`StageSpec::outputs`](crate::StageSpec::outputs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutId(pub u16);

/// A stage's view of its lcore: its outputs by [`OutId`], its pool, the time.
#[derive(Debug)]
pub struct Outputs<'a> {
    pub(crate) links: &'a [Link],
    pub(crate) sinks: &'a mut [Sink],
    pub(crate) cache: Option<&'a PoolCache>,
    pub(crate) stats: &'a CachePadded<StageStats>,
    pub(crate) lcore: &'a CachePadded<LcoreStats>,
    pub(crate) time: &'a TurnTime,
    pub(crate) sent: u64,
}

impl Outputs<'_> {
    /// Sends a packet. Returns false if the packet was dropped. A drop is counted where the packet
    /// would have gone (`tx_full`, `ring_full`, `stage_full`; `planned` if the plan says `drop`;
    /// `no_output` if there is no such output).
    #[inline]
    pub fn send(&mut self, out: OutId, packet: Packet) -> bool {
        match self.links.get(usize::from(out.0)) {
            Some(Link::Sink(index)) => {
                let taken = self.sinks[usize::from(*index)].push(packet);
                self.sent += u64::from(taken);
                taken
            }
            Some(Link::Drop) => self.refuse(packet, DropReason::Planned),
            None => self.refuse(packet, DropReason::NoOutput),
        }
    }

    /// Sends as many packets as there is room for, from the front of the batch, and returns how
    /// many. The rest stays in `batch`: the stage keeps it for later or drops it.
    ///
    /// If the plan says `drop` for this output, all packets are dropped and counted as `planned`.
    #[inline]
    pub fn send_batch(&mut self, out: OutId, batch: &mut Batch) -> usize {
        match self.links.get(usize::from(out.0)) {
            Some(Link::Sink(index)) => {
                let moved = self.sinks[usize::from(*index)].batch.append(batch);
                self.sent += moved as u64;
                moved
            }
            Some(Link::Drop) => self.refuse_all(batch, DropReason::Planned),
            None => self.refuse_all(batch, DropReason::NoOutput),
        }
    }

    /// How many packets the output takes now without a drop.
    #[inline]
    pub fn room(&self, out: OutId) -> usize {
        match self.links.get(usize::from(out.0)) {
            Some(Link::Sink(index)) => self.sinks[usize::from(*index)].batch.room(),
            Some(Link::Drop) => usize::MAX,
            None => 0,
        }
    }

    /// A packet from the stage's pool, empty and with the pool's headroom. `None` if the pool has
    /// none left, or the plan names none for this stage.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let packet = self.cache.and_then(PoolCache::get);
        match &packet {
            Some(_) => self.lcore.taken.add(1),
            None => self.stats.alloc_failed.add(1),
        }
        packet
    }

    /// Appends up to `n` packets from the stage's pool to `batch`, and returns how many.
    #[inline]
    pub fn alloc_bulk(&mut self, batch: &mut Batch, n: usize) -> usize {
        let wanted = n.min(batch.room());
        let taken = self.cache.map_or(0, |cache| cache.get_bulk(batch, wanted));
        self.lcore.taken.add(taken as u64);
        self.stats.alloc_failed.add((wanted - taken) as u64);
        taken
    }

    /// Drops a packet, and counts it at this stage.
    #[inline]
    pub fn drop(&mut self, packet: Packet, reason: DropReason) {
        drop(packet);
        self.stats.drops.add(reason, 1);
    }

    /// Drops a batch, and counts it at this stage.
    #[inline]
    pub fn drop_batch(&mut self, batch: &mut Batch, reason: DropReason) {
        self.refuse_all(batch, reason);
    }

    /// The time of this loop of the lcore. The first call in a loop may read the clock; later calls
    /// cost nothing.
    #[inline]
    pub fn now_ns(&self) -> Tick {
        self.time.now_ns()
    }

    /// The number of this loop of the lcore. Two calls with the same number were in the same loop.
    #[inline]
    pub fn turn(&self) -> u64 {
        self.lcore.loops.value()
    }

    /// The time now, where the time of the loop is too old. One `rdtsc`.
    #[inline]
    pub fn fresh_ns(&self) -> Tick {
        self.time.clock().now_ns()
    }

    #[cold]
    fn refuse(&mut self, packet: Packet, reason: DropReason) -> bool {
        self.drop(packet, reason);
        false
    }

    #[cold]
    fn refuse_all(&mut self, batch: &mut Batch, reason: DropReason) -> usize {
        self.stats.drops.add(reason, batch.len() as u64);
        batch.clear();
        0
    }
}
