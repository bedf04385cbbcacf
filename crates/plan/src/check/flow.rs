//! Traces the packets of each pool: the places that they can reach, and the size of each batch.
//!
//! A stage is opaque: a packet of its input may leave by any of its outputs. So the reach of a pool
//! is everything downstream of the ports that receive into it and of the stages that take packets
//! from it, over stages and rings, to the send queues.

use std::collections::{BTreeSet, HashMap};

use crate::check::edges::Edges;
use crate::check::prepended::Prepended;
use crate::check::refs::Links;
use crate::check::rings;
use crate::check::upstream::{Batch, Upstream};
use crate::diag::sink::Sink;
use crate::ids::{Consumer, DeviceId, LcoreId, PoolId, PortId, RingId, StageId, Target};
use crate::read::raw::RawPlan;

/// The places of one pool's packets.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Ports that keep receives from the pool posted.
    pub(crate) received_by: BTreeSet<PortId>,
    /// Stages that take fresh packets from it.
    pub(crate) taken_by: BTreeSet<StageId>,
    pub(crate) stages: BTreeSet<StageId>,
    pub(crate) rings: BTreeSet<RingId>,
    /// Ports that may send packets of the pool.
    pub(crate) sent_by: BTreeSet<PortId>,
    pub(crate) lcores: BTreeSet<LcoreId>,
}

#[derive(Debug)]
pub(crate) struct Flow {
    /// In the order of the pools.
    pub(crate) reach: Vec<Reach>,
    /// In the order of the pools.
    pub(crate) prepended: Vec<Prepended>,
    /// Input batches, in the order of the stages.
    pub(crate) stages: Vec<Batch>,
    /// Batches that wait to be posted; none if the port has no send queue.
    pub(crate) ports: Vec<Option<Batch>>,
    /// Batches that gather packets for a ring, one a lane.
    pub(crate) rings: Vec<Vec<Batch>>,
    /// The stages that each lane holds back.
    pub(crate) held: Vec<Vec<Vec<StageId>>>,
    /// The most packets that each stage sends in one loop of its lcore.
    pub(crate) sent: Vec<u32>,
}

/// `order`: all stages, each before those that it feeds.
pub(crate) fn trace(raw: &RawPlan, links: &Links<'_>, edges: &Edges, order: &[StageId], sink: &mut Sink) -> Flow {
    let reach: Vec<Reach> =
        (0..raw.pools.len()).map(|pool| reach(PoolId::from_index(pool), raw, links, edges)).collect();
    let mut upstream = Upstream::new(raw, links, edges);
    let mut copied: HashMap<PortId, bool> = HashMap::new();
    let mut is_copied_to = |port, device| *copied.entry(port).or_insert_with(|| upstream.copies(port, device));
    for (index, pool) in reach.iter().enumerate() {
        check_devices(PoolId::from_index(index), pool, raw, links, &mut is_copied_to, sink);
    }
    let mut stages = vec![Batch::default(); raw.stages.len()];
    for id in order {
        stages[id.index()] = upstream.of_stage(*id);
    }
    let rings: Vec<RingId> = (0..raw.rings.len()).map(RingId::from_index).collect();
    let held = rings.iter().map(|ring| rings::held_by(*ring, &mut upstream, raw, links, edges, sink)).collect();
    let prepended = reach.iter().map(|reach| Prepended::trace(links, edges, order, &reach.stages)).collect();
    Flow {
        reach,
        prepended,
        stages,
        ports: (0..raw.ports.len())
            .map(PortId::from_index)
            .map(|port| (raw.ports[port.index()].tx_depth_wr.value > 0).then(|| upstream.of_port(port)))
            .collect(),
        rings: rings.iter().map(|ring| upstream.of_ring(*ring)).collect(),
        held,
        sent: upstream.sent,
    }
}

fn reach(pool: PoolId, raw: &RawPlan, links: &Links<'_>, edges: &Edges) -> Reach {
    let mut reach = Reach::default();
    let mut todo: Vec<Target> = Vec::new();
    for (index, (port, resolved)) in raw.ports.iter().zip(&links.ports).enumerate() {
        if resolved.pool == Some(pool) && port.receives() {
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
    todo.extend(links.injectors_of(pool).map(|(_, to)| Target::Stage(to)));
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
            Target::Port(id) if reach.sent_by.insert(id) => {
                reach.lcores.extend(links.ports[id.index()].lcore);
                todo.extend(links.ports[id.index()].sent.map(|hop| hop.target));
            }
            _ => {}
        }
    }
    reach
}

/// A port can't send packets that are registered with another device. A stage with a pool of its
/// own on the port's device is assumed to copy.
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
