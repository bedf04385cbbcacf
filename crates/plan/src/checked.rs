//! What the checks of a plan found, for the steps that follow them: the drawing, the sums, the
//! build.

use crate::edges::Edges;
use crate::flow::Flow;
use crate::ids::StageId;
use crate::lcores::Lcores;
use crate::ports::PortFacts;
use crate::raw::RawPlan;
use crate::refs::Links;
use crate::regions::RegionFacts;

/// Everything that the checks worked out.
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
