//! From a plan to everything that it names.

use verbline_plan::Plan;

use crate::error::EngineError;
use crate::registry::Registry;

#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) notes: Vec<String>,
}

pub(crate) fn build(_plan: &Plan, _registry: &Registry) -> Result<Built, EngineError> {
    unimplemented!("the devices follow")
}
