//! The interface of an app to the command line.

use serde_json::{Map, Value, json};
use verbline_engine::{Registry, Report, Running, Warning};
use verbline_plan::Plan;

use super::figures::count;

/// An app's additions to the shared command line.
pub trait App {
    /// Its name: that of the binary, and of `app = "…"` in its plans.
    fn name(&self) -> &'static str;

    /// One line for `--help`.
    fn about(&self) -> &'static str;

    /// Registers its stage kinds and the sections of a plan that it reads itself.
    fn register(&self, registry: &mut Registry);

    /// Called when the run has begun: its ports are connected, and its lcores run. The app takes
    /// handles for its own threads: an [`Injector`](verbline_engine::Injector), an
    /// [`Observer`](verbline_engine::Observer) for snapshots, an
    /// [`Interrupter`](verbline_engine::Interrupter), which ends the run as if its time were up.
    /// The live line waits for this call, so slow work belongs on a thread. Such a thread learns of
    /// the end by `Refused::Stopped` of its injector, or by `Observer::is_stopping`; the app may
    /// join it in [`App::outcome`].
    ///
    /// # Errors
    /// The reason why the app can't go on: the run then stops in order, and fails with these words.
    /// Faults of the plan belong in a stage's factory, so that a check finds them, too.
    fn started(&self, plan: &Plan, running: &Running) -> Result<(), String> {
        let _ = (plan, running);
        Ok(())
    }

    /// A few words for the live line, such as a rate or a percentile. Called a few times a second.
    fn live(&self, report: &Report) -> String {
        let packets: u64 = report.ports.iter().map(|port| port.rx_packets).sum();
        format!("{} received", count(packets))
    }

    /// Called when the plan was read again during the run, at the user's request (SIGUSR1). The app
    /// takes over those of its own settings that can change, and returns a description of them, or
    /// nothing. The ports have already taken the attributes of their queue pairs
    /// ([`Running::change_ports`]).
    ///
    /// # Errors
    /// The reason why the app takes nothing.
    fn reload(&self, plan: &Plan) -> Result<String, String> {
        let _ = plan;
        Ok(String::new())
    }

    /// The app's part of the report at the end of a run, beside the engine's. The lcores have
    /// ended.
    fn outcome(&self, report: &Report) -> Outcome {
        let _ = report;
        Outcome::default()
    }
}

/// An app's own part of the report.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Keys that `--json` prints beside the engine's, at the top level.
    pub json: Map<String, Value>,
    /// Lines that a person reads above the engine's tables; at most 80 columns each.
    pub text: String,
    /// Failures, one sentence each. A run with any of them exits with 1.
    pub failures: Vec<String>,
}

impl Outcome {
    /// The whole run as one object: the engine's [`Report`] as it is serialised, which
    /// `docs/report.schema.json` describes. The engine's keys win over the app's.
    pub(super) fn whole(&self, report: &Report) -> Value {
        let mut whole = self.json.clone();
        if let Value::Object(engine) = json!(report) {
            whole.extend(engine);
        }
        // Failures found by the app belong to no lcore.
        let of_app = |message| json!({ "lcore": null, "stage": null, "panicked": false, "message": message });
        let failures = report.failures.iter().map(|failure| json!(failure));
        whole.insert("failures".into(), failures.chain(self.failures.iter().map(of_app)).collect());
        let warning = |one: &Warning| json!({ "code": one.code, "message": one.message, "remedy": one.remedy });
        whole.insert("warnings".into(), report.warnings().iter().map(warning).collect());
        Value::Object(whole)
    }
}
