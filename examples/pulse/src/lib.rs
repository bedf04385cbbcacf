//! A stage that sends to a multicast group, and hears itself.
#![forbid(unsafe_code)]

use verbline::prelude::*;

/// Sends a pulse a millisecond, and counts those that come back.
pub struct Pulse {
    next_ns: Tick,
    heard: Counter,
}

impl Stage for Pulse {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if out.now_ns() >= self.next_ns && let Some(packet) = out.alloc() {
            out.send(OutId(0), packet);
            self.next_ns = out.now_ns() + 1_000_000;
        }
        Next::At(self.next_ns)
    }

    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        self.heard.add(input.len() as u64);
        input.clear();
    }
}

/// Registers the stage, for `use = "pulse"` in a plan, with its constructor.
pub fn register(registry: &mut Registry) {
    let spec = StageSpec {
        outputs: &["beat"],
        source: true,
        summary: "sends a pulse a millisecond, and counts those that come back",
        ..StageSpec::default()
    };
    registry.stage("pulse", spec, |stage| Ok(Box::new(Pulse { next_ns: 0, heard: stage.counter("heard") })));
}
