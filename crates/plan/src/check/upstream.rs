//! The most packets that a stage, a port or a ring gets within one loop of an lcore.

use crate::check::edges::{Edge, Edges};
use crate::check::refs::Links;
use crate::choices::{SpreadBy, WhenFull};
use crate::diag::source::Span;
use crate::ids::{Consumer, DeviceId, LcoreId, PortId, Producer, RingId, StageId, Target};
use crate::read::raw::RawPlan;

/// The capacity of a batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batch {
    /// Packets that arrive in bursts: one burst from each port, lane and allocating stage upstream;
    /// and the copies that meet here.
    pub(crate) fresh_packets: u32,
    /// Packets that stages upstream may release on top.
    pub(crate) held_packets: u32,
    /// The computation of `fresh_packets` in words.
    pub(crate) bursts: String,
}

impl Batch {
    pub(crate) fn packets(&self) -> u32 {
        self.fresh_packets.saturating_add(self.held_packets)
    }

    /// This batch, or a larger one that holds `packets`.
    fn at_least(self, packets: u32) -> Batch {
        match self.packets() >= packets {
            true => self,
            false => Batch { fresh_packets: packets, held_packets: 0, bursts: "as deep as the ring".to_owned() },
        }
    }

    /// The computation of the whole in words.
    pub(crate) fn how(&self) -> String {
        match self.held_packets {
            0 => self.bursts.clone(),
            held => format!("{} + {held} held upstream", self.bursts),
        }
    }
}

/// Finds the packets that can reach a target before it runs. One value is kept for all targets, so
/// that each costs no more than the edges that lead to it.
pub(crate) struct Upstream<'a> {
    raw: &'a RawPlan,
    links: &'a Links<'a>,
    edges: &'a Edges,
    /// The most packets that each stage sends in one loop; known for the stages asked about so far.
    pub(crate) sent: Vec<u32>,
    /// The number of the last walk that passed each port, ring and stage.
    seen: [Vec<u32>; 3],
    walk: u32,
    ports: Vec<PortId>,
    /// Lanes of the rings, and injectors.
    lanes: usize,
    stages: Vec<StageId>,
    /// The origin of each copied packet: the stage and its output, one entry a place.
    copied: Vec<(StageId, Span)>,
}

impl<'a> Upstream<'a> {
    pub(crate) fn new(raw: &'a RawPlan, links: &'a Links<'a>, edges: &'a Edges) -> Self {
        let seen = [links.ports.len(), links.rings.len(), links.stages.len()].map(|count| vec![0; count]);
        let sent = vec![0; links.stages.len()];
        Upstream {
            raw,
            links,
            edges,
            sent,
            seen,
            walk: 0,
            ports: Vec::new(),
            lanes: 0,
            stages: Vec::new(),
            copied: Vec::new(),
        }
    }

    fn is_new(&mut self, sort: usize, index: usize) -> bool {
        std::mem::replace(&mut self.seen[sort][index], self.walk) != self.walk
    }

    /// Finds everything that leads to `at`; for a ring, the edges of its lane of `lcore`. With
    /// `over_rings` the walk goes on through rings, otherwise it ends at the rings that this lcore
    /// empties.
    fn find(&mut self, at: Target, lcore: Option<LcoreId>, over_rings: bool) {
        let edges = self.edges;
        (self.walk, self.lanes) = (self.walk + 1, 0);
        self.ports.clear();
        self.stages.clear();
        self.copied.clear();
        let mut todo = vec![at];
        while let Some(target) = todo.pop() {
            for edge in edges.leading_to(target).iter().filter(|edge| over_rings || edge.lcore == lcore) {
                self.come_from(edge, &mut todo);
            }
            let consumer = match target {
                Target::Stage(id) => {
                    // A stage is visited once.
                    self.lanes += self.links.injectors_into(id).count();
                    Consumer::Stage(id)
                }
                Target::Port(id) => Consumer::Port(id),
                Target::Ring(_) | Target::Spread(_) | Target::Drop => continue,
            };
            for ring in edges.rings_into(consumer) {
                if self.is_new(1, ring.index()) {
                    self.lanes += edges.lanes(*ring).len().max(1);
                    todo.extend(over_rings.then_some(Target::Ring(*ring)));
                }
            }
        }
    }

    fn come_from(&mut self, edge: &Edge, todo: &mut Vec<Target>) {
        match edge.from {
            Producer::Port(id) => {
                if self.is_new(0, id.index()) {
                    self.ports.push(id);
                }
            }
            Producer::Stage(id) => {
                if self.is_new(2, id.index()) {
                    self.stages.push(id);
                    todo.push(Target::Stage(id));
                }
                if edge.through.is_some_and(|spread| self.raw.copies(spread)) {
                    self.copied.push((id, edge.named));
                }
            }
        }
    }

