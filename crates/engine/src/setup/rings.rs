//! Makes the connections between lcores, and between the embedder's threads and an lcore: rings and
//! injectors.

use std::sync::Arc;

use verbline_mem::Packet;
use verbline_plan::{Lane, Plan, WhenFull};
use verbline_ring::{Consumer, Displaced, Displacer, Producer, Waker, displacement};

use crate::api::injector::{Injector, Injectors};
use crate::control::run_control::Control;
use crate::setup::devices::Pools;
use crate::stats::snapshot::RunStats;

/// The ends of the plan's rings and injectors that the lcores have yet to take.
pub(crate) struct Between {
    pub(crate) rings: Vec<RingEnds>,
    /// The consumer of each injector, for its lcore.
    pub(crate) injected: Vec<Option<Consumer<Packet>>>,
}

/// The lanes of a ring.
pub(crate) type RingEnds = Vec<LaneEnds>;

/// The two ends of a lane, until their lcores take them.
pub(crate) struct LaneEnds {
    pub(crate) producer: Option<Producer<Packet>>,
    pub(crate) consumer: Option<Consumer<Packet>>,
    /// For a ring that drops its oldest packets.
    pub(crate) displacer: Option<Displacer>,
    pub(crate) displaced: Option<Displaced>,
}

pub(crate) fn make_rings(plan: &Plan) -> Vec<RingEnds> {
    let ends = |ring: &verbline_plan::Ring| {
        let lane = |_: &Lane| {
            let (producer, consumer) = verbline_ring::spsc(ring.depth_packets as usize);
            let displaces = (ring.full == WhenFull::Displace).then(|| displacement(consumer.capacity()));
            let (displacer, displaced) = displaces.unzip();
            LaneEnds { producer: Some(producer), consumer: Some(consumer), displacer, displaced }
        };
        ring.lanes.iter().map(lane).collect()
    };
    plan.rings().iter().map(ends).collect()
}

/// Makes the injectors, and for each the consumer of its lcore.
pub(crate) fn make_injectors(
    plan: &Plan,
    pools: &Pools,
    wakers: &[Waker],
    stats: &RunStats,
    control: &Arc<Control>,
) -> (Injectors, Vec<Option<Consumer<Packet>>>) {
    let make = |injector: &verbline_plan::Injector| {
        let (producer, consumer) = verbline_ring::spsc(injector.depth_packets as usize);
        let cache = pools[injector.pool].cache(0);
        let room_bytes = plan[injector.pool].data_bytes as usize;
        let waker = wakers[injector.lcore.index()].clone();
        let stats = stats.injectors[injector.id.index()].producer.clone();
        (Injector::new(&injector.name, producer, cache, room_bytes, waker, stats, Arc::clone(control)), Some(consumer))
    };
    let (injectors, consumers) = plan.injectors().iter().map(make).unzip();
    (Injectors(injectors), consumers)
}
