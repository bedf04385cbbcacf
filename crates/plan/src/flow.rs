//! Where the packets of each pool can be, and how large each batch gets.
//!
//! A stage is opaque: what goes in may come out of any of its outputs. So the reach of a pool is everything downstream of the
//! ports that receive into it and of the stages that take packets from it, over stages and rings, to the send queues.

use std::collections::BTreeSet;

use crate::diag::Sink;
use crate::ids::{Consumer, LcoreId, PoolId, PortId, Producer, RingId, StageId, Target};
use crate::raw::RawPlan;
use crate::refs::{Edge, Links};

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

pub(crate) fn trace(raw: &RawPlan, links: &Links<'_>, edges: &[Edge], sink: &mut Sink) -> Flow {
    let reach: Vec<Reach> =
        (0..raw.pools.len()).map(|pool| reach(PoolId::from_index(pool), raw, links, edges)).collect();
    for (index, pool) in reach.iter().enumerate() {
        check_devices(PoolId::from_index(index), pool, raw, links, edges, sink);
    }
    let size = |at: Target| batch(at, raw, links, edges);
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

fn reach(pool: PoolId, raw: &RawPlan, links: &Links<'_>, edges: &[Edge]) -> Reach {
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
                let from = edges.iter().filter(|edge| edge.from == Producer::Stage(id));
                todo.extend(from.map(|edge| edge.hop.target));
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

/// A port can't send what is registered with another device. A stage with a pool of its own on the port's device is taken to copy.
fn check_devices(pool: PoolId, reach: &Reach, raw: &RawPlan, links: &Links<'_>, edges: &[Edge], sink: &mut Sink) {
    let Some(pool_device) = links.pools[pool.index()] else { return };
    for port in &reach.sent_by {
        let Some(device) = links.ports[port.index()].device.filter(|device| *device != pool_device) else { continue };
        let copies = |stage: &StageId| {
            let own = links.stages[stage.index()].pool.and_then(|own| links.pools[own.index()]);
            own == Some(device)
        };
        let by_copy = upstream(Target::Port(*port), links, edges, true).stages.iter().any(copies);
        if by_copy {
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

/// What can be handed to a target before it runs.
#[derive(Debug, Default)]
struct Upstream {
    ports: BTreeSet<PortId>,
    rings: BTreeSet<RingId>,
    stages: BTreeSet<StageId>,
}

/// Everything that leads to `at`; over rings too if `over_rings`, else as far as the rings that this lcore empties.
fn upstream(at: Target, links: &Links<'_>, edges: &[Edge], over_rings: bool) -> Upstream {
    let mut up = Upstream::default();
    let mut todo = vec![at];
    while let Some(target) = todo.pop() {
        for edge in edges.iter().filter(|edge| edge.hop.target == target) {
            match edge.from {
                Producer::Port(id) => {
                    up.ports.insert(id);
                }
                Producer::Stage(id) => {
                    if up.stages.insert(id) {
                        todo.push(Target::Stage(id));
                    }
                }
            }
        }
        let consumer = match target {
            Target::Stage(id) => Consumer::Stage(id),
            Target::Port(id) => Consumer::Port(id),
            Target::Ring(_) | Target::Drop => continue,
        };
        for index in links.rings.iter().enumerate().filter(|(_, to)| **to == Some(consumer)).map(|(index, _)| index) {
            if up.rings.insert(RingId::from_index(index)) && over_rings {
                todo.push(Target::Ring(RingId::from_index(index)));
            }
        }
    }
    up
}

/// The packets that can pile up before `at` in one loop of its lcore: a burst from each port and ring upstream, a burst from
/// each stage upstream that takes fresh packets, and all that stages upstream may let go of. Each packet is in one place, so
/// each of these counts once, however many ways lead here.
fn batch(at: Target, raw: &RawPlan, links: &Links<'_>, edges: &[Edge]) -> Batch {
    let up = upstream(at, links, edges, false);
    let lcore = match at {
        Target::Stage(id) => links.stages[id.index()].lcore,
        Target::Port(id) => links.ports[id.index()].lcore,
        Target::Ring(_) => edges.iter().find(|edge| edge.hop.target == at).and_then(|edge| edge.lcore),
        Target::Drop => None,
    };
    let burst = lcore.map_or(0, |id| raw.lcores[id.index()].burst_packets.value);
    let fresh = up.stages.iter().filter(|id| links.stages[id.index()].pool.is_some()).count();
    let held = up.stages.iter().fold(0_u32, |sum, id| sum.saturating_add(links.holds(*id)));
    // What nothing feeds still gets a batch of one burst: an empty one is of no use to anybody.
    let bursts = u32::try_from((up.ports.len() + up.rings.len() + fresh).max(1)).unwrap_or(u32::MAX);
    Batch {
        fresh_packets: bursts.saturating_mul(burst),
        held_packets: held,
        bursts: if bursts == 1 { format!("burst {burst}") } else { format!("{bursts} bursts of {burst}") },
    }
}

impl Links<'_> {
    /// The most packets that a stage keeps between two calls.
    pub(crate) fn holds(&self, id: StageId) -> u32 {
        self.stages[id.index()].kind.map_or(0, |kind| kind.holds_packets)
    }
}
