//! Puts each lcore together: its ports, nodes, rings, sinks and caches.

use verbline_mem::{Packet, PoolCache};
use verbline_plan::{Consumer as ConsumerId, Destination, Lcore, LcoreId, Plan, PoolId, PortId, StageId, Target};
use verbline_ring::{Consumer, Producer, Waker};
use verbline_verbs::Completions;

use crate::api::outputs::{Link, Sink, SinkStats};
use crate::api::registry::Registry;
use crate::api::stage::Stage;
use crate::connection::handover::{Handovers, PortSide};
use crate::idle::policy::Budget;
use crate::idle::wake_set::WakeSet;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::poll_loop::LcoreParts;
use crate::lcore::port::{Health, Port, Receiving, Sending};
use crate::lcore::rings::{PeerDoorbell, RingConsumer, RingProducer};
use crate::setup::devices::Pools;
use crate::setup::queue_pairs::QueuePairs;
use crate::stats::clock::Clock;
use crate::stats::drop_reason::DropReason;
use crate::stats::snapshot::RunStats;

/// The two ends of a ring, until their lcores take them.
pub(crate) type RingEnds = (Option<Producer<Packet>>, Option<Consumer<Packet>>);

pub(crate) fn make_rings(plan: &Plan) -> Vec<RingEnds> {
    let ends = |ring: &verbline_plan::Ring| {
        let (producer, consumer) = verbline_ring::spsc(ring.depth_packets as usize);
        (Some(producer), Some(consumer))
    };
    plan.rings().iter().map(ends).collect()
}

/// Puts the lcores together, from what was made for all of them.
pub(crate) struct LcoreBuilder<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) registry: &'a Registry,
    pub(crate) stats: &'a RunStats,
    pub(crate) clock: &'a Clock,
    pub(crate) budgets: &'a [Budget],
    pub(crate) pools: &'a Pools,
    pub(crate) wakers: &'a [Waker],
    pub(crate) handovers: &'a Handovers,
}

/// The sinks of one lcore, and which target each belongs to.
struct Sinks {
    targets: Vec<Target>,
    sinks: Vec<Sink>,
}

impl Sinks {
    /// Plans have far fewer sinks an lcore than a `u16` counts, and `LcoreBuilder::sinks` checks
    /// it.
    fn find(&self, target: Target) -> Option<usize> {
        self.targets.iter().position(|known| *known == target)
    }

    /// The sink of a target that the plan has put on this lcore.
    fn index(&self, target: Target) -> usize {
        self.find(target).expect("a plan links only what is on one lcore, and every such target has a sink")
    }

    fn link(&self, target: Target) -> Link {
        match target {
            Target::Drop => Link::Drop,
            target => Link::Sink(self.index(target) as u16),
        }
    }
}

