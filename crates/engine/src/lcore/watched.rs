//! What an lcore does otherwise while it is watched, by a capture or a trace: it runs the same
//! code, made for that (`WATCHED`), so that without one nothing asks for it.

use crate::idle::sleep::{Fired, SAFETY_TIMEOUT_NS};
use crate::lcore::poll_loop::Lcore;
use crate::stats::wakes::WakeCause;

impl Lcore {
    /// Takes the beginning or the end of a capture or a trace.
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

    /// The steps of its turns are those of an lcore that is watched, or is not.
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

    /// A turn that is recorded or not, as the trace says.
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

    /// [`Lcore::work`], as this lcore is to do it.
    pub(super) fn works(many: bool, is_watched: bool) -> fn(&mut Lcore, bool) -> bool {
        match (many, is_watched) {
            (false, false) => Lcore::work::<false, false>,
            (true, false) => Lcore::work::<true, false>,
            (false, true) => Lcore::work::<false, true>,
            (true, true) => Lcore::work::<true, true>,
        }
    }

    /// A turn has begun. Reads its time, for which nothing else asks in an idle turn.
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

    /// What has come by completions since the last look.
    pub(super) fn trace_received(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.received(&self.state.ctx.sinks);
        }
    }

    pub(super) fn trace_sleeps(&mut self) {
        // One that rests, too: what an lcore did before a turn is told with it.
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
