//! What a client asks of a trace: a part of its request.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use verbline_engine::{TraceError, TraceSpec};

use crate::capture_ask::FilterAsk;

/// What a trace marks, and how much it records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceAsk {
    /// Marks packets that have these bytes as they are received, popped, or sent by a stage;
    /// without it all are marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterAsk>,
    /// Records one millisecond in this many, and one as an lcore comes late to look for work;
    /// without it everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_in: Option<NonZeroU32>,
}

impl TraceAsk {
    pub(crate) fn spec(&self) -> Result<TraceSpec, TraceError> {
        let filter = self.filter.as_ref().map(FilterAsk::filter).transpose();
        Ok(TraceSpec { filter: filter.map_err(|why| TraceError::Invalid { why })?, one_in: self.one_in })
    }
}
