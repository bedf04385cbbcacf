//! A loader to try texts and flags on, and what must hold of whatever it says.
#![allow(dead_code, reason = "each target uses its own part")]

use verbline_plan::{Catalog, Loader, Machine, StageKind, StageSpec};

/// A plan that passes every check.
pub const GOOD: &str = include_str!("../../../crates/plan/tests/good.toml");

/// A hundred errors and as many warnings, each of a few kilobytes.
const SHOWN_BYTES_MAX: usize = 2 << 20;

fn loader() -> Loader {
    let kind = |name, outputs, source, holds_packets| {
        let spec = StageSpec { outputs, source, holds_packets, ..StageSpec::default() };
        StageKind { name, spec, needs: None }
    };
    let catalog = Catalog {
        app: Some("tick-to-trade"),
        kinds: vec![
            kind("publish", &["a", "b"], true, 0),
            kind("arbiter", &["merged", "late"], false, 64),
            kind("book", &["changed"], false, 0),
            kind("sign", &["signed"], false, 0),
            kind("sink", &[], false, 0),
        ],
        sections: vec!["feed", "risk"],
    };
    Loader::new(catalog, Machine { cpus: [0, 1, 2, 3].into(), ..Machine::detect() })
}

/// Loads, and uses everything that comes of it.
pub fn exercise(text: &str, flags: &[&str]) {
    let inspection = loader().sets(flags.iter().copied()).inspect_str("fuzz.toml", text);
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
