//! Puts each lcore together: its ports, nodes, rings, sinks and caches.

use std::cmp::Reverse;
use std::sync::Arc;

use verbline_mem::PoolCache;
use verbline_plan::{
    Consumer as ConsumerId, Lane, Lcore, LcoreId, Plan, PoolId, PortId, RingId, StageId, Target, WhenFull,
};
use verbline_ring::Waker;
use verbline_verbs::Completions;

use crate::api::outputs::Output;
use crate::api::registry::Registry;
use crate::connection::cm_mailbox::{CmMailboxes, Reconnecting};
use crate::connection::port_qp::PortQp;
use crate::control::run_control::Control;
use crate::errors::error::{EngineError, place};
use crate::idle::policy::Budget;
use crate::idle::wake_set::WakeSet;
use crate::lcore::drain::Drain;
use crate::lcore::node::{Node, NodeSpec};
use crate::lcore::poll_loop::LcoreParts;
use crate::lcore::rings::{Hold, PeerDoorbell, PollOrder, RingConsumer, RingProducer};
use crate::lcore::waits::WaitsFor;
use crate::operations::queue::OperationQueue;
use crate::operations::region::Region;
use crate::operations::send_with::Returning;
use crate::ports::multi_port::{ManyReceiving, ManySending, MultiPort};
use crate::ports::rx_half::{Delivery, Receiving};
use crate::ports::single_port::{Health, Port};
use crate::ports::sink::{Sink, SinkStats};
use crate::ports::tx_half::Sending;
use crate::setup::attributes::alternate_of;
use crate::setup::datagrams::{datagrams, has_peers};
use crate::setup::devices::{Devices, Pools};
use crate::setup::multi_ports::{ManyPorts, every_of};
use crate::setup::operations::{operation_ports, operation_queue, refused};
use crate::setup::queue_pairs::{QueuePairs, reaches_others};
use crate::setup::rings::{Between, LaneEnds, RingEnds};
use crate::setup::sinks::Sinks;
use crate::setup::stages::StageAndFds;
use crate::stats::clock::Clock;
use crate::stats::counter::shared;
use crate::stats::drop_reason::DropReason;
use crate::stats::snapshot::{LaneEntry, RunStats};

/// Assembles the lcores from the parts made for all of them.
pub(crate) struct LcoreBuilder<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) registry: &'a Registry,
    pub(crate) stats: &'a RunStats,
    pub(crate) clock: &'a Clock,
    pub(crate) budgets: &'a [Budget],
    pub(crate) pools: &'a Pools,
    pub(crate) regions: &'a [Region],
    pub(crate) devices: &'a Devices,
    pub(crate) wakers: &'a [Waker],
    pub(crate) mailboxes: &'a CmMailboxes,
    pub(crate) control: &'a Arc<Control>,
}

