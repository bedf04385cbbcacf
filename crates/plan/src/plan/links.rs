//! Rings, injectors and spreads: the links between stages and ports of a valid plan.

use crate::choices::{SpreadBy, WhenFull};
use crate::diag::source::Span;
use crate::ids::{Consumer, InjectorId, LcoreId, PoolId, Producer, RingId, SpreadId, StageId, Target};

/// `[ring.NAME]`: a hand-off to one lcore from one or several others. Each of these has a lane of
/// its own: a single-producer single-consumer queue.
#[derive(Debug, Clone)]
pub struct Ring {
    /// Its own id.
    pub id: RingId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// Packets that each of its lanes holds.
    pub depth_packets: u32,
    /// One for each lcore that fills it, at least one, in the order in which the file names them.
    pub lanes: Vec<Lane>,
    /// The stage or port that empties it.
    pub to: Consumer,
    /// The lcore that empties it; none of those that fill it.
    pub to_lcore: LcoreId,
    /// What becomes of packets that it has no room for.
    pub full: WhenFull,
    /// Of the rings of one consumer, those with the greatest number come first.
    pub priority: u32,
}

impl Ring {
    /// What the lcore fills of it.
    pub fn lane_of(&self, lcore: LcoreId) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.lcore == lcore)
    }
}

/// The part of a ring that one lcore fills: a queue of its own.
#[derive(Debug, Clone)]
pub struct Lane {
    /// The lcore that fills it.
    pub lcore: LcoreId,
    /// The stages and ports of that lcore that send to the ring, each once.
    pub from: Vec<Producer>,
    /// The capacity of the batch that gathers packets for it: large enough that no output on that
    /// lcore overflows it; of a ring that drops the oldest, also as large as the lane.
    pub batch_packets: u32,
    /// The stages of that lcore that are not run while packets wait for room: all that lead here,
    /// if the ring holds its producers back. Nothing else of the lcore feeds them but rings.
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
    /// Messages that it holds.
    pub depth_packets: u32,
}

/// `[spread.NAME]`: targets that share what is sent to the spread.
#[derive(Debug, Clone)]
pub struct Spread {
    /// Its own id.
    pub id: SpreadId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// How packets are dealt out.
    pub by: SpreadBy,
    /// Its places: stages, ports and rings, each once, at least one.
    pub to: Vec<Target>,
}
