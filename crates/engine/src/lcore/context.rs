//! What the nodes and ports of an lcore share, and what they ask of a port with many connections.

use verbline_mem::{BoundCache, ConnectionId};
use verbline_verbs::Completion;

use crate::api::acceptor::ConnectionPeer;
use crate::api::connection::ConnectionChange;
use crate::api::sink::{Sink, SinkStats};
use crate::lcore::operation_queue::OperationQueue;
use crate::stats::count::Shared;
use crate::stats::counters::{LcoreStats, StageStats};
use crate::stats::sampling::Weights;
use crate::stats::turn_time::TurnTime;

/// A port with many connections, as its lcore and the stages see it. One dynamic call a port and
/// turn, on lcores that have such ports; those without make none.
pub(crate) trait ManyPort: Send {
    /// Its place among the ports of the plan.
    fn index(&self) -> u16;

    /// Takes the first completion, which is of this port, and those of its receives behind it.
    /// Returns how many it took, at least one.
    fn complete_run(&mut self, completions: &[Completion], ctx: &mut LcoreContext) -> usize;

    /// Sends what is pending, closes what is to be closed, and refills receive queues. True if it
    /// moved something.
    fn work(&mut self, ctx: &mut LcoreContext) -> bool;

    /// Whether it has nothing to do in the next turn unless something arrives or is sent.
    fn is_settled(&self, ctx: &LcoreContext) -> bool;

    /// How many packets a connection takes now; 0 if it is over.
    fn room_to(&self, connection: ConnectionId) -> usize;

    /// The operations of the port whose packets this sink gathers, if it is this one and carries
    /// some out.
    fn operations_at(&mut self, sink: usize) -> Option<&mut OperationQueue>;

    /// How many operations a connection takes now; 0 if it is over.
    fn operations_room(&self, connection: ConnectionId) -> usize;

    /// Who is at the other end of a connection; `None` if it is over.
    fn peer(&self, connection: ConnectionId) -> Option<&ConnectionPeer>;

    /// Closes a connection at the end of the turn. False if it is over.
    fn close(&mut self, connection: ConnectionId) -> bool;

    /// Takes what the port's host has left: connections that are made, and those that are gone.
    fn take_messages(&mut self) -> bool;

    /// The next change that the stages have not been told of.
    fn next_change(&mut self) -> Option<(ConnectionId, ConnectionChange)>;

    /// The device says that a queue pair has failed, which may be one of the port's.
    fn qp_failed(&mut self, qpn: u32, event: &'static str);

    /// The device has stopped a queue pair behind a bad block, which may be one of the port's.
    fn sq_stopped(&mut self, qpn: u32);

    /// The lcore acts on the port's notice.
    fn heard(&self);

    /// Has the lcore called again for what is left to tell.
    fn tell_later(&self);

    /// The stages know of a connection.
    fn told_of(&mut self, connection: ConnectionId);

    /// Hands on some of what came of the last connection that the stages were told of, before they
    /// were. True if there was any.
    fn hand_on_early(&mut self, ctx: &mut LcoreContext) -> bool;

    /// Signals what is sent from now on, so that the lcore can wait for it.
    fn drain(&mut self);

    /// Whether a send is out whose completion will come.
    fn awaits_completion(&self) -> bool;

    /// Counts what is left at the end of a run.
    fn count_stopped(&mut self);
}

/// What the nodes and ports of an lcore share.
pub(crate) struct LcoreContext {
    pub(crate) sinks: Vec<Sink>,
    /// The ports with many connections; their tags follow those of the other ports.
    pub(crate) many: Vec<Box<dyn ManyPort>>,
    pub(crate) caches: Vec<BoundCache>,
    pub(crate) time: TurnTime,
    pub(crate) stats: Shared<LcoreStats>,
    /// What the time of this turn's stages counts for.
    pub(crate) weights: Weights,
    /// When the last stage of this turn ended, in cycles: where the next one's time begins, so that
    /// a timed turn of n stages reads the clock n + 1 times.
    pub(crate) stage_ended: Option<u64>,
}

impl LcoreContext {
    /// The operations of the port that this sink gathers for, and how many packets wait there.
    #[inline]
    pub(crate) fn operations_at(&mut self, sink: usize) -> Option<(&mut OperationQueue, usize)> {
        let Sink { batch, stats, .. } = &mut self.sinks[sink];
        match stats {
            SinkStats::Operations(queue) => Some((queue, batch.len())),
            SinkStats::Port(_) => Some((self.many.iter_mut().find_map(|port| port.operations_at(sink))?, batch.len())),
            SinkStats::Stage(_) | SinkStats::Ring(_) => None,
        }
    }

    /// When a stage that is called now began, if that is timed.
    #[inline]
    pub(super) fn stage_begins(&self) -> u64 {
        match self.weights.calls {
            0 => 0,
            _ => self.stage_ended.unwrap_or_else(|| self.time.clock().cycles()),
        }
    }

    /// Ends a stage that began at `began`; charges it with its cycles, if they count for something.
    #[inline]
    pub(super) fn stage_ends(&mut self, began: u64, weight: u64, stats: &StageStats) {
        if weight > 0 {
            self.charge(began, weight, stats);
        }
    }

    // Not inlined: of the turns of an lcore that has work, few are timed.
    #[cold]
    fn charge(&mut self, began: u64, weight: u64, stats: &StageStats) {
        let now = self.time.clock().cycles();
        self.stage_ended = Some(now);
        let ran = self.time.ran_cycles(now.wrapping_sub(began));
        stats.cycles.add(ran * weight);
        stats.timed.add(1);
        // Of a sum of calls each of which is timed once in `weight`, as Horvitz and Thompson
        // estimate it.
        stats.variance.add((ran as f64).powi(2) * (weight * (weight - 1)) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::clock::told::Time;
    use crate::stats::count::shared;

    /// Two stages of a turn that stands for sixteen, the second behind the first; then one that is
    /// not timed.
    #[test]
    fn a_timed_stage_is_charged_for_the_turns_that_it_stands_for() {
        let (time, lcore) = (Time::default(), shared::<LcoreStats>());
        let mut ctx = LcoreContext {
            sinks: Vec::new(),
            many: Vec::new(),
            caches: Vec::new(),
            time: TurnTime::new(time.clock(), Shared::clone(&lcore)),
            stats: lcore,
            weights: Weights { calls: 16, polls: 0 },
            stage_ended: None,
        };
        let stages = [shared::<StageStats>(), shared::<StageStats>()];
        time.pass(1_000);
        for (stage, ran_ns) in stages.iter().zip([100, 30]) {
            let began = ctx.stage_begins();
            time.pass(ran_ns);
            ctx.stage_ends(began, 16, stage);
            // Behind the stage: the next one's.
            time.pass(7);
        }
        let charged = |stage: &StageStats| (stage.cycles.value(), stage.timed.value(), stage.variance.value());
        assert_eq!(charged(&stages[0]), (1_600, 1, 100.0 * 100.0 * 16.0 * 15.0));
        assert_eq!(charged(&stages[1]), (37 * 16, 1, 37.0 * 37.0 * 16.0 * 15.0));

        ctx.weights = Weights::default();
        assert_eq!(ctx.stage_begins(), 0, "no clock is read for what is not timed");
        time.pass(500);
        ctx.stage_ends(0, 0, &stages[1]);
        assert_eq!(charged(&stages[1]), (37 * 16, 1, 37.0 * 37.0 * 16.0 * 15.0));
    }
}
