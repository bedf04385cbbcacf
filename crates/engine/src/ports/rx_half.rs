//! The receive half of a port with one or many queue pairs: the source and the destination of its
//! packets, and the refilling of its receive queues.

use verbline_mem::{Batch, Packet, PoolCache};
use verbline_verbs::{Completion, PostStop, RecvOutcome};

use crate::operations::operation::mark_of;
use crate::ports::context::LcoreContext;
use crate::ports::posting::{self, Refilled};
use crate::ports::sink::Link;
use crate::stats::clock::Tick;
use crate::stats::counters::PortStats;
use crate::stats::drop_reason::DropReason;
use crate::stats::turn_time::TurnTime;

/// The destination of received packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// To this sink, a run of packets at once.
    Sink(u16),
    /// To this sink, one by one: each packet carries extra data from its completion.
    OneByOne(u16),
    Drop(DropReason),
}

impl From<Link> for Delivery {
    fn from(link: Link) -> Delivery {
        match link {
            Link::Sink(sink) => Delivery::Sink(sink),
            Link::Drop => Delivery::Drop(DropReason::Planned),
        }
    }
}

impl Delivery {
    /// Returns the delivery whose packets carry extra data from their completions.
    pub(crate) fn one_by_one(self) -> Delivery {
        match self {
            Delivery::Sink(sink) | Delivery::OneByOne(sink) => Delivery::OneByOne(sink),
            Delivery::Drop(_) => self,
        }
    }

    /// Hands a packet on.
    #[inline(always)]
    pub(super) fn hand_on(self, packet: Packet, ctx: &mut LcoreContext, stats: &PortStats) {
        match self {
            Delivery::Sink(sink) | Delivery::OneByOne(sink) => _ = ctx.sinks[usize::from(sink)].push(packet),
            Delivery::Drop(reason) => stats.drops.add(reason, 1),
        }
    }
}

/// The receive half. See the top of this file.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// The index of the pool's cache among the lcore's.
    pub(crate) cache: usize,
    pub(crate) next: Delivery,
    /// The depth of the receive queue, or of each one where every connection has its own.
    pub(crate) depth_wr: usize,
    /// Whether received packets are stamped with the time of the turn.
    timestamps: bool,
    /// Whether received packets carry their immediate data.
    pub(crate) immediates: bool,
    /// The number of missing work requests that is worth a call: a quarter of the queue, or a burst
    /// if that is less.
    pub(super) worth_wr: usize,
    /// Packets to be posted to a receive queue. Packets that the queue refused stay here.
    pub(crate) refill: Batch,
    /// Work requests short of `depth_wr`, those in `refill` included; 0 where every connection has
    /// a queue of its own.
    pub(crate) missing: usize,
    /// When to look into an empty pool again.
    pub(super) retry_ns: Option<Tick>,
}

/// The result of an attempt to fill receive queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filled {
    /// The packets taken from the pool; the pool was empty if it is starved.
    pub(super) taken: usize,
    pub(super) is_starved: bool,
    pub(super) posted: usize,
    /// Why the device refused receives that it has room for.
    pub(super) refused: Option<PostStop>,
}

impl Filled {
    #[inline]
    pub(super) fn note(&mut self, step: Refilled) {
        self.taken += step.taken;
        self.is_starved |= step.is_starved;
        self.posted += step.posted;
        self.refused = self.refused.or(step.stop.filter(|stop| !stop.is_backpressure()));
    }
}

impl Receiving {
    /// Builds the half of a receive queue with nothing posted yet.
    pub(crate) fn new(
        cache: usize,
        next: impl Into<Delivery>,
        depth_wr: usize,
        burst: usize,
        timestamps: bool,
    ) -> Receiving {
        let refill = Batch::with_capacity(burst.min(depth_wr));
        let worth_wr = refill.capacity().min(depth_wr.div_ceil(4)).max(1);
        let next = next.into();
        Receiving {
            cache,
            next,
            depth_wr,
            timestamps,
            immediates: matches!(next, Delivery::OneByOne(_)),
            worth_wr,
            refill,
            missing: depth_wr,
            retry_ns: None,
        }
    }

    /// Whether the queue needs nothing in the next turn unless something arrives.
    pub(super) fn is_settled(&self) -> bool {
        self.retry_ns.is_none() && self.missing < self.worth_wr
    }

    /// Stamps each packet of a run with this port and this turn's time, and counts them all.
    #[inline(always)]
    pub(super) fn stamp_run(
        &mut self,
        packets: &mut [Packet],
        port: u16,
        time: &TurnTime,
        stats: &PortStats,
        mut each: impl FnMut(&mut Packet),
    ) {
        self.missing += packets.len();
        stats.rx_packets.add(packets.len() as u64);
        let timestamp_ns = if self.timestamps { time.now_ns() } else { 0 };
        let mut bytes = 0;
        for packet in packets {
            bytes += packet.len() as u64;
            packet.set_port(port);
            packet.set_timestamp(timestamp_ns);
            each(packet);
        }
        stats.rx_bytes.add(bytes);
    }

    /// Like [`Receiving::stamp_run`], for one packet.
    #[inline(always)]
    pub(super) fn stamp(&self, packet: &mut Packet, port: u16, time: &TurnTime, stats: &PortStats) {
        stats.rx_packets.add(1);
        stats.rx_bytes.add(packet.len() as u64);
        packet.set_port(port);
        if self.timestamps {
            packet.set_timestamp(time.now_ns());
        }
    }

    /// Copies extra data from the completion into the packet, if the plan wants it.
    #[inline]
    pub(super) fn note(&self, packet: &mut Packet, completion: &Completion) {
        if self.immediates {
            packet.set_mark(mark_of(completion.imm(), completion.invalidated_rkey()));
        }
    }

    /// Posts missing receives, as far as the pool has packets and the queue takes them.
    // Always inlined into its callers, the two kinds of port: they take its result apart.
    #[inline(always)]
    pub(super) fn fill(&mut self, cache: &PoolCache, mut post: impl FnMut(&mut Batch) -> RecvOutcome) -> Filled {
        let mut filled = Filled::default();
        while self.missing > 0 {
            let step = posting::refill(cache, &mut self.refill, self.missing, &mut post);
            self.missing -= step.posted;
            filled.taken += step.taken;
            filled.posted += step.posted;
            if step.is_starved || step.stop.is_some() {
                filled.is_starved = step.is_starved;
                filled.refused = step.stop.filter(|stop| !stop.is_backpressure());
                break;
            }
        }
        filled
    }
}
