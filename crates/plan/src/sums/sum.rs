//! Sums: every limit is at least the sum of its named worst-case users, each with the line in the
//! plan that causes it.
//!
//! A pool must have a packet for every place that can own one at the same time. A completion queue
//! must have room for every work request that can complete into it (in the error state all of them
//! flush, signaled or not).
//!
//! A packet is in one place at a time. While a packet passes from a holding stage through the
//! inputs of other stages, which empty within the same loop, it is therefore counted as held. A
//! batch that waits at a port or for a ring can keep it, and counts it again.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::check::connections::Depth;
use crate::check::edges::Edges;
use crate::check::flow::{Flow, Reach};
use crate::check::refs::Links;
use crate::diag::sink::Sink;
use crate::diag::source::{Location, Sources, Span};
use crate::ids::{InjectorId, LcoreId, PoolId, PortId, RingId, StageId};
use crate::limits::CQ_DEPTH_MAX;
use crate::read::raw::RawPlan;
use crate::read::reader::Field;

/// One proof: the terms, their total, and the limit.
#[derive(Debug, Clone)]
pub struct Sum {
    /// The bounded resource, e.g. `pool.packets` or `hugepages of 2 MiB`.
    pub of: String,
    /// The unit, e.g. `packets` or `bytes`.
    pub unit: &'static str,
    /// The users.
    pub terms: Vec<Term>,
    /// Their total.
    pub needed: u64,
    /// The limit.
    pub limit: Limit,
    /// The text of the plan, for the places of terms.
    sources: Sources,
}

/// The limit of a [`Sum`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// Set by the plan, at this place.
    Plan(u64, Location),
    /// Set by the machine.
    Machine(u64),
    /// No limit.
    None,
    /// The resource is made as large as the total.
    Derived,
}

/// One user in a [`Sum`].
#[derive(Debug, Clone)]
pub struct Term {
    /// The user, e.g. `receive queue of port.md_a`.
    pub what: String,
    /// The computation of the value, e.g. `2 bursts of 32`; may be empty.
    pub how: String,
    /// The amount.
    pub value: u64,
    /// The line in the plan.
    pub at: Location,
}

/// Width of a term's text in a diagnostic, columns.
const TABLE_WIDTH: usize = 44;

/// The most terms in a diagnostic.
const TABLE_TERMS_MAX: usize = 60;

impl Sum {
    pub(crate) fn new(of: impl Into<String>, unit: &'static str, sink: &Sink) -> Self {
        let sources = sink.sources.clone();
        Sum { of: of.into(), unit, terms: Vec::new(), needed: 0, limit: Limit::None, sources }
    }

    pub(crate) fn add(&mut self, what: String, how: &str, value: u64, at: Span) {
        if value > 0 {
            self.needed = self.needed.saturating_add(value);
            self.terms.push(Term { what, how: how.to_owned(), value, at: self.sources.locate(at) });
        }
    }

    /// Sets a limit of the plan, at this place.
    pub(crate) fn limit_to(&mut self, limit: impl Into<u64>, at: Span) {
        self.limit = Limit::Plan(limit.into(), self.sources.locate(at));
    }

    fn add_depth(&mut self, what: String, depth: Depth<'_>) {
        self.add(what, &depth.how(), depth.wr(), depth.key().span);
    }

    /// Whether the limit suffices.
    pub fn holds(&self) -> bool {
        match self.limit {
            Limit::Plan(limit, _) | Limit::Machine(limit) => self.needed <= limit,
            Limit::None | Limit::Derived => true,
        }
    }

