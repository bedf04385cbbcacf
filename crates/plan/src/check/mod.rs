//! The checks of a plan's tables against one another, in their order, and their results.

pub(crate) mod addresses;
pub(crate) mod alternate;
mod attributes;
pub(crate) mod connections;
mod devices;
pub(crate) mod edges;
pub(crate) mod flow;
pub(crate) mod lcores;
mod listeners;
pub(crate) mod nodes;
mod order;
pub(crate) mod ports;
pub(crate) mod prepended;
pub(crate) mod refs;
pub(crate) mod regions;
mod rings;
mod sends;
mod sizes;
mod spreads;
mod unused;
pub(crate) mod upstream;

use crate::catalog::Catalog;
use crate::check::edges::Edges;
use crate::check::flow::Flow;
use crate::check::lcores::Lcores;
use crate::check::ports::PortFacts;
use crate::check::refs::Links;
use crate::check::regions::RegionFacts;
use crate::diag::sink::Sink;
use crate::ids::StageId;
use crate::machine::Machine;
use crate::read::raw::RawPlan;

/// Results of all checks, for the sums, the drawing and the plan.
pub(crate) struct Checked<'a> {
    pub(crate) raw: RawPlan,
    pub(crate) links: Links<'a>,
    pub(crate) edges: Edges,
    pub(crate) ports: Vec<PortFacts>,
    pub(crate) regions: Vec<RegionFacts>,
    pub(crate) lcores: Lcores,
    /// All stages, each before those that it feeds.
    pub(crate) order: Vec<StageId>,
    pub(crate) flow: Flow,
}

impl<'a> Checked<'a> {
    /// Checks everything but the sums.
    pub(crate) fn new(raw: RawPlan, catalog: &'a Catalog, machine: &Machine, sink: &mut Sink) -> Checked<'a> {
        let links = refs::resolve(&raw, catalog, sink);
        let edges = links.edges(&raw, sink);
        let ports = ports::check(&raw, &links, catalog, sink);
        devices::check(&raw, sink);
        let regions = regions::check(&raw, sink);
        let lcores = lcores::check(&raw, &links, edges.all(), machine, sink);
        nodes::check(&raw, machine, sink);
        rings::check(&raw, &links, &edges, sink);
        spreads::check(&raw, &links, &edges, sink);
        let order = order::check(&raw, &links, &edges, sink);
        unused::check(&raw, &links, &edges, sink);
        let flow = flow::trace(&raw, &links, &edges, &order, sink);
        sizes::check(&raw, &links, &ports, &flow, sink);
        spreads::sizes(&raw, &links, &edges, &flow, sink);
        Checked { raw, links, edges, ports, regions, lcores, order, flow }
    }
}
