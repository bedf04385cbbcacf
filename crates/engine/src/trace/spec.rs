//! The settings of a trace, and the reasons to refuse it.

use std::num::NonZeroU32;

use crate::capture::spec::CaptureFilter;

/// The packets that a trace marks, and the part of the time in which it records its lcores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceSpec {
    /// Marks packets with these bytes as they are received, popped, or sent by a stage; without a
    /// filter all packets are marked.
    pub filter: Option<CaptureFilter>,
    /// Records one millisecond in this many, the same on all lcores, and further ones as an lcore
    /// comes late to look for work, at most half as many again; without it everything.
    pub one_in: Option<NonZeroU32>,
}

/// Why there is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The settings ask for something impossible.
    #[error("{why}")]
    Invalid {
        /// What was asked for, and what is possible.
        why: String,
    },
    /// A run has one trace at a time.
    #[error("another trace is under way; end it, or wait for it")]
    Busy,
    /// An lcore has not ended its part of the last trace: a stage there does not return.
    #[error("the lcore {lcore:?} has not heard yet that the last trace ended; ask again")]
    LcoreLate {
        /// Its name.
        lcore: String,
    },
    /// The run has nothing more to trace.
    #[error("the run is over")]
    Over,
}
