//! Feeds a trace to its client: events of 16 bytes.

use std::time::{Duration, Instant};

use verbline_engine::{Trace, TraceError, TraceEvent, TraceKind};

use crate::protocol::{Refusal, TraceHead, TraceHeadPlace};
use crate::stream::Feed;

/// The longest time between notices to the client that it has everything up to a time.
const TOLD_EVERY: Duration = Duration::from_millis(10);

/// See the top of this file.
pub(crate) struct TraceFeed {
    trace: Trace,
    /// The lost turns of each lcore that the client knows of.
    lost: Vec<u64>,
    told_at: Instant,
}

impl TraceFeed {
    pub(crate) fn new(trace: Trace) -> TraceFeed {
        TraceFeed { lost: vec![0; trace.lcores().len()], trace, told_at: Instant::now() }
    }
}

/// The head of the answer.
pub(crate) fn head(trace: &Trace) -> TraceHead {
    let places = trace.places().iter().map(|place| TraceHeadPlace { name: place.name.clone(), lcore: place.lcore });
    TraceHead { lcores: trace.lcores().to_vec(), places: places.collect(), one_in: trace.one_in() }
}

pub(crate) fn refusal(error: TraceError) -> Refusal {
    let code = match error {
        TraceError::Over => "over",
        TraceError::Busy | TraceError::LcoreLate { .. } => "busy",
        _ => "invalid",
    };
    Refusal::new(code, error.to_string())
}

impl Feed for TraceFeed {
    fn head(&mut self, _: &mut Vec<u8>) {}

    fn take(&mut self, out: &mut Vec<u8>) -> usize {
        let TraceFeed { trace, lost, told_at } = self;
        let now_ns = trace.now_ns();
        let mut write = |event: TraceEvent| out.extend_from_slice(&event.bytes());
        let mut last = None;
        let taken = trace.take(|lcore, event| {
            if last != Some(lcore) {
                write(TraceEvent::new(TraceKind::Lcore, event.at_ns, lcore as u16, 0));
                last = Some(lcore);
            }
            write(event);
        });
        for (lcore, told) in lost.iter_mut().enumerate() {
            let now = trace.lost(lcore);
            if *told != now {
                write(TraceEvent::new(TraceKind::Lcore, now_ns, lcore as u16, 0));
                write(TraceEvent::new(TraceKind::Lost, now_ns, 0, now));
                *told = now;
            }
        }
        if taken > 0 || told_at.elapsed() >= TOLD_EVERY {
            write(TraceEvent::new(TraceKind::Now, now_ns, 0, 0));
            *told_at = Instant::now();
        }
        taken
    }

    fn tail(&mut self, out: &mut Vec<u8>) {
        self.take(out);
        for (lcore, events) in self.trace.standing() {
            let first_ns = events.first().map_or(0, |event| event.at_ns);
            let of_lcore = TraceEvent::new(TraceKind::Lcore, first_ns, lcore as u16, 0);
            [of_lcore].iter().chain(&events).for_each(|event| out.extend_from_slice(&event.bytes()));
        }
    }

    fn is_over(&self) -> bool {
        self.trace.is_over()
    }

    fn end(&mut self) {
        self.trace.end();
    }
}
