//! A capture's view of stages and rings on a watched lcore: packets that the sinks have gained over
//! a step came from that step.

use crate::api::outputs::Output;
use crate::capture::tap::TapSink;
use crate::ports::context::LcoreContext;
use crate::ports::sink::Sink;
use crate::stats::counter::Shared;
use crate::stats::counters::{RingConsumerStats, StageStats};

/// The stage with these counters is about to be called.
pub(super) fn calls(stage: &Shared<StageStats>, ctx: &mut LcoreContext) {
    if let Some(tap) = &mut ctx.tap {
        tap.calls(stage, ctx.sinks.iter().map(look));
    }
}

/// The call has returned.
pub(super) fn returned(stage: &Shared<StageStats>, links: &[Output], ctx: &mut LcoreContext) {
    if let Some(tap) = &mut ctx.tap {
        let leads = |output: Option<usize>, sink: usize| match output {
            Some(output) => links.get(output).is_some_and(|link| link.leads_to(sink)),
            None => links.iter().any(|link| link.leads_to(sink)),
        };
        tap.returned(stage, ctx.sinks.iter().map(look), leads);
    }
}

/// The ring with these counters gave the last `popped` packets of a sink.
pub(super) fn popped(ring: &Shared<RingConsumerStats>, sink: usize, popped: usize, ctx: &mut LcoreContext) {
    if let Some(tap) = &mut ctx.tap {
        let packets = ctx.sinks[sink].batch.as_slice();
        tap.popped(ring, &packets[packets.len().saturating_sub(popped)..]);
    }
}

fn look(sink: &Sink) -> TapSink<'_> {
    let displaced = if sink.displaces() { sink.stats.drops().count(sink.full) } else { 0 };
    TapSink { batch: &sink.batch, displaced }
}
