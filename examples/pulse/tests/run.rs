//! The plan, run for a moment: every pulse comes back, and no packet is left behind.

use std::time::Duration;

use verbline::prelude::*;

#[test]
fn every_pulse_comes_back() -> Result<(), Box<dyn std::error::Error>> {
    let mut registry = Registry::new("pulse");
    pulse::register(&mut registry);
    let plan = Loader::new(registry.catalog(), Machine::detect()).load_path("plan.toml")?;
    let running = Runtime::build(&plan, &registry)?.start()?;
    running.wait(Some(Duration::from_millis(500)));
    let report = running.stop()?;

    let sent = report.port("group").map_or(0, |port| port.tx_packets);
    assert!(sent > 0, "{report:?}");
    assert_eq!(report.stage("pulse").and_then(|stage| stage.counter("heard")), Some(sent));
    assert_eq!(report.packets.held, 0);
    Ok(())
}
