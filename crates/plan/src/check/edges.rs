//! Edges: every way of packets from a stage's output, or a port's `next` or `sent`, to a stage, a
//! port or a ring. A spread stands for one edge for each of its places.

use crate::check::refs::{Hop, Links};
use crate::diag::sink::Sink;
use crate::diag::source::Span;
use crate::ids::{Consumer, LcoreId, PortId, Producer, RingId, SpreadId, StageId, Target};
use crate::limits::EDGES_MAX;
use crate::read::raw::RawPlan;

/// One way of packets: from a stage's output, or a port's `next` or `sent`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) from: Producer,
    /// The lcore of `from`, if known.
    pub(crate) lcore: Option<LcoreId>,
    /// Its end, never a spread; the span is the place that names that target.
    pub(crate) hop: Hop,
    /// The value of the output, the `next` or the `sent`: it names the target, or a spread.
    pub(crate) named: Span,
    /// The spread that the edge leads through.
    pub(crate) through: Option<SpreadId>,
}

/// The edges from one lcore to a ring: one producer, to the ring.
#[derive(Debug, Clone)]
pub(crate) struct LaneEdges {
    pub(crate) lcore: LcoreId,
    /// At least one.
    pub(crate) edges: Vec<Edge>,
}

/// All edges, indexed by both ends.
#[derive(Debug)]
pub(crate) struct Edges {
    all: Vec<Edge>,
    into_stages: Vec<Vec<Edge>>,
    into_ports: Vec<Vec<Edge>>,
    into_rings: Vec<Vec<Edge>>,
    lanes: Vec<Vec<LaneEdges>>,
    out_of_stages: Vec<Vec<Edge>>,
    rings_into_stages: Vec<Vec<RingId>>,
    rings_into_ports: Vec<Vec<RingId>>,
}

impl Edges {
    fn new(all: Vec<Edge>, links: &Links<'_>) -> Self {
        let (stages, ports, rings) = (links.stages.len(), links.ports.len(), links.rings.len());
        let mut edges = Edges {
            into_stages: vec![Vec::new(); stages],
            into_ports: vec![Vec::new(); ports],
            into_rings: vec![Vec::new(); rings],
            lanes: vec![Vec::new(); rings],
            out_of_stages: vec![Vec::new(); stages],
            rings_into_stages: vec![Vec::new(); stages],
            rings_into_ports: vec![Vec::new(); ports],
            all,
        };
        for edge in &edges.all {
            match edge.hop.target {
                Target::Stage(id) => edges.into_stages[id.index()].push(*edge),
                Target::Port(id) => edges.into_ports[id.index()].push(*edge),
                Target::Ring(id) => edges.into_rings[id.index()].push(*edge),
                Target::Spread(_) | Target::Drop => {}
            }
            if let Producer::Stage(id) = edge.from {
                edges.out_of_stages[id.index()].push(*edge);
            }
        }
        edges.lanes = edges.into_rings.iter().map(|into| lanes(into)).collect();
        for (index, consumer) in links.rings.iter().enumerate() {
            match consumer {
                Some(Consumer::Stage(id)) => edges.rings_into_stages[id.index()].push(RingId::from_index(index)),
                Some(Consumer::Port(id)) => edges.rings_into_ports[id.index()].push(RingId::from_index(index)),
                None => {}
            }
        }
        edges
    }

    /// All edges, the ports' first.
    pub(crate) fn all(&self) -> &[Edge] {
        &self.all
    }

    /// The edges into a ring by producing lcore, as far as their lcores are known.
    pub(crate) fn lanes(&self, ring: RingId) -> &[LaneEdges] {
        &self.lanes[ring.index()]
    }

    /// The edges to `target`; none for drops, and for a spread, which is no end.
    pub(crate) fn leading_to(&self, target: Target) -> &[Edge] {
        match target {
            Target::Stage(id) => &self.into_stages[id.index()],
            Target::Port(id) => &self.into_ports[id.index()],
            Target::Ring(id) => &self.into_rings[id.index()],
            Target::Spread(_) | Target::Drop => &[],
        }
    }

