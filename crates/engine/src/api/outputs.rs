//! Paths of packets within one lcore. [`Outputs`] is a stage's view of the sinks
//! ([`crate::ports::sink::Sink`]) that it may send to.
//!
//! Every link of an lcore leads to a sink: the input batch of a stage, the pending batch of a port,
//! or the pending batch of a ring.

use std::fmt;

use crossbeam_utils::CachePadded;
use verbline_mem::{Batch, ConnectionId, Packet, PoolCache};

use crate::api::spread::Spread;
use crate::connection::acceptor::ConnectionPeer;
use crate::ports::state::LcoreState;
use crate::stats::clock::Tick;
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;
use crate::waiting::wheel::{TimerId, Wheel};

/// The destination of a stage's output.
// No wider than a pointer requires: the variant is the only question asked per packet.
#[derive(Debug)]
pub(crate) enum Output {
    Sink(u16),
    Drop,
    Spread(Box<Spread>),
    /// A ring that drops its oldest packets: it takes everything.
    Displacing(u16),
}

impl Output {
    /// The indices of the sinks that packets sent here may enter.
    pub(crate) fn sinks(&self) -> &[u16] {
        match self {
            Output::Sink(index) | Output::Displacing(index) => std::slice::from_ref(index),
            Output::Spread(spread) => spread.places(),
            Output::Drop => &[],
        }
    }

    /// Whether the sink with this index is one of the output's.
    pub(crate) fn leads_to(&self, sink: usize) -> bool {
        self.sinks().iter().any(|index| usize::from(*index) == sink)
    }
}

/// An output of a stage: the index of its name in
/// [`StageSpec::outputs`](crate::StageSpec::outputs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutId(pub u16);

/// A stage's view of its lcore: its outputs by [`OutId`], its pool, the time, its timers.
// Made anew for each call of a stage: the part that an lcore's stages share is one pointer of it.
pub struct Outputs<'a> {
    pub(crate) links: &'a [Output],
    pub(crate) stats: &'a CachePadded<StageStats>,
    /// The state that the lcore's stages share.
    pub(crate) lcore: &'a mut LcoreState,
    /// The index of the stage's pool among the lcore's caches; past the last if it has none.
    pub(crate) cache: usize,
    /// `None` if the plan gives the stage none.
    pub(crate) timers: Option<&'a mut Wheel>,
    pub(crate) sent: u64,
}

