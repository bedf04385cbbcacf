//! What a client asks of a trace: a part of its request.

use serde::{Deserialize, Serialize};
use verbline_engine::{TraceError, TraceSpec};

use crate::capture_ask::FilterAsk;

/// What a trace marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceAsk {
    /// Marks packets that have these bytes as they are received, popped, or sent by a stage;
    /// without it all are marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterAsk>,
}

impl TraceAsk {
    pub(crate) fn spec(&self) -> Result<TraceSpec, TraceError> {
        let filter = self.filter.as_ref().map(FilterAsk::filter).transpose();
        Ok(TraceSpec { filter: filter.map_err(|why| TraceError::Invalid { why })? })
    }
}
