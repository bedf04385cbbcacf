//! Ports without a first connection yet: the log names them, less and less often.

use std::time::{Duration, Instant};

use crate::connection::spec::{ConnectionSpec, Established};

/// Ends that start together have met within this time.
const FIRST: Duration = Duration::from_secs(2);
/// The longest pause between two log lines.
const LONGEST: Duration = Duration::from_secs(60);

/// The schedule of the log: after [`FIRST`], and then after pauses that double up to [`LONGEST`].
#[derive(Debug)]
struct Pace {
    next: Duration,
}

impl Pace {
    const START: Pace = Pace { next: FIRST };

    fn is_due(&mut self, waited: Duration) -> bool {
        let is_due = waited >= self.next;
        if is_due {
            self.next = waited + waited.min(LONGEST);
        }
        is_due
    }
}

/// See the top of this file.
#[derive(Debug)]
pub(crate) struct Waiting {
    ports: Vec<Port>,
    since: Instant,
    pace: Pace,
}

#[derive(Debug)]
struct Port {
    index: usize,
    name: String,
    does: String,
    timeout: Duration,
}

impl Waiting {
    pub(crate) fn of(specs: &[ConnectionSpec]) -> Waiting {
        let ports = specs.iter().map(|ConnectionSpec { port, role, .. }| Port {
            index: port.index,
            name: port.name.clone(),
            does: role.does(),
            timeout: port.timeout,
        });
        Waiting { ports: ports.collect(), since: Instant::now(), pace: Pace::START }
    }

    pub(crate) fn has_met(&mut self, established: &Established) {
        self.ports.retain(|port| port.index != established.spec.port.index);
    }

    /// Logs the ports that still wait, if that is due.
    pub(crate) fn tell(&mut self) {
        let waited = self.since.elapsed();
        if !self.pace.is_due(waited) {
            return;
        }
        let waited = Duration::from_secs(waited.as_secs());
        for Port { name, does, timeout, .. } in &self.ports {
            tracing::warn!(port = %name, ?waited, connect_timeout = ?timeout, "no connection yet: it {does}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_two_looks_double_up_to_a_minute() {
        let mut pace = Pace::START;
        let due: Vec<u64> = (0..250).filter(|second| pace.is_due(Duration::from_secs(*second))).collect();
        assert_eq!(due, [2, 4, 8, 16, 32, 64, 124, 184, 244]);
    }
}