impl Outputs<'_> {
    /// Sends a packet. Returns false if the packet was dropped. A drop is counted where the packet
    /// would have gone (`tx_full`, `ring_full`, `stage_full`; `planned` if the plan says `drop`;
    /// `no_output` if there is no such output).
    ///
    /// If the plan says `spread.NAME`, the packet goes to one of its places, or is copied to each;
    /// the answer is about the packet itself. By key, the key is the packet's mark
    /// ([`Packet::set_mark`]), which [`place_of_key`](crate::place_of_key) maps to a place.
    #[inline]
    pub fn send(&mut self, out: OutId, packet: Packet) -> bool {
        let Some(Output::Sink(index)) = self.links.get(usize::from(out.0)) else {
            return self.send_elsewhere(out, packet);
        };
        let taken = self.lcore.ctx.sinks[usize::from(*index)].push(packet);
        self.sent += u64::from(taken);
        taken
    }

    /// [`Outputs::send`] to other outputs than a single sink: apart, so that the usual case is
    /// small enough to be inlined.
    #[inline(never)]
    fn send_elsewhere(&mut self, out: OutId, packet: Packet) -> bool {
        match self.links.get(usize::from(out.0)) {
            Some(Output::Spread(spread)) => self.spread(spread, packet),
            Some(Output::Sink(index) | Output::Displacing(index)) => self.displace(*index, packet),
            Some(Output::Drop) => self.refuse(packet, DropReason::Planned),
            None => self.refuse(packet, DropReason::NoOutput),
        }
    }

    /// Sends as many packets as there is room for, from the front of the batch, and returns their
    /// number. The rest stays in `batch`: the stage keeps it for later or drops it. Packets left in
    /// the input of [`Stage::process`](crate::Stage::process) are dropped when that returns
    /// (`unclaimed`). A stage that answers each packet of a port with one connection therefore
    /// drops none if the port's `tx_depth_wr` is at least the number of its peer's outstanding
    /// packets. With many connections it may drop: sends that no completion covers yet take their
    /// room ([`Outputs::room_to`]), and packets without room are dropped (`tx_full`).
    ///
    /// If the plan says `drop` for this output, all packets are dropped and counted as `planned`.
    /// If it says `spread.NAME`, packets whose place has no room stay, in order, and later packets
    /// to other places go on.
    #[inline]
    pub fn send_batch(&mut self, out: OutId, batch: &mut Batch) -> usize {
        let Some(Output::Sink(index)) = self.links.get(usize::from(out.0)) else {
            return self.send_batch_elsewhere(out, batch);
        };
        let moved = self.lcore.ctx.sinks[usize::from(*index)].batch.append(batch);
        self.sent += moved as u64;
        moved
    }

    /// [`Outputs::send_batch`] to other outputs than a single sink.
    #[inline(never)]
    fn send_batch_elsewhere(&mut self, out: OutId, batch: &mut Batch) -> usize {
        match self.links.get(usize::from(out.0)) {
            Some(Output::Spread(spread)) => self.spread_batch(spread, batch),
            Some(Output::Sink(index) | Output::Displacing(index)) => {
                batch.offer(|packet| Ok(_ = self.displace(*index, packet)))
            }
            Some(Output::Drop) => self.refuse_all(batch, DropReason::Planned),
            None => self.refuse_all(batch, DropReason::NoOutput),
        }
    }

    /// The number of packets that the output takes now without a drop. For a spread: with any keys.
    #[inline]
    pub fn room(&self, out: OutId) -> usize {
        match self.links.get(usize::from(out.0)) {
            Some(Output::Sink(index)) => self.lcore.ctx.sinks[usize::from(*index)].batch.room(),
            Some(Output::Drop) => usize::MAX,
            Some(Output::Spread(spread)) => spread.room(|sink| self.lcore.ctx.sinks[sink].room()),
            Some(Output::Displacing(_)) => usize::MAX,
            None => 0,
        }
    }

    /// The number of packets that a connection takes now, on a port that may have many; 0 if the
    /// connection is over. Packets sent to it in this turn are not subtracted.
    pub fn room_to(&self, connection: ConnectionId) -> usize {
        self.lcore.port_of(connection).map_or(0, |port| port.room_to(connection))
    }

    /// The peer of a connection of a port that may have many, with the private data of both sides
    /// of its handshake: from the connection's `Opened` on, until the stages hear that it is over.
    pub fn peer(&self, connection: ConnectionId) -> Option<&ConnectionPeer> {
        self.lcore.port_of(connection).and_then(|port| port.peer(connection))
    }

    /// Closes a connection of a port that may have many, at the end of this turn: earlier sends to
    /// it are posted, and those that the peer has not acknowledged by then are lost. The stages
    /// hear of the end ([`Stage::connection_event`](crate::Stage::connection_event)). False if the
    /// connection is over already.
    pub fn close(&mut self, connection: ConnectionId) -> bool {
        self.lcore.port_of_mut(connection).is_some_and(|port| port.close(connection))
    }

    /// A packet from the stage's pool, empty and with the pool's headroom. `None` if the pool is
    /// empty, or the plan names no pool for this stage.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let packet = self.cache().and_then(PoolCache::get);
        match &packet {
            Some(_) => self.lcore.ctx.stats.taken.add(1),
            None => self.stats.alloc_failed.add(1),
        }
        packet
    }

    /// Appends up to `n` packets from the stage's pool to `batch`, and returns their number.
    #[inline]
    pub fn alloc_bulk(&mut self, batch: &mut Batch, n: usize) -> usize {
        let wanted = n.min(batch.room());
        let taken = self.cache().map_or(0, |cache| cache.get_bulk(batch, wanted));
        self.lcore.ctx.stats.taken.add(taken as u64);
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
        self.lcore.ctx.time.now_ns()
    }

    /// The number of this loop of the lcore. Two calls with the same number were in the same loop.
    #[inline]
    pub fn turn(&self) -> u64 {
        self.lcore.ctx.stats.loops.value()
    }

    /// The time now, for uses that need more than the time of the loop. One `rdtsc`.
    #[inline]
    pub fn fresh_ns(&self) -> Tick {
        self.lcore.ctx.time.clock().now_ns()
    }

    /// Arms a timer: [`Stage::timers`](crate::Stage::timers) gets it with `tag` in the loop that
    /// reaches the tick `at_ns`; the lcore wakes for it. A past tick is due at once.
    ///
    /// `None`, and counted as `timers_refused`, if all of the stage's timers (`timers_max`) are
    /// armed, or if the stage is a source that has finished. Armed timers do not keep a run from
    /// ending, and due timers, such as a heartbeat's, do not keep it from draining. But a source
    /// that has said [`Next::Done`](crate::Next::Done) has only finished once none of its timers is
    /// armed.
    pub fn arm_timer(&mut self, at_ns: Tick, tag: u64) -> Option<TimerId> {
        let id = self.timers.as_mut().and_then(|timers| timers.arm(at_ns, tag));
        match id {
            Some(_) => self.stats.timers_armed.add(1),
            None => self.stats.timers_refused.add(1),
        }
        id
    }

    /// Moves a timer to another tick: cheaper than canceling it and arming another, and the handle
    /// stays valid. Returns false, without effect, if the timer is no longer armed.
    pub fn rearm_timer(&mut self, id: TimerId, at_ns: Tick) -> bool {
        self.timers.as_mut().is_some_and(|timers| timers.rearm(id, at_ns))
    }

    /// Cancels a timer. False if it is no longer armed: it was canceled, or is due, perhaps in the
    /// batch that the stage is handling.
    pub fn cancel_timer(&mut self, id: TimerId) -> bool {
        let canceled = self.timers.as_mut().is_some_and(|timers| timers.cancel(id));
        self.stats.timers_canceled.add(canceled.into());
        canceled
    }

    /// Fails the run, with a reason: for faults that the stage can't continue after, such as a
    /// broken disk or a peer that contradicts itself. The run drains as after a stop, and its
    /// stages are called until it ends. [`Running::wait`](crate::Running::wait) returns
    /// [`Ended::Failed`](crate::Ended::Failed), and [`Running::stop`](crate::Running::stop) an
    /// [`EngineError::Failed`](crate::EngineError::Failed) with the stage and these words. An
    /// lcore's first failure counts. (A panic ends its lcore at once, with all packets it has at
    /// hand.)
    pub fn fail(&mut self, why: impl Into<String>) {
        let place = self.lcore.ctx.stats.calling.now().map(|(place, _)| place);
        self.lcore.failing.fail(place, why);
    }

    /// The cache of the stage's pool.
    #[inline]
    fn cache(&self) -> Option<&PoolCache> {
        self.lcore.ctx.caches.get(self.cache).map(|cache| &**cache)
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

impl fmt::Debug for Outputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outputs").field("links", &self.links).field("sent", &self.sent).finish_non_exhaustive()
    }
}
