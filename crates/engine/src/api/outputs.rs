//! Where packets go within one lcore. [`Outputs`] is a stage's view of the sinks
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

/// Where an output of a stage leads.
// As wide as a pointer needs it: which of them it is stays the one question that is asked a packet.
#[derive(Debug)]
pub(crate) enum Output {
    Sink(u16),
    Drop,
    Spread(Box<Spread>),
    /// To a ring that drops the oldest: it takes everything.
    Displacing(u16),
}

impl Output {
    /// The sinks that packets may come into which are sent there, by their indices.
    pub(crate) fn sinks(&self) -> &[u16] {
        match self {
            Output::Sink(index) | Output::Displacing(index) => std::slice::from_ref(index),
            Output::Spread(spread) => spread.places(),
            Output::Drop => &[],
        }
    }

    /// Whether the sink with this index is one of them.
    pub(crate) fn leads_to(&self, sink: usize) -> bool {
        self.sinks().iter().any(|index| usize::from(*index) == sink)
    }
}

/// An output of a stage: the index of its name in
/// [`StageSpec::outputs`](crate::StageSpec::outputs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutId(pub u16);

/// A stage's view of its lcore: its outputs by [`OutId`], its pool, the time, its timers.
// Made anew for each call of a stage: what an lcore's stages share is one pointer of it.
pub struct Outputs<'a> {
    pub(crate) links: &'a [Output],
    pub(crate) stats: &'a CachePadded<StageStats>,
    /// What the stages of the lcore share.
    pub(crate) lcore: &'a mut LcoreState,
    /// The place of the stage's pool among the lcore's caches; past the last if it has none.
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

    /// [`Outputs::send`] to what is not one sink: apart, so that the usual case is small enough to
    /// be part of its callers.
    #[inline(never)]
    fn send_elsewhere(&mut self, out: OutId, packet: Packet) -> bool {
        match self.links.get(usize::from(out.0)) {
            Some(Output::Spread(spread)) => self.spread(spread, packet),
            Some(Output::Sink(index) | Output::Displacing(index)) => self.displace(*index, packet),
            Some(Output::Drop) => self.refuse(packet, DropReason::Planned),
            None => self.refuse(packet, DropReason::NoOutput),
        }
    }

    /// Sends as many packets as there is room for, from the front of the batch, and returns how
    /// many. The rest stays in `batch`: the stage keeps it for later or drops it. What stays in the
    /// input of [`Stage::process`](crate::Stage::process) is dropped when that returns
    /// (`unclaimed`). A stage that answers each packet of a port with one connection therefore
    /// drops none if the port's `tx_depth_wr` is at least what its peer has under way. Over many
    /// connections it may: sends that no completion covers yet take their room
    /// ([`Outputs::room_to`]), and what finds none is dropped (`tx_full`).
    ///
    /// If the plan says `drop` for this output, all packets are dropped and counted as `planned`.
    /// If it says `spread.NAME`, packets whose place has no room stay, in order, and those behind
    /// them go on.
    #[inline]
    pub fn send_batch(&mut self, out: OutId, batch: &mut Batch) -> usize {
        let Some(Output::Sink(index)) = self.links.get(usize::from(out.0)) else {
            return self.send_batch_elsewhere(out, batch);
        };
        let moved = self.lcore.ctx.sinks[usize::from(*index)].batch.append(batch);
        self.sent += moved as u64;
        moved
    }

    /// [`Outputs::send_batch`] to what is not one sink.
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

    /// How many packets the output takes now without a drop. Of a spread: wherever their keys lead.
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

    /// How many packets a connection takes now, of a port that may have many; 0 if it is over. What
    /// this turn has sent to it already is not taken off.
    pub fn room_to(&self, connection: ConnectionId) -> usize {
        self.lcore.port_of(connection).map_or(0, |port| port.room_to(connection))
    }

    /// Who is at the other end of a connection of a port that may have many, and what it was told
    /// and said as it was made: from the connection's `Opened` on, until the stages are told that
    /// it is over.
    pub fn peer(&self, connection: ConnectionId) -> Option<&ConnectionPeer> {
        self.lcore.port_of(connection).and_then(|port| port.peer(connection))
    }

    /// Closes a connection of a port that may have many, at the end of this turn: what was sent to
    /// it before is posted, and what the peer has not acknowledged by then is lost. The stages hear
    /// of it ([`Stage::connection_event`](crate::Stage::connection_event)). False if it is over
    /// already.
    pub fn close(&mut self, connection: ConnectionId) -> bool {
        self.lcore.port_of_mut(connection).is_some_and(|port| port.close(connection))
    }

    /// A packet from the stage's pool, empty and with the pool's headroom. `None` if the pool has
    /// none left, or the plan names none for this stage.
    #[inline]
    pub fn alloc(&mut self) -> Option<Packet> {
        let packet = self.cache().and_then(PoolCache::get);
        match &packet {
            Some(_) => self.lcore.ctx.stats.taken.add(1),
            None => self.stats.alloc_failed.add(1),
        }
        packet
    }

    /// Appends up to `n` packets from the stage's pool to `batch`, and returns how many.
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

    /// The time now, where the time of the loop is too old. One `rdtsc`.
    #[inline]
    pub fn fresh_ns(&self) -> Tick {
        self.lcore.ctx.time.clock().now_ns()
    }

    /// Arms a timer: [`Stage::timers`](crate::Stage::timers) gets it with `tag` in the loop that
    /// reaches the tick `at_ns`, for which the lcore wakes if it sleeps; at once if that is past.
    ///
    /// `None`, and counted as `timers_refused`, if all timers that the plan gives the stage
    /// (`timers_max`) are armed, or if the stage is a source that has finished. Armed timers keep
    /// no run from ending, and timers that come due, as a heartbeat's do, no run from draining. But
    /// a source that has said [`Next::Done`](crate::Next::Done) has only finished once none of its
    /// timers is armed.
    pub fn arm_timer(&mut self, at_ns: Tick, tag: u64) -> Option<TimerId> {
        let id = self.timers.as_mut().and_then(|timers| timers.arm(at_ns, tag));
        match id {
            Some(_) => self.stats.timers_armed.add(1),
            None => self.stats.timers_refused.add(1),
        }
        id
    }

    /// Moves a timer to another tick: cheaper than to cancel it and arm another, and the handle
    /// stays valid. False, and nothing is done, if it is no longer armed.
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

    /// Ends the run, which has failed, and says why: of what the stage can't go on after, such as a
    /// disk that is broken or a peer that contradicts itself. The run drains as when it is stopped,
    /// and its stages are called until it ends; [`Running::wait`](crate::Running::wait) gives
    /// [`Ended::Failed`](crate::Ended::Failed), and [`Running::stop`](crate::Running::stop) an
    /// [`EngineError::Failed`](crate::EngineError::Failed) with the stage and these words. Of an
    /// lcore the first failure counts. (A panic ends its lcore at once, with what it has at hand.)
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
