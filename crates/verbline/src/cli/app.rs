//! What an app brings to the command line.

use verbline_engine::{Registry, Report};
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

    /// A few words for the live line, such as a rate or a percentile. Called a few times a second.
    fn live(&self, report: &Report) -> String {
        let packets: u64 = report.ports.iter().map(|port| port.rx_packets).sum();
        format!("{} received", count(packets))
    }

    /// The plan was read again while the run goes on, since the user asked for it (SIGUSR1). Takes
    /// of it what can be taken, and says what that was, or why there is nothing.
    fn reload(&self, plan: &Plan) -> Result<String, String> {
        let _ = plan;
        Err("nothing of a plan of this app can be taken while it runs".to_owned())
    }

    /// What it has to say about a run that has ended, beside the engine's report.
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