impl LcoreBuilder<'_> {
    pub(crate) fn build(
        &self,
        lcore: &Lcore,
        wakes: WakeSet,
        qps: &mut QueuePairs<'_>,
        rings: &mut [RingEnds],
        stages: &mut [Option<Box<dyn Stage>>],
    ) -> LcoreParts {
        let entry = &self.stats.lcores[lcore.id.index()];
        let sinks = self.sinks(lcore);
        let burst = lcore.burst_packets as usize;
        let ports = lcore.ports.iter().map(|id| self.port(*id, lcore, &sinks, qps)).collect();
        let nodes = lcore.stages.iter().map(|id| self.node(*id, lcore, &sinks, stages)).collect();
        let (rings_out, doorbells) = self.rings_out(lcore, &sinks, rings);
        let rings_in = lcore.rings_in.iter().map(|id| {
            let ring = &self.plan[*id];
            RingConsumer {
                consumer: rings[id.index()].1.take().expect("a ring has one consumer"),
                sink: sinks.index(consumer_target(ring.to)),
                burst,
                stats: self.stats.rings[id.index()].consumer.clone(),
            }
        });
        LcoreParts {
            index: lcore.id.index(),
            name: lcore.name.clone(),
            cpu: lcore.cpu,
            budget: self.budgets[lcore.id.index()],
            drain: lcore.drain,
            clock: self.clock.clone(),
            nodes,
            caches: self.caches(lcore),
            ports,
            rings_in: rings_in.collect(),
            rings_out,
            doorbells,
            wakes,
            completions: Completions::with_capacity(burst),
            stats: entry.stats.clone(),
            sinks: sinks.sinks,
        }
    }

    /// One sink for each stage, sending port and outgoing ring of the lcore, as deep as the plan
    /// has proved.
    fn sinks(&self, lcore: &Lcore) -> Sinks {
        let mut sinks = Sinks { targets: Vec::new(), sinks: Vec::new() };
        let mut add = |target, depth: u32, full, stats| {
            sinks.targets.push(target);
            sinks.sinks.push(Sink::new(depth as usize, full, stats));
        };
        for id in &lcore.stages {
            let stats = SinkStats::Stage(self.stats.stages[id.index()].stats.clone());
            add(Target::Stage(*id), self.plan[*id].batch_packets, DropReason::StageFull, stats);
        }
        for id in lcore.ports.iter().filter(|id| self.plan[**id].tx_depth_wr > 0) {
            let stats = SinkStats::Port(self.stats.ports[id.index()].stats.clone());
            add(Target::Port(*id), self.plan[*id].batch_packets, DropReason::TxFull, stats);
        }
        for id in &lcore.rings_out {
            let stats = SinkStats::Ring(self.stats.rings[id.index()].producer.clone());
            add(Target::Ring(*id), self.plan[*id].batch_packets, DropReason::RingFull, stats);
        }
        assert!(sinks.sinks.len() <= usize::from(u16::MAX), "an lcore has at most 65,535 stages, ports and rings");
        sinks
    }

    /// In the order of the lcore's pools.
    fn caches(&self, lcore: &Lcore) -> Vec<PoolCache> {
        let cache = |id: &PoolId| self.pools[*id].cache(self.plan[*id].cache_packets as usize);
        lcore.pools.iter().map(cache).collect()
    }

    fn cache_of(&self, lcore: &Lcore, pool: PoolId) -> usize {
        lcore
            .pools
            .iter()
            .position(|known| *known == pool)
            .expect("a plan gives an lcore a cache of every pool it uses")
    }

    fn port(&self, id: PortId, lcore: &Lcore, sinks: &Sinks, qps: &mut QueuePairs<'_>) -> Port {
        let port = &self.plan[id];
        let burst = lcore.burst_packets as usize;
        let receiving = port.pool.zip(port.next).filter(|_| port.rx_depth_wr > 0).map(|(pool, next)| {
            let cache = self.cache_of(lcore, pool);
            Receiving::new(cache, sinks.link(next), port.rx_depth_wr as usize, burst, port.timestamps)
        });
        let sending = (port.tx_depth_wr > 0)
            .then(|| Sending::new(sinks.index(Target::Port(id)), port.signal_every_wr, port.tx_depth_wr as usize));
        let qp = qps.take(id);
        self.stats.ports[id.index()].stats.qpn.set(qp.qpn().into());
        Port {
            name: port.name.clone(),
            index: id.index() as u16,
            qp,
            receiving,
            sending,
            stats: self.stats.ports[id.index()].stats.clone(),
            health: Health::Up,
            by_address: matches!(port.destination, Destination::Listen(_) | Destination::Connect(_)),
            inbox: None,
            reconnect: self.handovers[id.index()].clone().map(PortSide::new),
        }
    }

    fn node(&self, id: StageId, lcore: &Lcore, sinks: &Sinks, stages: &mut [Option<Box<dyn Stage>>]) -> Node {
        let stage = &self.plan[id];
        Node::new(NodeSpec {
            name: stage.name.clone(),
            source: self.registry.kind(&stage.kind).is_some_and(|kind| kind.checked.spec.source),
            stats: self.stats.stages[id.index()].stats.clone(),
            stage: stages[id.index()].take().expect("a stage is on one lcore"),
            links: stage.outputs.iter().map(|target| sinks.link(*target)).collect(),
            input: sinks.index(Target::Stage(id)),
            cache: stage.pool.map(|pool| self.cache_of(lcore, pool)),
            batch_packets: stage.batch_packets as usize,
        })
    }

    /// The rings that the lcore fills, and one doorbell for each lcore that empties some of them.
    fn rings_out(
        &self,
        lcore: &Lcore,
        sinks: &Sinks,
        rings: &mut [RingEnds],
    ) -> (Vec<RingProducer>, Vec<PeerDoorbell>) {
        let mut consumers = Vec::new();
        let mut rings_out = Vec::new();
        for id in &lcore.rings_out {
            let to = self.plan[*id].to_lcore;
            let doorbell = consumers.iter().position(|known| *known == to).unwrap_or_else(|| {
                consumers.push(to);
                consumers.len() - 1
            });
            rings_out.push(RingProducer {
                producer: rings[id.index()].0.take().expect("a ring has one producer"),
                sink: sinks.index(Target::Ring(*id)),
                doorbell,
                stats: self.stats.rings[id.index()].producer.clone(),
            });
        }
        let doorbell = |to: LcoreId| PeerDoorbell { waker: self.wakers[to.index()].clone(), due: false };
        (rings_out, consumers.into_iter().map(doorbell).collect())
    }
}

fn consumer_target(consumer: ConsumerId) -> Target {
    match consumer {
        ConsumerId::Stage(id) => Target::Stage(id),
        ConsumerId::Port(id) => Target::Port(id),
    }
}
