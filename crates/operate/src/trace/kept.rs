//! What a run keeps of itself, as a client is told: the slowest packets of its last time.

use serde::{Deserialize, Serialize};

use super::summary::Summary;

/// What a run has kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// When it was told, by the run's clock: the times of packets and turns are by that too.
    pub now_ns: u64,
    /// It keeps what came in a last time of this length.
    pub last_ns: u64,
    /// When it kept nothing in that time, since a client traced the run; the oldest first.
    pub pauses: Vec<Pause>,
    /// The packets and the turns, and what was counted beside them.
    #[serde(flatten)]
    pub found: Summary,
}

/// A time in which a run kept nothing, by its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// From when.
    pub from_ns: u64,
    /// Until when; `None`: it lasts.
    pub to_ns: Option<u64>,
}
