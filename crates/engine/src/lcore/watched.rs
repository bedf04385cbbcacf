//! The turns of an lcore that a capture or a trace watches. They run the same code, compiled for
//! this (`WATCHED`), so that an unwatched lcore pays nothing.

use crate::idle::sleep::{Fired, SAFETY_TIMEOUT_NS};
use crate::lcore::poll_loop::Lcore;
use crate::stats::wakes::WakeCause;

impl Lcore {
    /// Begins or ends a capture or a trace, as control asks.
    #[cold]
    pub(super) fn take_watch(&mut self) {
        self.control.captures.exchange(self.index, &mut self.state.ctx.tap);
        self.trace = self.trace.take().or(self.resting.take());
        if self.control.traces.exchange(self.index, &mut self.trace)
            && let Some(trace) = &mut self.trace
        {
            trace.enter(&self.state.ctx.sinks, &self.state.ctx.stats);
        }
        self.watch();
    }

    /// Chooses the steps of its turns by whether the lcore is watched.
    fn watch(&mut self) {
        let samples = self.trace.as_ref().or(self.resting.as_ref()).is_some_and(|trace| trace.samples());
        let is_watched = self.state.ctx.tap.is_some() || self.trace.is_some();
        self.works = Lcore::works(!self.state.many.is_empty(), is_watched);
        self.turns = match (samples, is_watched) {
            (true, _) => Lcore::run_sampled_turn,
            (false, true) => Lcore::run_turn_as::<true>,
            (false, false) => Lcore::run_turn_as::<false>,
        };
        self.completes = if is_watched { Lcore::complete::<true> } else { Lcore::complete::<false> };
    }

    /// Runs a turn that is recorded or not, as the trace's sampling decides.
    fn run_sampled_turn(&mut self) -> bool {
        let (is_resting, stats) = (self.resting.is_some(), &self.state.ctx.stats);
        let trace = self.trace.as_mut().or(self.resting.as_mut());
        if trace.is_some_and(|trace| trace.records(is_resting, stats) == is_resting) {
            std::mem::swap(&mut self.trace, &mut self.resting);
            self.watch();
        }
        match self.state.ctx.tap.is_some() || self.trace.is_some() {
            true => self.run_turn_as::<true>(),
            false => self.run_turn_as::<false>(),
        }
    }

    /// Returns the [`Lcore::work`] for this lcore.
    pub(super) fn works(many: bool, is_watched: bool) -> fn(&mut Lcore, bool) -> bool {
        match (many, is_watched) {
            (false, false) => Lcore::work::<false, false>,
            (true, false) => Lcore::work::<true, false>,
            (false, true) => Lcore::work::<false, true>,
            (true, true) => Lcore::work::<true, true>,
        }
    }

    /// A turn has begun. Reads its time, which an idle turn does not otherwise need.
    pub(super) fn trace_begins(&mut self) {
        let ctx = &self.state.ctx;
        if let Some(trace) = &mut self.trace {
            trace.begin(&ctx.sinks, &ctx.stats, ctx.time.now_ns());
        }
    }

    pub(super) fn trace_ends(&mut self, was_busy: bool) {
        if let Some(trace) = &mut self.trace {
            trace.end(was_busy);
        }
    }

    /// Records the packets received by completions since the last look.
    pub(super) fn trace_received(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.received(&self.state.ctx.sinks);
        }
    }

    pub(super) fn trace_sleeps(&mut self) {
        // Also while it records nothing: the lcore's doings before a turn are told with that turn.
        if let Some(trace) = self.trace.as_mut().or(self.resting.as_mut()) {
            trace.sleeps();
        }
    }

    /// The lcore awoke from a sleep that would have lasted for `timeout_ns`.
    pub(super) fn trace_awoke(&mut self, fired: Fired, timeout_ns: u64) {
        let cause = match fired {
            Fired::Completion => WakeCause::Completion,
            Fired::Doorbell if self.control.word() != self.seen => WakeCause::Control,
            Fired::Doorbell => WakeCause::Ring,
            Fired::Fd => WakeCause::Fd,
            Fired::Nothing if timeout_ns < SAFETY_TIMEOUT_NS => WakeCause::Timer,
            Fired::Nothing => WakeCause::Timeout,
        };
        if let Some(trace) = self.trace.as_mut().or(self.resting.as_mut()) {
            trace.awoke(cause);
        }
    }
}