    /// The edges from a stage's outputs.
    pub(crate) fn out_of(&self, stage: StageId) -> &[Edge] {
        &self.out_of_stages[stage.index()]
    }

    /// The spreads through which a stage copies, one entry an output, each with its number of
    /// places.
    pub(crate) fn copied_by(&self, stage: StageId, raw: &RawPlan) -> Vec<(SpreadId, usize)> {
        let mut outputs: Vec<(Span, SpreadId, usize)> = Vec::new();
        for edge in self.out_of(stage) {
            let Some(spread) = edge.through.filter(|spread| raw.copies(*spread)) else { continue };
            match outputs.last_mut() {
                // The edges of one output are adjacent.
                Some((named, _, places)) if *named == edge.named => *places += 1,
                _ => outputs.push((edge.named, spread, 1)),
            }
        }
        outputs.into_iter().map(|(_, spread, places)| (spread, places)).collect()
    }

    /// The rings that `consumer` empties.
    pub(crate) fn rings_into(&self, consumer: Consumer) -> &[RingId] {
        match consumer {
            Consumer::Stage(id) => &self.rings_into_stages[id.index()],
            Consumer::Port(id) => &self.rings_into_ports[id.index()],
        }
    }
}

impl Links<'_> {
    /// Collects all edges.
    pub(crate) fn edges(&self, raw: &RawPlan, sink: &mut Sink) -> Edges {
        let mut edges = Vec::new();
        for (index, (port, links)) in raw.ports.iter().zip(&self.ports).enumerate() {
            let from = Producer::Port(PortId::from_index(index));
            let hop = links.next.filter(|_| port.receives());
            let edge = |hop: Hop| Edge { from, lcore: links.lcore, hop, named: hop.span, through: None };
            let sent = links.sent.filter(|_| port.tx_depth_wr.value > 0);
            edges.extend(hop.into_iter().chain(sent).map(edge));
        }
        for (index, links) in self.stages.iter().enumerate() {
            let from = Producer::Stage(StageId::from_index(index));
            for output in &links.outputs {
                let edge = |hop, through| Edge { from, lcore: links.lcore, hop, named: output.span, through };
                match output.target {
                    Target::Spread(id) if edges.len() >= EDGES_MAX => {
                        if !sink.only_counts_error() {
                            too_many(raw, id, sink);
                        }
                    }
                    Target::Spread(id) => {
                        edges.extend(self.spreads[id.index()].iter().map(|hop| edge(*hop, Some(id))));
                    }
                    _ => edges.push(edge(*output, None)),
                }
            }
        }
        Edges::new(edges, self)
    }

    /// The lcore that runs a consumer, if known.
    pub(crate) fn lcore_of(&self, consumer: Consumer) -> Option<LcoreId> {
        match consumer {
            Consumer::Stage(id) => self.stages[id.index()].lcore,
            Consumer::Port(id) => self.ports[id.index()].lcore,
        }
    }
}

fn too_many(raw: &RawPlan, spread: SpreadId, sink: &mut Sink) {
    let head = &raw.spreads[spread.index()].head;
    let message = format!("with spread.{} the plan has more than {EDGES_MAX} ways for packets to go", head.name);
    sink.error("bad-value", head.span, message).help("give the spread fewer places, or fewer outputs that lead to it");
}

fn lanes(into: &[Edge]) -> Vec<LaneEdges> {
    let mut lanes: Vec<LaneEdges> = Vec::new();
    for edge in into {
        let Some(lcore) = edge.lcore else { continue };
        match lanes.iter_mut().find(|lane| lane.lcore == lcore) {
            Some(lane) => lane.edges.push(*edge),
            None => lanes.push(LaneEdges { lcore, edges: vec![*edge] }),
        }
    }
    lanes
}
