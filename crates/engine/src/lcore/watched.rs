//! What an lcore does otherwise while it is watched, by a capture or a trace: it runs the same
//! code, made for that (`WATCHED`), so that without one nothing asks for it.

use crate::idle::sleep::{Fired, SAFETY_TIMEOUT_NS};
use crate::lcore::poll_loop::Lcore;
use crate::ports::state::LcoreState;
use crate::stats::wakes::WakeCause;

impl Lcore {
    /// Takes the beginning or the end of a capture or a trace.
    #[cold]
    pub(super) fn take_watch(&mut self) {
        let LcoreState { ctx, many } = &mut self.state;
        self.control.captures.exchange(self.index, &mut ctx.tap);
        if self.control.traces.exchange(self.index, &mut self.trace)
            && let Some(trace) = &mut self.trace
        {
            trace.enter(&ctx.sinks, &ctx.stats);
        }
        let is_watched = ctx.tap.is_some() || self.trace.is_some();
        self.works = Lcore::works(!many.is_empty(), is_watched);
        self.turns = if is_watched { Lcore::run_turn_as::<true> } else { Lcore::run_turn_as::<false> };
        self.completes = if is_watched { Lcore::complete::<true> } else { Lcore::complete::<false> };
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
        if let Some(trace) = &mut self.trace {
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
        if let Some(trace) = &mut self.trace {
            trace.awoke(cause);
        }
    }
}
