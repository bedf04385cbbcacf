//! What the checks of a plan found, for the steps that follow them: the drawing, the sums, the
//! build.

use crate::flow::Flow;
use crate::ids::StageId;
use crate::lcores::Lcores;
use crate::ports::PortFacts;
use crate::raw::RawPlan;
use crate::refs::{Edge, Edges, Links};

/// Everything that the checks worked out.
pub(crate) struct Checked<'a> {
    pub(crate) raw: RawPlan,
    pub(crate) links: Links<'a>,
    pub(crate) edges: Edges,
    pub(crate) ports: Vec<PortFacts>,
    pub(crate) lcores: Lcores,
    /// The edge that fills each ring.
    pub(crate) ring_edges: Vec<Option<Edge>>,
    /// All stages, each before those that it feeds.
    pub(crate) order: Vec<StageId>,
    pub(crate) flow: Flow,
}
