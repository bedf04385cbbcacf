//! Changes of a run's ports by a plan that was read again.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use verbline_plan::{Diagnostics, KeyChange, Plan, PortChange, PortId, Taking};

use crate::control::change::{Asked, Change, ChangeOutcome};
use crate::control::notice::Notice;
use crate::errors::guarded::lock;
use crate::run::stop::RunningInner;
use crate::setup::changes::Known;

/// The limit for the ports of a run together to drain their send queues.
pub(super) const DRAINED_WITHIN: Duration = Duration::from_secs(5);
/// How often an lcore is asked again: not every device reports that a send queue is drained.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The outcome for a port's keys that take effect in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedPort {
    /// The port's name.
    pub port: String,
    /// The keys that differ from the running ones.
    pub keys: Vec<KeyChange>,
    /// The outcome: for all of the keys or for none.
    pub outcome: ChangeOutcome,
}

impl RunningInner {
    pub(super) fn change_ports(&self, plan: &Plan) -> Result<Vec<ChangedPort>, Diagnostics> {
        self.change_ports_within(plan, DRAINED_WITHIN)
    }

    pub(super) fn change_ports_within(&self, plan: &Plan, limit: Duration) -> Result<Vec<ChangedPort>, Diagnostics> {
        let mut known = self.known();
        let changes = known.plan.port_changes(plan)?;
        let mut after = known.plan.clone();
        for PortChange { port, keys } in &changes {
            keys.iter().for_each(|key| after.take(*port, key));
        }
        let mut asking = Asking { run: self, until: Instant::now() + limit, changed: Vec::new() };
        // Before the known plan changes: the ports whose datagrams get another destination.
        let ids: Vec<PortId> = known.plan.ports().iter().map(|port| port.id).collect();
        let destinations: Vec<_> = ids.into_iter().map(|port| (port, known.destination(&after, port))).collect();
        for PortChange { port, keys } in &changes {
            for taking in [Taking::Drained, Taking::Sending, Taking::NextConnection] {
                let keys: Vec<KeyChange> = keys.iter().filter(|key| key.taking == taking).copied().collect();
                if !keys.is_empty() {
                    asking.ask_port(&mut known, &after, *port, keys, taking);
                }
            }
        }
        // After the Q_Keys: receivers accept the new ones by then.
        for (port, asked) in destinations {
            let outcome = match asked {
                Ok(None) => continue,
                Ok(Some(asked)) => asking.ask(known.place(port), asked),
                Err(error) => ChangeOutcome::Refused(error.to_string()),
            };
            asking.sends_elsewhere(&mut known, port, outcome);
        }
        Ok(asking.changed)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        // Every change of it is a few assignments.
        lock(&self.known)
    }

    /// Has an lcore change the port at this index, and waits for the outcome.
    pub(super) fn ask(&self, [lcore, port]: [usize; 2], change: &Arc<Change>, until: Instant) -> ChangeOutcome {
        loop {
            self.control.notify(lcore, Notice::Change { port, change: Arc::clone(change) });
            let left = until.saturating_duration_since(Instant::now());
            if let Some(outcome) = change.wait(ASK_EVERY.min(left)) {
                return outcome;
            }
            if self.control.with(|progress| progress.ended > 0 || !progress.failures.is_empty()) {
                return ChangeOutcome::Refused("the run is over".to_owned());
            }
            if left.is_zero() {
                return change.abandon().unwrap_or(ChangeOutcome::Draining);
            }
        }
    }
}

/// The changes for one plan under way.
struct Asking<'a> {
    run: &'a RunningInner,
    until: Instant,
    changed: Vec<ChangedPort>,
}

impl Asking<'_> {
    /// Requests the keys of a port that take effect in the same way.
    fn ask_port(&mut self, known: &mut Known, after: &Plan, port: PortId, keys: Vec<KeyChange>, taking: Taking) {
        let asked = known.attributes(after, port, &keys, taking == Taking::Drained);
        let outcome = match asked {
            _ if taking == Taking::NextConnection => ChangeOutcome::NextConnection,
            Ok(Some(asked)) => self.ask(known.place(port), asked),
            // Keys of the datagrams' destination, which is changed afterwards.
            Ok(None) => ChangeOutcome::Taken { held: Duration::ZERO },
            Err(error) => ChangeOutcome::Refused(error.to_string()),
        };
        // A draining queue pair has them soon; if it goes down before, its successor has them.
        if matches!(outcome, ChangeOutcome::Taken { .. } | ChangeOutcome::NextConnection | ChangeOutcome::Draining) {
            known.take(port, &keys);
        }
        let port = known.plan[port].name.clone();
        tracing::info!(%port, ?keys, ?outcome, "the plan was read again");
        self.changed.push(ChangedPort { port, keys, outcome });
    }

    fn ask(&self, place: [usize; 2], asked: Asked) -> ChangeOutcome {
        self.run.ask(place, &Change::new(asked), self.until)
    }

    /// Records a refused destination of a port's datagrams. The change came from the port's own
    /// keys, or from its peer's Q_Key, of which only a refusal is reported.
    fn sends_elsewhere(&mut self, known: &mut Known, port: PortId, outcome: ChangeOutcome) {
        if matches!(outcome, ChangeOutcome::Taken { .. }) {
            return;
        }
        let name = known.plan[port].name.clone();
        let is_own = |changed: &&mut ChangedPort| {
            changed.port == name && changed.keys.iter().any(|key| key.taking == Taking::Sending)
        };
        match self.changed.iter_mut().find(is_own) {
            Some(changed) => {
                let back: Vec<_> =
                    changed.keys.iter().map(|key| KeyChange { from: key.to, to: key.from, ..*key }).collect();
                known.take(port, &back);
                changed.outcome = outcome;
            }
            None => self.changed.push(ChangedPort { port: name, keys: Vec::new(), outcome }),
        }
    }
}
