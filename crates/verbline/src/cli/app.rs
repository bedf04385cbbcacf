//! What an app brings to the command line.

use verbline_engine::{Registry, Report, Running};
use verbline_plan::Plan;

use super::figures::count;

/// What an app adds to the shared command line.
pub trait App {
    /// Its name: the binary's, and what a plan for it says as `app = "…"`.
    fn name(&self) -> &'static str;

    /// One line for `--help`.
    fn about(&self) -> &'static str;

    /// Registers its stage kinds and the sections of a plan that it reads itself.
    fn register(&self, registry: &mut Registry);

    /// The run has begun: its ports are connected, and its lcores run. The app takes what its own
    /// threads need: an [`Injector`](verbline_engine::Injector), an
    /// [`Observer`](verbline_engine::Observer) for snapshots, an
    /// [`Interrupter`](verbline_engine::Interrupter), by which the run ends as if its time were up.
    /// The live line waits for this call, so what takes time belongs on a thread. Such a thread
    /// learns of the end by `Refused::Stopped` of its injector, or by `Observer::is_stopping`; the
    /// app may join it in [`App::outcome`].
    ///
    /// # Errors
    /// Why the app can't go on: the run stops in order, and has failed with these words. A fault of
    /// the plan is for the factory of a stage to find, which a check sees too.
    fn started(&self, plan: &Plan, running: &Running) -> Result<(), String> {
        let _ = (plan, running);
        Ok(())
    }

    /// A few words for the live line, such as a rate or a percentile. Called a few times a second.
    fn live(&self, report: &Report) -> String {
        let packets: u64 = report.ports.iter().map(|port| port.rx_packets).sum();
        format!("{} received", count(packets))
    }

    /// The plan was read again while the run goes on, since the user asked for it (SIGUSR1). Takes
    /// of it what is the app's and can be taken, and says what that was, or nothing. The ports have
    /// taken the attributes of their queue pairs by then ([`Running::change_ports`]).
    ///
    /// # Errors
    /// Why the app takes nothing.
    fn reload(&self, plan: &Plan) -> Result<String, String> {
        let _ = plan;
        Ok(String::new())
    }

    /// What it has to say about a run that has ended, beside the engine's report. No lcore runs any
    /// more.
    fn outcome(&self, report: &Report) -> Outcome {
        let _ = report;
        Outcome::default()
    }
}

/// An app's own part of the report.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Keys that `--json` prints beside the engine's, at the top level.
    pub json: serde_json::Map<String, serde_json::Value>,
    /// Lines that a person reads above the engine's tables; at most 80 columns each.
    pub text: String,
    /// What went wrong, one sentence each. A run with any of them exits with 1.
    pub failures: Vec<String>,
}
