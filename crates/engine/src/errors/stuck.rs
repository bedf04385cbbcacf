//! Threads that keep a run from ending.

use std::fmt;
use std::time::Duration;

/// A thread of a run that did not end when the run was stopped, and what it does instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The lcore whose thread it is; of a thread that makes connections, that of its port; of the
    /// thread that reads the devices' events, the first that it may notify.
    pub lcore: String,
    /// The stage that does not return; `None` if none was called.
    pub stage: Option<String>,
    /// Who it is: `stage.NAME`, ``acceptor `NAME` of port.NAME``, or a thread of the engine's own.
    pub who: String,
    /// What does not return, e.g. ``in `process` ``.
    pub place: &'static str,
    /// For how long, as the stop gave up. An lcore that is in a stage reads no clock: the time is
    /// that since it last did, a few turns of its loop before the call.
    pub since: Duration,
}

impl Stuck {
    /// A sentence about it.
    pub(crate) fn sentence(&self) -> String {
        format!(
            "{} has been {} for {:.1?}, and did not come back when the run was stopped",
            self.who, self.place, self.since
        )
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stuck { lcore, who, place, since, .. } = self;
        write!(f, "{who} (lcore.{lcore}) has been {place} for {since:.1?}")
    }
}

/// All of them, in one line.
pub(crate) fn all(stuck: &[Stuck]) -> String {
    stuck.iter().map(Stuck::to_string).collect::<Vec<_>>().join("; ")
}
