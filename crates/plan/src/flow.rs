//! Where the packets of each pool can be, and how large each batch gets.
//!
//! A stage is opaque: what goes in may come out of any of its outputs. So the reach of a pool is
//! everything downstream of the ports that receive into it and of the stages that take packets from
//! it, over stages and rings, to the send queues.

use std::collections::{BTreeSet, HashMap};

use crate::diag::Sink;
use crate::ids::{Consumer, DeviceId, LcoreId, PoolId, PortId, Producer, RingId, StageId, Target};
use crate::raw::RawPlan;
use crate::refs::{Edges, Links};

/// Where packets of one pool can be.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Ports that keep receives of it posted.
    pub(crate) received_by: BTreeSet<PortId>,
    /// Stages that take fresh packets from it.
    pub(crate) taken_by: BTreeSet<StageId>,
    pub(crate) stages: BTreeSet<StageId>,
    pub(crate) rings: BTreeSet<RingId>,
    /// Ports that can be given packets of it to send.
    pub(crate) sent_by: BTreeSet<PortId>,
    pub(crate) lcores: BTreeSet<LcoreId>,
}

/// The capacity of a batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    /// What comes in by bursts: one from each port, ring and allocating stage upstream.
    pub(crate) fresh_packets: u32,
    /// What stages upstream may let go of on top.
    pub(crate) held_packets: u32,
    /// How `fresh_packets` comes about.
    pub(crate) bursts: String,
}

impl Batch {
    pub(crate) fn packets(&self) -> u32 {
        self.fresh_packets.saturating_add(self.held_packets)
    }

