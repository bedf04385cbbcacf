//! Rings, injectors and spreads: the links between stages and ports of a valid plan.

use crate::choices::{SpreadBy, WhenFull};
use crate::diag::source::Span;
use crate::ids::{Consumer, InjectorId, LcoreId, PoolId, Producer, RingId, SpreadId, StageId, Target};

/// `[ring.NAME]`: a hand-off to one lcore from one or several others. Each producing lcore has a
/// lane of its own: a single-producer single-consumer queue.
#[derive(Debug, Clone)]
pub struct Ring {
    /// Its own id.
    pub id: RingId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// Packets that each lane holds.
    pub depth_packets: u32,
    /// One for each lcore that fills the ring, at least one, in the order in which the file names
    /// them.
    pub lanes: Vec<Lane>,
    /// The stage or port that empties the ring.
    pub to: Consumer,
    /// The lcore that empties the ring; it fills no lane.
    pub to_lcore: LcoreId,
    /// The treatment of packets that the ring has no room for.
    pub full: WhenFull,
    /// Rings of one consumer with a greater number come first.
    pub priority: u32,
}

impl Ring {
    /// The lane that the lcore fills.
    pub fn lane_of(&self, lcore: LcoreId) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.lcore == lcore)
    }
}

/// The part of a ring that one lcore fills: a queue of its own.
#[derive(Debug, Clone)]
pub struct Lane {
    /// The lcore that fills it.
    pub lcore: LcoreId,
    /// The stages and ports of that lcore that send to the ring, without duplicates.
    pub from: Vec<Producer>,
    /// The capacity of the batch that gathers packets for the lane: large enough that no output on
    /// that lcore overflows it, and as large as the lane if the ring drops the oldest.
    pub batch_packets: u32,
    /// The stages of that lcore that are not run while packets wait for room: all that lead here,
    /// if the ring holds its producers back. On that lcore nothing but rings feeds them.
    pub held: Vec<StageId>,
}

/// `[injector.NAME]`: hands messages of the embedder's threads to a stage.
#[derive(Debug, Clone)]
pub struct Injector {
    /// Its own id.
    pub id: InjectorId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// The stage that it feeds.
    pub to: StageId,
    /// The lcore that runs that stage.
    pub lcore: LcoreId,
    /// The pool that messages are copied into.
    pub pool: PoolId,
    /// Messages that the injector holds.
    pub depth_packets: u32,
}

/// `[spread.NAME]`: targets that share the packets sent to the spread.
#[derive(Debug, Clone)]
pub struct Spread {
    /// Its own id.
    pub id: SpreadId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// How packets are distributed.
    pub by: SpreadBy,
    /// The targets: stages, ports and rings, at least one, without duplicates.
    pub to: Vec<Target>,
}
