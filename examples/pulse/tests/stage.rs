//! The stage alone, called by the test: no run, no thread, and no waiting.

use std::time::Duration;

use verbline::prelude::*;
use verbline::testing::StageTest;

#[test]
fn a_pulse_goes_out_a_millisecond_and_what_comes_back_is_counted() -> Result<(), Box<dyn std::error::Error>> {
    let mut registry = Registry::new("pulse");
    pulse::register(&mut registry);
    let plan = Loader::new(registry.catalog(), Machine::detect()).load_path("plan.toml")?;
    let mut test = StageTest::open(&plan, &registry, "pulse")?;

    test.advance(Duration::from_micros(2_999));
    assert_eq!(test.sent("beat").len(), 3);
    let heard = [(); 2].map(|()| test.packet("port.group", b"a pulse"));
    test.process(heard);
    assert_eq!(test.report().stage("pulse").and_then(|stage| stage.counter("heard")), Some(2));
    Ok(())
}