    /// The terms as aligned lines, with line numbers only as their places.
    pub(crate) fn table(&self) -> String {
        let lines = self.terms.iter().take(TABLE_TERMS_MAX).map(|term| {
            let at = if term.at.line == 0 { "--set".to_owned() } else { format!("line {}", term.at.line) };
            let full = term.full();
            let what = if full.chars().count() > TABLE_WIDTH { &term.what } else { &full };
            format!("{:>11}  {what:<TABLE_WIDTH$}  {at}\n", term.value)
        });
        let mut table: String = lines.collect();
        let rest = self.terms.get(TABLE_TERMS_MAX..).unwrap_or_default();
        if !rest.is_empty() {
            let value = rest.iter().fold(0_u64, |sum, term| sum.saturating_add(term.value));
            let _ = writeln!(table, "{value:>11}  {} more, which `--explain` names", rest.len());
        }
        table + &format!("{:>11}  {}", self.needed, self.unit)
    }

    pub(crate) fn explain(&self, out: &mut String) {
        let width = self.terms.iter().map(|term| term.full().chars().count()).max().unwrap_or(0);
        let _ = writeln!(out, "{}: {}", self.of, self.unit);
        for term in &self.terms {
            let _ = writeln!(out, "  {:>12}  {:<width$}  {}", term.value, term.full(), term.at.short());
        }
        let verdict = |limit: u64| match limit.checked_sub(self.needed) {
            Some(spare) => format!("{spare} to spare"),
            None => format!("{} TOO FEW", self.needed - limit),
        };
        let limit = match &self.limit {
            Limit::Plan(limit, at) => format!("of {limit} ({}): {}", at.short(), verdict(*limit)),
            Limit::Machine(limit) => format!("of {limit} that the machine has: {}", verdict(*limit)),
            Limit::None => "without a limit".to_owned(),
            Limit::Derived => "and made so".to_owned(),
        };
        let _ = writeln!(out, "  {:>12}  needed, {limit}", self.needed);
    }
}

impl Term {
    fn full(&self) -> String {
        match self.how.as_str() {
            "" => self.what.clone(),
            how => format!("{} ({how})", self.what),
        }
    }
}

/// All sums as text, one paragraph each.
pub(crate) fn explain(sums: &[Sum]) -> String {
    let mut out = String::new();
    for sum in sums {
        if !out.is_empty() {
            out.push('\n');
        }
        sum.explain(&mut out);
    }
    out
}

/// The sums of pools and completion queues, and the least depth of each lcore's queue.
pub(crate) fn check(
    raw: &RawPlan,
    links: &Links<'_>,
    edges: &Edges,
    flow: &Flow,
    sink: &mut Sink,
) -> (Vec<Sum>, Vec<u64>) {
    let mut sums = Vec::new();
    for (index, reach) in flow.reach.iter().enumerate() {
        sums.extend(pool(PoolId::from_index(index), reach, raw, (links, edges), flow, sink));
    }
    let mut ports: Vec<Vec<PortId>> = vec![Vec::new(); raw.lcores.len()];
    for (index, port) in links.ports.iter().enumerate() {
        port.lcore.into_iter().for_each(|id| ports[id.index()].push(PortId::from_index(index)));
    }
    let mut depths = Vec::with_capacity(ports.len());
    for (index, ports) in ports.iter().enumerate() {
        let sum = completions(LcoreId::from_index(index), ports, raw, sink);
        depths.push(sum.as_ref().map_or(0, |sum| sum.needed));
        sums.extend(sum);
    }
    (sums, depths)
}

/// A pool's sum: every place that can own a packet of it.
struct PoolSum<'a> {
    raw: &'a RawPlan,
    links: &'a Links<'a>,
    edges: &'a Edges,
    flow: &'a Flow,
    sum: Sum,
}

