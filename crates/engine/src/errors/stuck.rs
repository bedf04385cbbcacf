//! Threads that keep a run from ending.

use std::fmt;
use std::time::Duration;

/// A thread of a run that did not end when the run was stopped, and its current call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The lcore whose thread it is; for a thread that makes connections, its port's; for the
    /// thread that reads the devices' events, the first that it may notify.
    pub lcore: String,
    /// The stage that does not return; `None` if none was called.
    pub stage: Option<String>,
    /// The owner of the call: `stage.NAME`, ``acceptor `NAME` of port.NAME``, or a thread of the
    /// engine's own.
    pub who: String,
    /// The call that does not return, e.g. ``in `process` ``.
    pub place: &'static str,
    /// The duration of the call when the stop gave up. An lcore that is in a stage reads no clock:
    /// the time counts from its last reading, a few turns of its loop before the call.
    pub since: Duration,
}

impl Stuck {
    /// A sentence about the thread.
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

/// All stuck threads, in one line.
pub(crate) fn all(stuck: &[Stuck]) -> String {
    stuck.iter().map(Stuck::to_string).collect::<Vec<_>>().join("; ")
}
