//! The result of the run's own trace: the slowest packets of its last minutes.

use serde::{Deserialize, Serialize};

use super::summary::Summary;

/// The kept packets of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The time of the answer by the run's clock, which also counts the times of packets and turns.
    pub now_ns: u64,
    /// The length of the time of which packets are kept.
    pub last_ns: u64,
    /// Pauses in that time, in which a client traced the run; the oldest first.
    pub pauses: Vec<Pause>,
    /// The packets, the turns, and the counts beside them.
    #[serde(flatten)]
    pub found: Summary,
}

/// A time in which a run kept nothing, by its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The beginning.
    pub from_ns: u64,
    /// The end; `None` while it lasts.
    pub to_ns: Option<u64>,
}
