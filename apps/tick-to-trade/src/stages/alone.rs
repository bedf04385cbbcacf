//! A stage of the trader alone, for tests.

use verbline::plan::Machine;
use verbline::prelude::*;
use verbline::testing::StageTest;
use verbline_tests::root;

use crate::TickToTrade;

/// Opens a stage of the trader's own process, with these flags (`--set`).
pub(crate) fn alone(app: &TickToTrade, stage: &str, sets: &[&str]) -> StageTest {
    let mut registry = Registry::new("tick-to-trade");
    app.register(&mut registry);
    let fixed = [r#"device.nic0={provider="soft"}"#, "lcore.trader.cpu=allowed:0"];
    let loader = Loader::new(registry.catalog(), Machine::detect()).sets(fixed.iter().chain(sets).copied());
    let plan = loader.load_path(root().join("config/two-processes/tick-to-trade-trader.toml"));
    let plan = plan.unwrap_or_else(|faults| panic!("{faults}"));
    StageTest::open(&plan, &registry, stage).unwrap_or_else(|error| panic!("{error}"))
}
