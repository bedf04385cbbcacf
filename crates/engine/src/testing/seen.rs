//! Observations of a tested stage: the packets it has sent, its counters, and its end.

use verbline_mem::Packet;

use super::{START_NS, StageTest, no_such};
use crate::errors::guarded;
use crate::run::start::panicked;
use crate::stats::report::{FailureReport, Report};

impl StageTest {
    /// Takes the packets that the stage has sent to an output since the last call, in order; of a
    /// spread one place after the other. Outputs that lead to one place share its packets.
    ///
    /// # Panics
    /// The stage's kind declares no such output.
    #[track_caller]
    pub fn sent(&mut self, output: &str) -> Vec<Packet> {
        let sinks = self.sinks(output);
        sinks.iter().flat_map(|sink| self.sent.remove(sink).unwrap_or_default()).collect()
    }

    /// Like [`StageTest::sent`], for one place that outputs lead to: `"port.orders"`,
    /// `"stage.book"`, `"ring.log"`.
    ///
    /// # Panics
    /// No output of the stage leads there.
    #[track_caller]
    pub fn sent_to(&mut self, place: &str) -> Vec<Packet> {
        let places = || self.outputs.iter().flat_map(|leads| &leads.to);
        let Some((sink, _)) = places().find(|(_, name)| name == place) else {
            no_such("place that an output leads to", place, places().map(|(_, name)| name))
        };
        self.sent.remove(sink).unwrap_or_default()
    }

    /// Stops an output, or resumes it. Packets that the stage sends to a stopped output wait in the
    /// batch of its place, as deep as the plan makes it, and then find no room.
    ///
    /// # Panics
    /// Like [`StageTest::sent`].
    #[track_caller]
    pub fn stall(&mut self, output: &str, is_stalled: bool) {
        let sinks = self.sinks(output);
        match is_stalled {
            true => self.stalled.extend(sinks),
            false => self.stalled.retain(|sink| !sinks.contains(sink)),
        }
        self.take_sent();
    }

    /// Returns the present counters: the stage's with its own, its drops, and the drops where its
    /// outputs lead.
    pub fn report(&self) -> Report {
        self.stats.report(START_NS, false)
    }

    /// Ends the test: tells the stage to stop, if it was not told ([`StageTest::stop`]), and drops
    /// it. `packets.held` is then the number of packets that the test still has, or that the stage
    /// has given away otherwise than by its outputs; `failures` has the stage's message if it
    /// panicked as it was dropped.
    pub fn finish(mut self) -> Report {
        self.stop();
        let StageTest { lcore, lcore_name: name, stats, sent, input, .. } = self;
        drop((sent, input));
        let mut failures = Vec::new();
        lcore
            .tear_down(|stage, said| failures.push(panicked(&name, Some(stage), format!("as it was dropped: {said}"))));
        Report { failures, ..stats.report(START_NS, true) }
    }

    /// Ends a test by a panic of the stage. Returns the failure that a run would report.
    ///
    /// # Panics
    /// The stage did not panic.
    #[track_caller]
    pub fn panics(mut self, call: impl FnOnce(&mut StageTest)) -> FailureReport {
        let said = guarded::call(|| call(&mut self)).err();
        match (said, self.lcore.running_stage()) {
            (Some(said), Some(stage)) => panicked(&self.lcore_name, Some(stage), said),
            (Some(said), None) => panic!("the test panicked, and not stage.{}: {said}", self.stage),
            (None, _) => panic!("stage.{} did not panic", self.stage),
        }
    }

    /// Takes the packets sent by the turn, or by a call between two turns.
    pub(super) fn take_sent(&mut self) {
        let (_, state) = self.lcore.parts();
        for (sink, _) in
            self.outputs.iter().flat_map(|leads| &leads.to).filter(|(sink, _)| !self.stalled.contains(sink))
        {
            let batch = &mut state.ctx.sinks[*sink].batch;
            self.sent.entry(*sink).or_default().extend(batch.drain_front(batch.len()));
        }
    }

    /// Returns the sinks that an output leads to.
    #[track_caller]
    pub(super) fn sinks(&self, output: &str) -> Vec<usize> {
        let Some(leads) = self.outputs.iter().find(|leads| leads.output == output) else {
            no_such("output of the stage", output, self.outputs.iter().map(|leads| leads.output))
        };
        leads.to.iter().map(|(sink, _)| *sink).collect()
    }
}
