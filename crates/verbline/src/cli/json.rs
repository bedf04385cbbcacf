//! The report as JSON: the engine's counters in the shape that scripts read, with the app's keys beside them.
//!
//! Keys are stable: `drops` maps a reason to a count, `lcores` carry their stages, shares are between 0 and 1.

use serde_json::{Map, Value, json};
use verbline_engine::{LcoreReport, Report, StageReport};

use super::Outcome;

/// One object for the whole run. The engine's keys win over the app's.
pub(super) fn report(report: &Report, outcome: &Outcome) -> Value {
    let mut whole = outcome.json.clone();
    whole.insert("plan".into(), json!(report.plan));
    whole.insert("elapsed_ns".into(), json!(report.elapsed_ns));
    whole.insert("drops".into(), drops(report));
    whole.insert("drops_by_place".into(), json!(report.drops));
    whole.insert("lcores".into(), report.lcores.iter().map(|lcore| lcore_json(report, lcore)).collect());
    whole.insert("ports".into(), json!(report.ports));
    whole.insert("connections".into(), json!(report.connections));
    whole.insert("rings".into(), json!(report.rings));
    whole.insert("pools".into(), json!(report.pools));
    whole.insert("packets".into(), json!(report.packets));
    whole.insert("drained".into(), json!(report.drained));
    whole.insert("events".into(), json!(report.events));
    whole.insert("failures".into(), failures(report, outcome));
    Value::Object(whole)
}

fn drops(report: &Report) -> Value {
    let mut by_reason = Map::new();
    for drop in &report.drops {
        let sum = by_reason.get(&drop.reason).and_then(Value::as_u64).unwrap_or(0) + drop.packets;
        by_reason.insert(drop.reason.clone(), json!(sum));
    }
    Value::Object(by_reason)
}

fn lcore_json(report: &Report, lcore: &LcoreReport) -> Value {
    let mut object = match json!(lcore) {
        Value::Object(object) => object,
        other => return other,
    };
    let [busy, idle, asleep] = shares(lcore);
    object.insert("busy".into(), json!(busy));
    object.insert("idle".into(), json!(idle));
    object.insert("asleep".into(), json!(asleep));
    // The policy's name moves aside for the share of idle time.
    object.insert("policy".into(), json!(lcore.idle));
    let stages = report.stages.iter().filter(|stage| stage.lcore == lcore.name);
    object.insert("stages".into(), stages.map(|stage| stage_json(stage, lcore)).collect());
    Value::Object(object)
}

fn stage_json(stage: &StageReport, lcore: &LcoreReport) -> Value {
    let mut object = match json!(stage) {
        Value::Object(object) => object,
        other => return other,
    };
    object.insert("ns_per_packet".into(), json!(ns_per_packet(stage)));
    object.insert("packets_per_call".into(), json!(ratio(stage.packets_in, stage.calls)));
    object.insert("share_of_busy".into(), json!(ratio(stage.busy_ns, lcore.busy_ns)));
    Value::Object(object)
}

fn failures(report: &Report, outcome: &Outcome) -> Value {
    let engine = report.failures.iter().map(|failure| json!(failure));
    engine.chain(outcome.failures.iter().map(|message| json!({ "message": message }))).collect()
}

/// Busy, idle and asleep time of an lcore as shares of their sum.
pub(super) fn shares(lcore: &LcoreReport) -> [f64; 3] {
    let whole = lcore.busy_ns + lcore.idle_ns + lcore.asleep_ns;
    [lcore.busy_ns, lcore.idle_ns, lcore.asleep_ns].map(|part| ratio(part, whole))
}

/// A stage's cost, spread over what it took or what it gave, whichever is more: a source has little or no input.
pub(super) fn ns_per_packet(stage: &StageReport) -> f64 {
    ratio(stage.busy_ns, stage.packets_in.max(stage.packets_out))
}

/// A quotient that is 0 where there is nothing to divide by.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