fn pool(
    id: PoolId,
    reach: &Reach,
    raw: &RawPlan,
    (links, edges): (&Links<'_>, &Edges),
    flow: &Flow,
    sink: &mut Sink,
) -> Option<Sum> {
    let pool = &raw.pools[id.index()];
    let packets = pool.packets.as_ref()?;
    let name = &pool.head.name;
    let sum = Sum::new(format!("pool.{name}"), "packets that can be out at once", sink);
    let mut owners = PoolSum { raw, links, edges, flow, sum };
    reach.received_by.iter().for_each(|id| owners.add_receiver(*id));
    let held: BTreeSet<StageId> = flow.held.iter().flatten().flatten().copied().collect();
    reach.stages.iter().for_each(|id| owners.add_stage(*id, held.contains(id), reach.taken_by.contains(id)));
    reach.rings.iter().for_each(|id| owners.add_ring(*id));
    links.injectors_of(id).for_each(|(id, _)| owners.add_injector(id));
    reach.sent_by.iter().for_each(|id| owners.add_sender(*id));
    for id in &reach.lcores {
        owners.add(format!("cache of lcore.{}", raw.lcores[id.index()].head.name), &pool.cache_packets);
    }
    let mut sum = owners.sum;
    sum.limit_to(packets.value, packets.span);
    if !sum.holds() {
        let message = format!("pool.{name} has {} packets, but {} can be out at once", packets.value, sum.needed);
        sink.error("pool-too-small", packets.span, message)
            .label(format!("{} needed", sum.needed))
            .note(format!("every place that can own a packet of it:\n{}", sum.table()))
            .help(format!("write `packets = {}` or more, or make a term smaller", sum.needed));
    }
    Some(sum)
}

impl PoolSum<'_> {
    fn add(&mut self, what: String, packets: &Field<u32>) {
        self.sum.add(what, packets.note(), packets.value.into(), packets.span);
    }

    /// Adds a burst of the lcore, where there is one.
    fn add_burst(&mut self, what: String, lcore: Option<LcoreId>) {
        if let Some(lcore) = lcore {
            self.add(what, &self.raw.lcores[lcore.index()].burst_packets);
        }
    }

    fn add_receiver(&mut self, id: PortId) {
        let port = &self.raw.ports[id.index()];
        let what = format!("receive queue of port.{}", port.head.name);
        self.sum.add(what, &port.rx_how(), port.rx_wr(), port.rx_key().span);
        self.add_burst(format!("received by port.{}", port.head.name), self.links.ports[id.index()].lcore);
    }

    fn add_stage(&mut self, id: StageId, is_held: bool, takes: bool) {
        let stage = &self.raw.stages[id.index()];
        let (name, span) = (&stage.head.name, stage.head.span);
        let batch = &self.flow.stages[id.index()];
        // Packets that a stage releases may wait in the input of a held stage.
        let (how, packets) = match is_held {
            true => (batch.how(), batch.packets()),
            false => (batch.bursts.clone(), batch.fresh_packets),
        };
        self.sum.add(format!("input of stage.{name}"), &how, packets.into(), span);
        if takes {
            self.add_burst(format!("taken fresh by stage.{name}"), self.links.stages[id.index()].lcore);
            for (spread, places) in self.edges.copied_by(id, self.raw) {
                let (packets, copies) = (self.flow.sent[id.index()], places.saturating_sub(1) as u64);
                let (what, how) = (format!("copied by stage.{name}"), format!("{copies} of each of {packets}"));
                let at = self.raw.spreads[spread.index()].head.span;
                self.sum.add(what, &how, u64::from(packets) * copies, at);
            }
        }
        let at = stage.kind.as_ref().map_or(span, |kind| kind.span);
        self.sum.add(format!("held by stage.{name}"), "", self.links.holds(id).into(), at);
        let operations = self.links.operations(id, self.raw).into();
        self.sum.add(format!("operations of stage.{name}"), "", operations, span);
    }

    fn add_ring(&mut self, id: RingId) {
        let ring = &self.raw.rings[id.index()];
        let (name, lanes) = (&ring.head.name, self.edges.lanes(id));
        for (lane, batch) in lanes.iter().zip(&self.flow.rings[id.index()]) {
            let lcore = &self.raw.lcores[lane.lcore.index()].head.name;
            let of_lcore = if lanes.len() > 1 { format!(" on lcore.{lcore}") } else { String::new() };
            let what = format!("gathered for ring.{name}{of_lcore}");
            self.sum.add(what, &batch.how(), batch.packets().into(), ring.head.span);
        }
        if let Some(depth) = &ring.depth {
            let lanes = lanes.len() as u64;
            let how = if lanes > 1 { format!("{lanes} lanes of {}", depth.value) } else { String::new() };
            let packets = u64::from(depth.value) * lanes;
            self.sum.add(format!("ring.{name}"), &how, packets, depth.span);
        }
    }

    fn add_injector(&mut self, id: InjectorId) {
        let injector = &self.raw.injectors[id.index()];
        let name = &injector.head.name;
        if let Some(depth) = &injector.depth {
            self.sum.add(format!("injector.{name}"), "", depth.value.into(), depth.span);
        }
        // Its handles push one after another.
        self.sum.add(format!("filled for injector.{name}"), "", 1, injector.head.span);
    }

    fn add_sender(&mut self, id: PortId) {
        let port = &self.raw.ports[id.index()];
        let (name, span) = (&port.head.name, port.head.span);
        if let Some(batch) = &self.flow.ports[id.index()] {
            let packets = u64::from(batch.packets());
            self.sum.add(format!("waiting at port.{name}"), &batch.how(), packets, span);
            let packets = if port.has_peers() { 2 * packets } else { 0 };
            let what = format!("for several peers at port.{name}");
            self.sum.add(what, "sorted, and parked", packets, span);
        }
        self.sum.add_depth(format!("send queue of port.{name}"), port.sends());
    }
}