    /// Whether a stage on the way to `port` takes packets from a pool on `device`.
    pub(crate) fn copies(&mut self, port: PortId, device: DeviceId) -> bool {
        self.find(Target::Port(port), None, true);
        let links = self.links;
        let copies = |stage: &StageId| {
            let own = links.stages[stage.index()].pool.and_then(|own| links.pools[own.index()]);
            own == Some(device)
        };
        self.stages.iter().any(copies)
    }

    /// The stages and the ports of `lcore` that lead to `at` within it, in the order of the file.
    pub(crate) fn leading_to(&mut self, at: Target, lcore: LcoreId) -> (Vec<StageId>, Vec<PortId>) {
        self.find(at, Some(lcore), false);
        self.stages.sort_unstable();
        self.ports.sort_unstable();
        (self.stages.clone(), self.ports.clone())
    }

    /// The input of a stage. Call it for each stage before those that it feeds.
    pub(crate) fn of_stage(&mut self, id: StageId) -> Batch {
        let links = &self.links.stages[id.index()];
        let batch = self.batch(Target::Stage(id), links.lcore);
        let fresh = if links.pool.is_some() { self.burst(links.lcore) } else { 0 };
        let own = fresh.saturating_add(self.links.keeps(id, self.raw));
        self.sent[id.index()] = batch.packets().saturating_add(own);
        batch
    }

    pub(crate) fn of_port(&mut self, id: PortId) -> Batch {
        self.batch(Target::Port(id), self.links.ports[id.index()].lcore)
    }

    /// One batch for each lane.
    pub(crate) fn of_ring(&mut self, id: RingId) -> Vec<Batch> {
        let ring = &self.raw.rings[id.index()];
        let at_least = match (ring.full.value, &ring.depth) {
            // The batch holds as many waiting packets as the ring, so that the oldest of all are
            // dropped.
            (WhenFull::Displace, Some(depth)) => depth.value,
            _ => 0,
        };
        let lanes = self.edges.lanes(id).iter();
        lanes.map(|lane| self.batch(Target::Ring(id), Some(lane.lcore)).at_least(at_least)).collect()
    }

    fn burst(&self, lcore: Option<LcoreId>) -> u32 {
        lcore.map_or(0, |id| self.raw.lcores[id.index()].burst_packets.value)
    }

    /// The packets that can pile up before `at` in one loop of `lcore`: a burst from each port and
    /// lane upstream, another from each port whose connections share a receive queue (packets that
    /// came before the stages knew of a connection), a burst from each stage upstream that takes
    /// fresh packets, and all that stages upstream may release. A packet is in one place at a time,
    /// so each term counts once, however many paths lead here. Copies count one by one only where
    /// several of the same packet meet.
    fn batch(&mut self, at: Target, lcore: Option<LcoreId>) -> Batch {
        self.find(at, lcore, false);
        let links = self.links;
        let burst = self.burst(lcore);
        let fresh = self.stages.iter().filter(|id| links.stages[id.index()].pool.is_some()).count();
        let held = self.stages.iter().fold(0_u32, |sum, id| sum.saturating_add(links.keeps(*id, self.raw)));
        // A target without producers still gets a batch of one burst: an empty batch is of no use.
        let bursts = self.ports.len() + self.early() + self.lanes + fresh;
        let bursts = u32::try_from(bursts.max(1)).unwrap_or(u32::MAX);
        let copies = self.copies_together();
        let and_copies = if copies > 0 { format!(" + {copies} copies") } else { String::new() };
        Batch {
            fresh_packets: bursts.saturating_mul(burst).saturating_add(copies),
            held_packets: held,
            bursts: match bursts {
                1 => format!("burst {burst}{and_copies}"),
                _ => format!("{bursts} bursts of {burst}{and_copies}"),
            },
        }
    }

    /// The number of ports upstream that receive for connections of which the stages do not know
    /// yet.
    fn early(&self) -> usize {
        self.ports.iter().filter(|id| self.raw.ports[id.index()].shared.rx_shared_wr.given).count()
    }

    /// The packets that arrive through several places of one copying spread: all copies but one.
    fn copies_together(&mut self) -> u32 {
        self.copied.sort_unstable();
        let twice = self.copied.windows(2).filter(|pair| pair[0] == pair[1]);
        twice.fold(0, |sum: u32, pair| sum.saturating_add(self.sent[pair[0].0.index()]))
    }
}

impl RawPlan {
    pub(crate) fn copies(&self, spread: crate::ids::SpreadId) -> bool {
        self.spreads[spread.index()].by.as_ref().is_some_and(|by| by.value == SpreadBy::Copy)
    }
}

impl Links<'_> {
    /// The most packets that a stage keeps between two calls.
    pub(crate) fn holds(&self, id: StageId) -> u32 {
        self.stages[id.index()].kind.map_or(0, |kind| kind.spec.holds_packets)
    }

    /// Like [`Links::holds`], with the packets that the stage's operations own and bring back.
    fn keeps(&self, id: StageId, raw: &RawPlan) -> u32 {
        self.holds(id).saturating_add(self.operations(id, raw))
    }
}