    /// How the whole comes about.
    pub(crate) fn how(&self) -> String {
        match self.held_packets {
            0 => self.bursts.clone(),
            held => format!("{} + {held} held upstream", self.bursts),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Flow {
    /// In the order of the pools.
    pub(crate) reach: Vec<Reach>,
    /// Input batches, in the order of the stages.
    pub(crate) stages: Vec<Batch>,
    /// Batches that wait to be posted; none if the port has no send queue.
    pub(crate) ports: Vec<Option<Batch>>,
    /// Batches that gather packets for a ring.
    pub(crate) rings: Vec<Batch>,
}

pub(crate) fn trace(raw: &RawPlan, links: &Links<'_>, edges: &Edges, sink: &mut Sink) -> Flow {
    let reach: Vec<Reach> =
        (0..raw.pools.len()).map(|pool| reach(PoolId::from_index(pool), raw, links, edges)).collect();
    let mut upstream = Upstream::new(links, edges);
    let mut copied: HashMap<PortId, bool> = HashMap::new();
    let mut is_copied_to = |port, device| *copied.entry(port).or_insert_with(|| upstream.copies(port, device));
    for (index, pool) in reach.iter().enumerate() {
        check_devices(PoolId::from_index(index), pool, raw, links, &mut is_copied_to, sink);
    }
    let mut size = |at: Target| upstream.batch(at, raw);
    Flow {
        reach,
        stages: (0..raw.stages.len()).map(|stage| size(Target::Stage(StageId::from_index(stage)))).collect(),
        ports: (0..raw.ports.len())
            .map(PortId::from_index)
            .map(|port| (raw.ports[port.index()].tx_depth_wr.value > 0).then(|| size(Target::Port(port))))
            .collect(),
        rings: (0..raw.rings.len()).map(|ring| size(Target::Ring(RingId::from_index(ring)))).collect(),
    }
}

fn reach(pool: PoolId, raw: &RawPlan, links: &Links<'_>, edges: &Edges) -> Reach {
    let mut reach = Reach::default();
    let mut todo: Vec<Target> = Vec::new();
    for (index, (port, resolved)) in raw.ports.iter().zip(&links.ports).enumerate() {
        if resolved.pool == Some(pool) && port.rx_depth_wr.value > 0 {
            reach.received_by.insert(PortId::from_index(index));
            reach.lcores.extend(resolved.lcore);
            todo.extend(resolved.next.map(|hop| hop.target));
        }
    }
    for (index, resolved) in links.stages.iter().enumerate() {
        if resolved.pool == Some(pool) {
            reach.taken_by.insert(StageId::from_index(index));
            todo.push(Target::Stage(StageId::from_index(index)));
        }
    }
    while let Some(target) = todo.pop() {
        match target {
            Target::Stage(id) if reach.stages.insert(id) => {
                reach.lcores.extend(links.stages[id.index()].lcore);
                todo.extend(edges.out_of(id).iter().map(|edge| edge.hop.target));
            }
            Target::Ring(id) if reach.rings.insert(id) => match links.rings[id.index()] {
                Some(Consumer::Stage(to)) => todo.push(Target::Stage(to)),
                Some(Consumer::Port(to)) => todo.push(Target::Port(to)),
                None => {}
            },
            Target::Port(id) if reach.sent_by.insert(id) => reach.lcores.extend(links.ports[id.index()].lcore),
            _ => {}
        }
    }
    reach
}

/// A port can't send what is registered with another device. A stage with a pool of its own on the
/// port's device is taken to copy.
fn check_devices(
    pool: PoolId,
    reach: &Reach,
    raw: &RawPlan,
    links: &Links<'_>,
    is_copied_to: &mut impl FnMut(PortId, DeviceId) -> bool,
    sink: &mut Sink,
) {
    let Some(pool_device) = links.pools[pool.index()] else { return };
    for port in &reach.sent_by {
        let Some(device) = links.ports[port.index()].device.filter(|device| *device != pool_device) else { continue };
        if is_copied_to(*port, device) || sink.only_counts_error() {
            continue;
        }
        let (pool, port) = (&raw.pools[pool.index()], &raw.ports[port.index()]);
        let Some(field) = &port.device else { continue };
        let message =
            format!("packets of pool.{} reach port.{}, which is on another device", pool.head.name, port.head.name);
        let one = sink.error("device-mismatch", field.span, message);
        if let Some(field) = &pool.device {
            one.related(field.span, "the pool is registered here");
        }
        one.note("memory is registered with one device, and another can't reach it")
            .help("copy in a stage that takes its packets from a pool on the port's device");
    }
}

/// Finds what can be handed to a target before it runs. Kept from one target to the next, so that
/// each costs what leads to it.
struct Upstream<'a> {
    links: &'a Links<'a>,
    edges: &'a Edges,
    /// The walk that was last to come by: of the ports, the rings, the stages.
    seen: [Vec<u32>; 3],
    walk: u32,
    ports: usize,
    rings: usize,
    stages: Vec<StageId>,
}

impl<'a> Upstream<'a> {
    fn new(links: &'a Links<'a>, edges: &'a Edges) -> Self {
        let seen = [links.ports.len(), links.rings.len(), links.stages.len()].map(|count| vec![0; count]);
        Upstream { links, edges, seen, walk: 0, ports: 0, rings: 0, stages: Vec::new() }
    }

    fn is_new(&mut self, sort: usize, index: usize) -> bool {
        std::mem::replace(&mut self.seen[sort][index], self.walk) != self.walk
    }

    /// Everything that leads to `at`; over rings too if `over_rings`, else as far as the rings that
    /// this lcore empties.
    fn find(&mut self, at: Target, over_rings: bool) {
        let edges = self.edges;
        (self.walk, self.ports, self.rings) = (self.walk + 1, 0, 0);
        self.stages.clear();
        let mut todo = vec![at];
        while let Some(target) = todo.pop() {
            for edge in edges.leading_to(target) {
                match edge.from {
                    Producer::Port(id) => self.ports += usize::from(self.is_new(0, id.index())),
                    Producer::Stage(id) if self.is_new(2, id.index()) => {
                        self.stages.push(id);
                        todo.push(Target::Stage(id));
                    }
                    Producer::Stage(_) => {}
                }
            }
            let consumer = match target {
                Target::Stage(id) => Consumer::Stage(id),
                Target::Port(id) => Consumer::Port(id),
                Target::Ring(_) | Target::Drop => continue,
            };
            for ring in edges.rings_into(consumer) {
                if self.is_new(1, ring.index()) {
                    self.rings += 1;
                    todo.extend(over_rings.then_some(Target::Ring(*ring)));
                }
            }
        }
    }

    /// Whether a stage on the way to `port` takes packets from a pool on `device`.
    fn copies(&mut self, port: PortId, device: DeviceId) -> bool {
        self.find(Target::Port(port), true);
        let links = self.links;
        let copies = |stage: &StageId| {
            let own = links.stages[stage.index()].pool.and_then(|own| links.pools[own.index()]);
            own == Some(device)
        };
        self.stages.iter().any(copies)
    }

    /// The packets that can pile up before `at` in one loop of its lcore: a burst from each port
    /// and ring upstream, a burst from each stage upstream that takes fresh packets, and all that
    /// stages upstream may let go of. Each packet is in one place, so each of these counts once,
    /// however many ways lead here.
    fn batch(&mut self, at: Target, raw: &RawPlan) -> Batch {
        self.find(at, false);
        let links = self.links;
        let lcore = match at {
            Target::Stage(id) => links.stages[id.index()].lcore,
            Target::Port(id) => links.ports[id.index()].lcore,
            Target::Ring(_) => self.edges.leading_to(at).first().and_then(|edge| edge.lcore),
            Target::Drop => None,
        };
        let burst = lcore.map_or(0, |id| raw.lcores[id.index()].burst_packets.value);
        let fresh = self.stages.iter().filter(|id| links.stages[id.index()].pool.is_some()).count();
        let held = self.stages.iter().fold(0_u32, |sum, id| sum.saturating_add(links.holds(*id)));
        // What nothing feeds still gets a batch of one burst: an empty one is of no use to anybody.
        let bursts = u32::try_from((self.ports + self.rings + fresh).max(1)).unwrap_or(u32::MAX);
        Batch {
            fresh_packets: bursts.saturating_mul(burst),
            held_packets: held,
            bursts: if bursts == 1 { format!("burst {burst}") } else { format!("{bursts} bursts of {burst}") },
        }
    }
}

impl Links<'_> {
    /// The most packets that a stage keeps between two calls.
    pub(crate) fn holds(&self, id: StageId) -> u32 {
        self.stages[id.index()].kind.map_or(0, |kind| kind.spec.holds_packets)
    }
}
