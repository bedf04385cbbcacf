//! The receive half of a port, whether it has one queue pair or many: where its packets come from
//! and go to, and how a receive queue is kept full.

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

/// Where received packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A run of them at once.
    Sink(u16),
    /// One by one: each carries what its completion says besides.
    OneByOne(u16),
    Drop,
}

impl From<Link> for Delivery {
    fn from(link: Link) -> Delivery {
        match link {
            Link::Sink(sink) => Delivery::Sink(sink),
            Link::Drop => Delivery::Drop,
        }
    }
}

impl Delivery {
    /// With what the completion of each says besides.
    pub(crate) fn one_by_one(self) -> Delivery {
        match self {
            Delivery::Sink(sink) | Delivery::OneByOne(sink) => Delivery::OneByOne(sink),
            Delivery::Drop => Delivery::Drop,
        }
    }

    /// Hands a packet on.
    #[inline(always)]
    pub(super) fn hand_on(self, packet: Packet, ctx: &mut LcoreContext, stats: &PortStats) {
        match self {
            Delivery::Sink(sink) | Delivery::OneByOne(sink) => _ = ctx.sinks[usize::from(sink)].push(packet),
            Delivery::Drop => stats.drops.add(DropReason::Planned, 1),
        }
    }
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// Index of the pool's cache among the lcore's.
    pub(crate) cache: usize,
    pub(crate) next: Delivery,
    /// Of the receive queue, or of each where every connection has its own.
    pub(crate) depth_wr: usize,
    /// Whether received packets are stamped with the time of the turn.
    timestamps: bool,
    /// Whether they carry the immediate data that came with them.
    pub(crate) immediates: bool,
    /// How many missing work requests of a queue are worth a call: a quarter of it, or a burst if
    /// that is less.
    pub(super) worth_wr: usize,
    /// Packets to be posted to a receive queue. Packets that the queue refused stay here.
    pub(crate) refill: Batch,
    /// Work requests short of `depth_wr`, those in `refill` included; 0 where every connection has
    /// a queue of its own.
    pub(crate) missing: usize,
    /// When to look into an empty pool again.
    pub(super) retry_ns: Option<Tick>,
}

/// What became of an attempt to fill receive queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filled {
    /// Packets that were taken from the pool, which was empty if it is starved.
    pub(super) taken: usize,
    pub(super) is_starved: bool,
    pub(super) posted: usize,
    /// Why the device refused something that it has room for.
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
    /// A receive queue with nothing posted yet.
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

    /// Whether the queue wants nothing in the next turn unless something arrives.
    pub(super) fn is_settled(&self) -> bool {
        self.retry_ns.is_none() && self.missing < self.worth_wr
    }

    /// Packets of a run are this port's, of this turn: each is stamped, and all are counted.
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

    /// The same of one packet.
    #[inline(always)]
    pub(super) fn stamp(&self, packet: &mut Packet, port: u16, time: &TurnTime, stats: &PortStats) {
        stats.rx_packets.add(1);
        stats.rx_bytes.add(packet.len() as u64);
        packet.set_port(port);
        if self.timestamps {
            packet.set_timestamp(time.now_ns());
        }
    }

    /// Notes in a packet what its completion says besides, if the plan wants that.
    #[inline]
    pub(super) fn note(&self, packet: &mut Packet, completion: &Completion) {
        if self.immediates {
            packet.set_mark(mark_of(completion.imm(), completion.invalidated_rkey()));
        }
    }

    /// Posts what is missing, as far as the pool goes and the queue takes it.
    // Always a part of its callers, the two kinds of port: what it gives is taken apart there.
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
