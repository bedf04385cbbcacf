//! Traces the headers that stages prepend to the packets of a pool.
//!
//! A stage kind declares by output how many bytes it prepends at most. They add up along a path;
//! where paths meet, the longest counts.

use std::collections::BTreeSet;
use std::iter;

use crate::check::edges::{Edge, Edges};
use crate::check::refs::Links;
use crate::ids::{Consumer, PortId, Producer, StageId, Target};

/// The prepended bytes of one pool's packets, counted from their beginning in a receive or when
/// they were taken fresh. Empty if no stage that they reach prepends.
#[derive(Debug, Default)]
pub(crate) struct Prepended {
    /// At the inputs of stages, in the order of the stages.
    stages: Vec<Front>,
    /// Bytes at the sends of ports, in the order of the ports.
    ports: Vec<u64>,
    most: Front,
}

/// The prepended bytes in one place.
#[derive(Clone, Copy, Debug, Default)]
struct Front {
    bytes: u64,
    /// The last stage of the path, and the part that it prepends.
    last: Option<(StageId, u32)>,
}

impl Prepended {
    /// `order`: all stages, each before those that it feeds; `reached`: the stages that packets of
    /// the pool reach.
    pub(crate) fn trace(links: &Links<'_>, edges: &Edges, order: &[StageId], reached: &BTreeSet<StageId>) -> Prepended {
        let prepends = |id: &StageId| links.stages[id.index()].kind.is_some_and(|kind| !kind.spec.prepends.is_empty());
        if !reached.iter().any(prepends) {
            return Prepended::default();
        }
        let mut all = Prepended { stages: vec![Front::default(); links.stages.len()], ..Prepended::default() };
        for id in order.iter().copied().filter(|id| reached.contains(id)) {
            all.stages[id.index()] = all.before(Consumer::Stage(id), links, edges, reached);
            let behind = edges.out_of(id).iter().map(|edge| all.behind(id, edge, links));
            all.most = behind.fold(all.most, Front::longer);
        }
        let ports = (0..links.ports.len()).map(|port| Consumer::Port(PortId::from_index(port)));
        all.ports = ports.map(|port| all.before(port, links, edges, reached).bytes).collect();
        all
    }

    /// Prepended bytes of the packets that a port sends.
    pub(crate) fn at_port(&self, port: PortId) -> u64 {
        self.ports.get(port.index()).copied().unwrap_or(0)
    }

    /// The stages of the longest path, the last first, each with its part.
    pub(crate) fn longest(&self) -> impl Iterator<Item = (StageId, u32)> {
        let before = |(id, _): &(StageId, u32)| self.stages[id.index()].last;
        iter::successors(self.most.last, before).take(self.stages.len())
    }

    fn before(&self, to: Consumer, links: &Links<'_>, edges: &Edges, reached: &BTreeSet<StageId>) -> Front {
        let target = match to {
            Consumer::Stage(id) => Target::Stage(id),
            Consumer::Port(id) => Target::Port(id),
        };
        let rings = edges.rings_into(to).iter().map(|ring| Target::Ring(*ring));
        let ways = iter::once(target).chain(rings).flat_map(|target| edges.leading_to(target));
        let fronts = ways.filter_map(|edge| match edge.from {
            Producer::Stage(id) if reached.contains(&id) => Some(self.behind(id, edge, links)),
            Producer::Stage(_) | Producer::Port(_) => None,
        });
        fronts.fold(Front::default(), Front::longer)
    }

    /// The front of packets that leave a stage over an edge.
    fn behind(&self, id: StageId, edge: &Edge, links: &Links<'_>) -> Front {
        let stage = &links.stages[id.index()];
        let spec = stage.kind.map(|kind| kind.spec).unwrap_or_default();
        let named = spec.outputs.iter().zip(&stage.outputs).find(|(_, hop)| hop.span == edge.named);
        let prepends = named.and_then(|(name, _)| spec.prepends.iter().find(|asked| asked.output == *name));
        let own = prepends.map_or(0, |prepends| prepends.bytes);
        Front { bytes: self.stages[id.index()].bytes + u64::from(own), last: Some((id, own)) }
    }
}

impl Front {
    fn longer(self, other: Front) -> Front {
        if other.bytes > self.bytes { other } else { self }
    }
}
