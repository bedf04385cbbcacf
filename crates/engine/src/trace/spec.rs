//! What a trace is asked for, and why it is refused.

use std::num::NonZeroU32;

use crate::capture::spec::CaptureFilter;

/// What a trace marks, and what part of the time it records: everything that its lcores do then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceSpec {
    /// Marks packets that have these bytes as they are received, popped, or sent by a stage;
    /// without a filter all are marked.
    pub filter: Option<CaptureFilter>,
    /// Records one millisecond in this many, the same on all lcores, and one as an lcore comes late
    /// to look for work, at most half as many again; without it everything.
    pub one_in: Option<NonZeroU32>,
}

/// Why there is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Something that can't be done is asked for.
    #[error("{why}")]
    Invalid {
        /// What, and what can be.
        why: String,
    },
    /// A run has one trace at a time.
    #[error("another trace is under way; end it, or wait for it")]
    Busy,
    /// An lcore has not ended its part of the trace before: a stage there does not return.
    #[error("the lcore {lcore:?} has not heard yet that the last trace ended; ask again")]
    LcoreLate {
        /// Its name.
        lcore: String,
    },
    /// There is nothing to trace any more.
    #[error("the run is over")]
    Over,
}