fn completions(id: LcoreId, ports: &[PortId], raw: &RawPlan, sink: &mut Sink) -> Option<Sum> {
    let lcore = &raw.lcores[id.index()];
    let mut sum = Sum::new(
        format!("lcore.{} completion queue", lcore.head.name),
        "work requests that can complete into it",
        sink,
    );
    for port in ports.iter().map(|id| &raw.ports[id.index()]) {
        let name = &port.head.name;
        let receives = format!("receive queue of port.{name}");
        sum.add(receives, &port.rx_how(), port.rx_wr(), port.rx_key().span);
        sum.add_depth(format!("send queue of port.{name}"), port.sends());
        let ends = format!("ends of connections of port.{name}");
        sum.add(ends, "", port.markers(), port.many().map_or(port.head.span, |many| many.span));
        sum.add_depth(format!("operations of port.{name}"), port.operations());
        let faults = format!("bad blocks found by port.{name}");
        sum.add(faults, "", port.faults(), port.signature_keys.span);
    }
    if sum.terms.is_empty() {
        return None;
    }
    match &lcore.cq_depth_wc {
        Some(depth) => sum.limit_to(depth.value, depth.span),
        None => sum.limit = Limit::Derived,
    }
    if lcore.cq_depth_wc.is_none() && sum.needed > CQ_DEPTH_MAX.into() {
        let message = format!("lcore.{} needs a completion queue of {}", lcore.head.name, sum.needed);
        sink.error("cq-too-deep", lcore.head.span, message)
            .label(format!("at most {CQ_DEPTH_MAX}"))
            .note(format!("when queue pairs fail every work request completes, signaled or not:\n{}", sum.table()))
            .help("make the queues of its ports shorter, or spread the ports over several lcores");
    }
    if let Some(depth) = lcore.cq_depth_wc.as_ref().filter(|_| !sum.holds()) {
        let message = format!("{} completions fit, but {} can come at once", depth.value, sum.needed);
        sink.error("cq-too-small", depth.span, message)
            .label(format!("{} needed", sum.needed))
            .note(format!("when queue pairs fail every work request completes, signaled or not:\n{}", sum.table()))
            .help(format!("write `cq_depth_wc = {}` or more, or leave it out to get just that", sum.needed));
    }
    Some(sum)
}

impl Field<u32> {
    fn note(&self) -> &'static str {
        if self.given { "" } else { "default" }
    }
}
