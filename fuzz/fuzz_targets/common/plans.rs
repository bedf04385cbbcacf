//! What must hold of the loader's answer to any text and flags. The catalog and the machine are
//! those of the plan crate's tests, so that a fault is the same wherever it is run again.
#![allow(dead_code, unused_imports, reason = "each target uses its own part")]

#[path = "../../../crates/plan/tests/suite/common/mod.rs"]
mod common;

pub(crate) use common::GOOD;

/// A hundred errors and as many warnings, each of a few kilobytes.
const SHOWN_BYTES_MAX: usize = 2 << 20;

/// Loads the plan, and uses every part of the result.
pub(crate) fn exercise(text: &str, flags: &[&str]) {
    let inspection = common::loader().sets(flags.iter().copied()).inspect_str("fuzz.toml", text);
    assert_eq!(inspection.plan.is_none(), inspection.diagnostics.errors().count() > 0);
    let shown = inspection.diagnostics.render(false).len();
    let json = serde_json::to_string(&inspection.diagnostics).expect("texts and numbers").len();
    assert!(shown.max(json) < SHOWN_BYTES_MAX, "{shown} bytes as text, {json} as JSON");
    inspection.explain();
    inspection.drawing.to_dot();
    inspection.drawing.to_mermaid();
    if let Some(plan) = &inspection.plan {
        assert!(plan.sums().iter().all(|sum| sum.holds()));
    }
}
