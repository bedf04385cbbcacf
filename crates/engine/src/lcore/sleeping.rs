//! Puts an idle lcore to sleep: decides when to try, and gives [`crate::idle::sleep`] the parts of
//! the lcore that it needs.

use std::io;

use verbline_verbs::Notify;

use crate::control::notice::Notice;
use crate::idle::policy::{Step, Turn};
use crate::idle::sleep::{Fired, SleepOutcome, Sleepable, sleep};
use crate::idle::wake_set::Armed;
use crate::lcore::node::Node;
use crate::lcore::poll_loop::Lcore;
use crate::lcore::waits::Polling;
use crate::ports::multi_port::MultiPort;
use crate::ports::single_port::Port;
use crate::stats::clock::Tick;

impl Lcore {
    /// Asks the idle policy whether to sleep. Called in idle turns that are timed anyway, one in
    /// some sixteen, and under the policy `event` in every idle turn. The first idle turn after
    /// work does not ask: a busy lcore has many of those.
    #[inline(never)]
    pub(super) fn consider_sleep(&mut self) -> io::Result<()> {
        if self.wakes.is_refused() {
            return self.handle_notice(Notice::CqOverrun);
        }
        if self.may_sleep
            && let Step::Sleep { timer_ns } = self.idle.after(self.idle_turn())
        {
            self.try_sleep(timer_ns)?;
        }
        Ok(())
    }

    /// The result of an idle turn.
    fn idle_turn(&self) -> Turn {
        self.turn_ended(false, self.next_timer_ns())
    }

    fn turn_ended(&self, busy: bool, timer_ns: Option<Tick>) -> Turn {
        let batches = self.state.ctx.stats.busy_loops.value();
        Turn { now_ns: self.state.ctx.time.now_ns(), busy, timer_ns, batches }
    }

    fn next_timer_ns(&self) -> Option<Tick> {
        let nodes = self.nodes.iter().filter_map(Node::due_ns);
        let ports = self.ports.iter().filter_map(Port::retry_ns);
        nodes.chain(ports).chain(self.state.many.iter().filter_map(MultiPort::retry_ns)).min()
    }

    /// Returns the completions that may wake the lcore, and the time of its next look in any case.
    /// Its own completions are never solicited: while one is to come, all completions wake it.
    fn wake_terms(&self) -> (Notify, Option<Tick>) {
        match self.unsolicited_wait_ns {
            Some(wait_ns) if !self.awaits_completion() => (Notify::Solicited, Some(self.now_ns() + wait_ns)),
            _ => (Notify::Next, None),
        }
    }

    /// Arms every wake source, and sleeps if nothing has arrived by then, until `until_ns` at the
    /// latest.
    fn try_sleep(&mut self, until_ns: Option<Tick>) -> io::Result<()> {
        let (notify, look_ns) = self.wake_terms();
        self.wakes.notify = notify;
        let until_ns = [until_ns, look_ns].into_iter().flatten().min();
        match sleep(self, until_ns)? {
            SleepOutcome::Stayed(_) => {
                self.idle.stayed();
                self.state.ctx.stats.armed_in_vain.add(1);
            }
            SleepOutcome::Slept { cause, asleep_ns, rescued } => {
                let stats = &self.state.ctx.stats;
                stats.sleeps.add(1);
                stats.asleep_ns.add(asleep_ns);
                stats.woke(cause);
                stats.rescues.add(rescued.into());
                if rescued {
                    tracing::error!(lcore = self.index, "a wake-up was lost, and found by the safety time-out: a bug");
                }
                self.idle.woke(self.now_ns(), cause);
            }
        }
        Ok(())
    }
}

impl Sleepable for Lcore {
    type Armed = Armed;

    fn arm(&mut self) -> io::Result<Armed> {
        self.wakes.arm()
    }

    fn turn(&mut self) -> Turn {
        match self.run_turn() {
            true => self.turn_ended(true, None),
            false => self.idle_turn(),
        }
    }

    fn look(&mut self) -> bool {
        // Completions are taken from the queue, which cannot be peeked into, and handed to no port
        // yet. Rings stay as they are: a producer may wait for room in one.
        self.wakes.poll(&mut self.completions) > 0
            || self.rings_in.iter().any(|ring| ring.has_more(&self.state.ctx.sinks))
    }

    fn act(&mut self) {
        // The next turn looks into the rings, but its poll would discard these completions.
        if !self.completions.is_empty() {
            self.state.ctx.time.begin(false, true);
            self.trace_begins();
            (self.completes)(self);
            self.last_busy = (self.works)(self, true);
            self.trace_ends(true);
        }
    }

    fn block(&mut self, armed: Armed, timeout_ns: u64) -> io::Result<(Fired, Armed)> {
        self.state.ctx.time.before_sleep();
        self.trace_sleeps();
        let due_ns = self.now_ns().saturating_add(timeout_ns);
        let woken = self.wakes.block(armed, timeout_ns);
        if let Ok((fired, _)) = &woken {
            self.trace_awoke(*fired, timeout_ns);
        }
        if self.wakes.take_fd_fired() {
            self.nodes.iter_mut().for_each(Node::wake);
            self.polling = Polling::EACH_LOOP;
        }
        // Time asleep is neither busy nor idle.
        self.state.ctx.time.restart();
        self.last_busy = false;
        if let Ok((Fired::Nothing, _)) = &woken {
            let ctx = &self.state.ctx;
            let late_ns = ctx.time.last_ns().saturating_sub(due_ns);
            ctx.stats.wake_late.add(late_ns, 1);
            ctx.stats.wake_late_ns.add(late_ns);
        }
        woken
    }

    fn release(&mut self, armed: Armed) -> io::Result<()> {
        self.wakes.release(armed)
    }

    fn now_ns(&self) -> Tick {
        self.state.ctx.time.clock().now_ns()
    }

    fn control_calls(&self) -> bool {
        self.control.word() != self.seen
    }
}
