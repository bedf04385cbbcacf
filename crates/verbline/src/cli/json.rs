//! The report as JSON: the engine's [`Report`] as it is serialised, with the app's keys and
//! failures beside its own.
//!
//! `docs/report.schema.json` describes it.

use serde_json::{Value, json};
use verbline_engine::{Report, Warning};

use super::Outcome;

/// One object for the whole run. The engine's keys win over the app's.
pub(super) fn report(report: &Report, outcome: &Outcome) -> Value {
    let mut whole = outcome.json.clone();
    if let Value::Object(engine) = json!(report) {
        whole.extend(engine);
    }
    // Failures found by the app belong to no lcore.
    let of_app = |message| json!({ "lcore": null, "stage": null, "panicked": false, "message": message });
    let failures = report.failures.iter().map(|failure| json!(failure));
    whole.insert("failures".into(), failures.chain(outcome.failures.iter().map(of_app)).collect());
    let warning = |one: &Warning| json!({ "code": one.code, "message": one.message, "remedy": one.remedy });
    whole.insert("warnings".into(), report.warnings().iter().map(warning).collect());
    Value::Object(whole)
}