impl LcoreBuilder<'_> {
    pub(crate) fn build(
        &self,
        lcore: &Lcore,
        wakes: WakeSet,
        qps: &mut QueuePairs<'_>,
        many: &mut ManyPorts<'_>,
        between: &mut Between,
        stages: &mut [Option<StageAndFds>],
    ) -> Result<LcoreParts, EngineError> {
        let entry = &self.stats.lcores[lcore.id.index()];
        let Between { rings, injected } = between;
        let mut sinks = self.sinks(lcore);
        let burst = lcore.burst_packets as usize;
        let (with_many, alone): (Vec<PortId>, Vec<PortId>) =
            lcore.ports.iter().copied().partition(|id| self.plan[*id].connections.is_some());
        let ports = alone.into_iter().map(|id| self.port(id, lcore, &mut sinks, qps)).collect::<Result<_, _>>()?;
        let many = with_many.into_iter().map(|id| self.many_port(id, lcore, &mut sinks, many));
        let many = many.collect::<Result<Vec<_>, _>>()?;
        let nodes = lcore.stages.iter().map(|id| self.node(*id, lcore, &mut sinks, stages)).collect();
        let (rings_out, doorbells) = self.rings_out(lcore, &sinks, rings);
        let mut by_urgency = lcore.rings_in.clone();
        by_urgency.sort_by_key(|id| (self.plan[*id].to, Reverse(self.plan[*id].priority)));
        let lanes = by_urgency.iter().flat_map(|id| self.plan[*id].lanes.iter().map(|_| &self.plan[*id]));
        let orders = PollOrder::of(&lanes.map(|ring| (ring.to, ring.priority)).collect::<Vec<_>>());
        let rings_in = by_urgency.iter().flat_map(|id| self.lanes_in(*id, burst, &sinks, &mut rings[id.index()]));
        let rings_in = rings_in.zip(orders).map(|(lane, order)| RingConsumer { order, ..lane });
        let here = self.plan.injectors().iter().filter(|injector| injector.lcore == lcore.id);
        let injectors = here.map(|injector| RingConsumer {
            consumer: injected[injector.id.index()].take().expect("an injector feeds one lcore"),
            sink: sinks.index(Target::Stage(injector.to)),
            burst,
            stats: self.stats.injectors[injector.id.index()].consumer.clone(),
            displaced: None,
            order: PollOrder::default(),
        });
        Ok(LcoreParts {
            index: lcore.id.index(),
            name: lcore.name.clone(),
            cpu: lcore.cpu,
            budget: self.budgets[lcore.id.index()],
            drain: Drain::new(lcore.drain, lcore.device.is_some_and(|device| reaches_others(&self.plan[device]))),
            unsolicited_wait: lcore.unsolicited_wait,
            clock: self.clock.clone(),
            nodes,
            caches: self.caches(lcore),
            ports,
            many,
            rings_in: rings_in.chain(injectors).collect(),
            rings_out,
            holds: self.holds(lcore, &sinks),
            doorbells,
            wakes,
            completions: Completions::with_capacity(burst),
            stats: entry.stats.clone(),
            sinks: sinks.sinks,
        })
    }

    /// One sink for each stage, sending port and outgoing ring of the lcore, with the depth that
    /// the plan has proved.
    fn sinks(&self, lcore: &Lcore) -> Sinks {
        let mut sinks = Sinks { targets: Vec::new(), sinks: Vec::new() };
        if self.holds_back(lcore).next().is_some() {
            // `Sink::EMPTY`, which no link leads to.
            sinks.targets.push(Target::Drop);
            sinks.sinks.push(Sink::new(0, DropReason::StageFull, SinkStats::Stage(shared())));
        }
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
            let (at, lane) = self.lane(*id, lcore);
            let stats = SinkStats::Ring(self.stats.rings[id.index()].lanes[at].producer.clone());
            let full = match self.plan[*id].full {
                WhenFull::Refuse | WhenFull::Hold => DropReason::RingFull,
                WhenFull::Displace => DropReason::Displaced,
            };
            add(Target::Ring(*id), lane.batch_packets, full, stats);
        }
        assert!(sinks.sinks.len() <= usize::from(u16::MAX), "an lcore has at most 65,535 stages, ports and rings");
        sinks
    }

    /// The caches, in the order of the lcore's pools.
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

    /// The receive half of a port with receive queues of this depth.
    fn receiving(&self, port: &verbline_plan::Port, lcore: &Lcore, sinks: &Sinks, depth_wr: u32) -> Option<Receiving> {
        let (pool, next) = port.pool.zip(port.next)?;
        let next = Delivery::from(sinks.link(next));
        let next = if port.immediates || port.senders_max > 0 { next.one_by_one() } else { next };
        let burst = lcore.burst_packets as usize;
        let mut queue = Receiving::new(self.cache_of(lcore, pool), next, depth_wr as usize, burst, port.timestamps);
        queue.immediates = port.immediates;
        Some(queue)
    }

    /// The send half of a port. Puts the port's operation queue into its sink.
    fn sending(
        &self,
        port: &verbline_plan::Port,
        signal_every_wr: u32,
        sinks: &mut Sinks,
        operations: Option<OperationQueue>,
    ) -> Option<Sending> {
        let sink = (port.tx_depth_wr > 0).then(|| sinks.index(Target::Port(port.id)))?;
        let sending = Sending::new(sink, signal_every_wr, port.tx_depth_wr as usize);
        let ending = port.batch_packets as usize + port.tx_depth_wr as usize;
        let is_asked = port.send_options || has_peers(port);
        let returning = is_asked.then(|| Returning::new(port.sent.map(|target| sinks.index(target) as u16), ending));
        let Some(queue) = operations else { return Some(sending.with_options(returning)) };
        let mut queue = Box::new(queue);
        queue.returning = returning;
        sinks.sinks[sink].stats = SinkStats::Operations(queue);
        Some(sending.with_operations(port.ops_depth_wr as usize))
    }

    fn port(
        &self,
        id: PortId,
        lcore: &Lcore,
        sinks: &mut Sinks,
        qps: &mut QueuePairs<'_>,
    ) -> Result<Port, EngineError> {
        let port = &self.plan[id];
        let receiving = self.receiving(port, lcore, sinks, port.rx_depth_wr).filter(|_| port.rx_depth_wr > 0);
        let mut qp = qps.take(id);
        let entry = &self.stats.ports[id.index()];
        let operations = operation_queue(self.plan, port, None, self.regions, &self.devices[port.device], entry)?;
        let (queue, keep) = operations.unzip();
        if let Some(keep) = keep {
            qp.keep_memory(&keep).map_err(|source| refused(self.plan, port)(source.into()))?;
        }
        qps.keep_like(id, &qp);
        let mut sending = self.sending(port, port.signal_every_wr, sinks, queue);
        if let Some(sending) = &mut sending {
            sending.know_peers(datagrams(self.plan, port, &self.devices[port.device], self.control)?);
        }
        self.stats.ports[id.index()].stats.qpn.set(qp.qpn().into());
        // Also counts for later queue pairs of the port (`keep_like`).
        entry.out_of_buffer.get_or_init(|| qp.out_of_buffer());
        let unmade =
            |source| EngineError::QueuePair { at: place(self.plan, port.span), port: port.name.clone(), source };
        Ok(Port {
            name: port.name.clone(),
            index: id.index() as u16,
            qp: PortQp::new(qp),
            receiving,
            sending,
            stats: self.stats.ports[id.index()].stats.clone(),
            health: Health::Up,
            inbox: None,
            reconnect: self.mailboxes[id.index()].clone().map(|mailbox| Reconnecting::new(mailbox, id.index() as u16)),
            changing: None,
            is_paused: false,
            alternate: alternate_of(self.plan, port, &self.devices[port.device]).map_err(unmade)?,
        })
    }

    fn many_port(
        &self,
        id: PortId,
        lcore: &Lcore,
        sinks: &mut Sinks,
        many: &mut ManyPorts<'_>,
    ) -> Result<MultiPort, EngineError> {
        let port = &self.plan[id];
        let burst = lcore.burst_packets as usize;
        let entry = &self.stats.ports[id.index()];
        let device = &self.devices[port.device];
        let (connections, maker) = many.maker(id);
        let operations = operation_queue(self.plan, port, Some(connections), self.regions, device, entry)?;
        let (queue, keep) = operations.unzip();
        if let Some(keep) = keep {
            maker.keep_memory(keep);
        }
        entry.out_of_buffer.get_or_init(|| maker.out_of_buffer(self.plan[port.device].port_num));
        Ok(many.port(id, |srq, connections| {
            let depth_wr = if srq.is_some() { connections.rx_shared_wr } else { port.rx_depth_wr };
            let receiving = self.receiving(port, lcore, sinks, depth_wr);
            let receiving = receiving.map(|queue| ManyReceiving::new(srq, queue, burst, connections.max as usize));
            let sending = self.sending(port, every_of(port, connections), sinks, queue);
            let most_wr = connections.tx_shared_wr as usize;
            let sending = sending.map(|half| ManySending::new(half, most_wr, port.batch_packets as usize));
            (receiving, sending)
        }))
    }

    fn node(&self, id: StageId, lcore: &Lcore, sinks: &mut Sinks, stages: &mut [Option<StageAndFds>]) -> Node {
        let stage = &self.plan[id];
        let source = self.registry.kind(&stage.kind).is_some_and(|kind| kind.checked.spec.source);
        let stats = &self.stats.stages[id.index()].stats;
        let links: Box<[Output]> = stage.outputs.iter().map(|target| sinks.output(*target, self.plan)).collect();
        let (made, fds, ports) = stages[id.index()].take().expect("a stage is on one lcore");
        let asks = links.iter().zip(&stage.operates).filter(|(_, asks)| **asks).map(|(link, _)| link);
        let (operation_ports, operations_at_once) = operation_ports(stats, asks, &mut sinks.sinks);
        let waits_for = WaitsFor {
            timers: stage.timers_max,
            timers_at_once: lcore.burst_packets as usize,
            ports: operation_ports,
            operations_at_once,
            fds,
        };
        Node::new(NodeSpec {
            name: stage.name.clone(),
            source,
            stats: stats.clone(),
            stage: made,
            links,
            input: sinks.index(Target::Stage(id)),
            cache: stage.pool.map(|pool| self.cache_of(lcore, pool)),
            batch_packets: stage.batch_packets as usize,
            waits_for,
            ports,
        })
    }

    /// The lane of a ring that the lcore fills, and its index in the ring.
    fn lane(&self, id: RingId, lcore: &Lcore) -> (usize, &Lane) {
        let mut lanes = self.plan[id].lanes.iter().enumerate();
        lanes.find(|(_, lane)| lane.lcore == lcore.id).expect("a plan gives an lcore a lane of every ring it fills")
    }

    /// The rings that hold stages of the lcore back.
    fn holds_back(&self, lcore: &Lcore) -> impl Iterator<Item = (RingId, &Lane)> {
        let lanes = lcore.rings_out.iter().map(|id| (*id, self.lane(*id, lcore).1));
        lanes.filter(|(_, lane)| !lane.held.is_empty())
    }

    fn holds(&self, lcore: &Lcore, sinks: &Sinks) -> Vec<Hold> {
        let place = |stage: &StageId| lcore.stages.iter().position(|id| id == stage);
        let nodes = |lane: &Lane| lane.held.iter().map(|id| place(id).expect("a lane holds its own lcore's")).collect();
        self.holds_back(lcore).map(|(id, lane)| Hold::new(sinks.index(Target::Ring(id)), nodes(lane))).collect()
    }

    /// The lanes of a ring that the lcore empties.
    fn lanes_in(&self, id: RingId, burst: usize, sinks: &Sinks, ends: &mut RingEnds) -> Vec<RingConsumer> {
        let sink = sinks.index(consumer_target(self.plan[id].to));
        let lanes = ends.iter_mut().zip(&self.stats.rings[id.index()].lanes);
        let lane = |(ends, entry): (&mut LaneEnds, &LaneEntry)| RingConsumer {
            consumer: ends.consumer.take().expect("a lane has one consumer"),
            sink,
            burst,
            stats: entry.consumer.clone(),
            displaced: ends.displaced.take(),
            order: PollOrder::default(),
        };
        lanes.map(lane).collect()
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
            let (at, _) = self.lane(*id, lcore);
            rings_out.push(RingProducer {
                producer: rings[id.index()][at].producer.take().expect("a lane has one producer"),
                displacer: rings[id.index()][at].displacer.take(),
                sink: sinks.index(Target::Ring(*id)),
                doorbell,
                stats: self.stats.rings[id.index()].lanes[at].producer.clone(),
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
