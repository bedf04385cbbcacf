//! A port that holds its sends, as long as a thread of the owner wants it to.

use std::time::Instant;

use crate::control::change::{Asked, Change, ChangeOutcome};
use crate::run::change::DRAINED_WITHIN;
use crate::run::stop::RunningInner;

/// A port whose send queue is drained and holds the work requests posted to it (SQD), until
/// [`PausedPort::resume`] is called or this is dropped. It receives meanwhile.
#[derive(Debug)]
#[must_use = "the port sends again as soon as this is dropped"]
pub struct PausedPort<'a> {
    run: &'a RunningInner,
    place: [usize; 2],
    is_over: bool,
}

impl RunningInner {
    pub(super) fn pause_port(&self, name: &str) -> Result<PausedPort<'_>, ChangeOutcome> {
        let refused = |why: String| Err(ChangeOutcome::Refused(why));
        let place = {
            let known = self.known();
            let Some(port) = known.plan.ports().iter().find(|port| port.name == name) else {
                return refused(format!("the plan has no port.{name}"));
            };
            if port.connections.is_some() {
                return refused(format!("port.{name} has many connections: one alone can't be paused"));
            }
            if port.signature_keys > 0 {
                return refused(format!("port.{name} has `signature_keys`: its device drains it, behind a bad block"));
            }
            known.place(port.id)
        };
        let change = Change::new(Asked::Pause);
        // If the pause is abandoned, the port goes on once it is drained.
        match self.ask(place, &change, Instant::now() + DRAINED_WITHIN) {
            ChangeOutcome::Taken { .. } => Ok(PausedPort { run: self, place, is_over: false }),
            outcome => Err(outcome),
        }
    }
}

impl PausedPort<'_> {
    /// Lets the port send again, held work requests first, and waits for that.
    pub fn resume(mut self) -> ChangeOutcome {
        self.end()
    }

    fn end(&mut self) -> ChangeOutcome {
        self.is_over = true;
        self.run.ask(self.place, &Change::new(Asked::Resume), Instant::now() + DRAINED_WITHIN)
    }
}

impl Drop for PausedPort<'_> {
    fn drop(&mut self) {
        if !self.is_over
            && let outcome @ ChangeOutcome::Refused(_) = self.end()
        {
            tracing::warn!(?outcome, "a port that was paused does not send again");
        }
    }
}
