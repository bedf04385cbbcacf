//! When a stage is polled ([`Polling`]), and its wait sources other than packets ([`Waits`]): its
//! timers, the operations that it has posted, and its descriptors. Only the node of such a stage
//! has `Waits`; other nodes check once a poll whether they have.
//!
//! While operations are under way, the stage's node is polled in every turn, though the stage is
//! not. The lcore may sleep meanwhile, since a completion wakes it. Nor does a descriptor need
//! timed wake-ups, since a ready one ends the sleep.

#[cfg(test)]
mod tests;

use crate::api::outputs::Outputs;
use crate::api::stage::{Next, Stage};
use crate::operations::operation::{Completed, Done};
use crate::operations::queue::OperationQueue;
use crate::stats::clock::Tick;
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;
use crate::stats::turn_time::TurnTime;
use crate::waiting::fds::Fds;
use crate::waiting::wheel::{DueTimer, Wheel};

/// When a stage wants its `poll` called: at a tick or once packets arrive; once packets arrive; in
/// every loop; or never again. It is one number, since every turn compares it with the time.
///
/// A source that has finished may still ask for operations as it is given packets or events. They
/// come back to it by a poll of its node. Its polling is [`Polling::ENDED`] in the turn in which it
/// finished, [`Polling::FED`] later, and never [`Polling::DONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Polling(Tick);

impl Polling {
    pub(crate) const EACH_LOOP: Polling = Polling(0);
    /// Once packets arrive: a tick that is never reached.
    pub(crate) const FED: Polling = Polling(Tick::MAX - 2);
    /// Like `FED`, in the turn in which a source's node reports that the source has finished.
    pub(crate) const ENDED: Polling = Polling(Tick::MAX - 1);
    pub(crate) const DONE: Polling = Polling(Tick::MAX);

    pub(crate) fn after(next: Next) -> Polling {
        match next {
            Next::Busy | Next::Idle => Polling::EACH_LOOP,
            // Tick 0 has passed as surely as tick 1. The last ticks are never reached, but a source
            // that returns one has not ended.
            Next::At(tick) => Polling(tick.clamp(Polling::EACH_LOOP.0 + 1, Polling::FED.0)),
            Next::Done => Polling::DONE,
        }
    }

    /// Whether the stage is to be polled now. Only a stage that waits for a tick reads the time.
    #[inline]
    pub(crate) fn is_due(self, time: &TurnTime) -> bool {
        match self {
            Polling::EACH_LOOP => true,
            // This covers finished stages too.
            never if never >= Polling::FED => false,
            Polling(tick) => tick <= time.now_ns(),
        }
    }

    /// Returns the tick, if it is one.
    #[inline]
    pub(crate) fn at(self) -> Option<Tick> {
        (Polling::EACH_LOOP.0 + 1..Polling::FED.0).contains(&self.0).then_some(self.0)
    }
}

/// How often an lcore that drains, and so never sleeps, looks at a stage's descriptors: several
/// times in the time for which a run must have been quiet.
const DRAIN_LOOK_NS: Tick = 200_000;

/// A stage's wait sources, from the plan and the stage's kind.
#[derive(Debug, Default)]
pub(crate) struct WaitsFor {
    pub(crate) timers: u32,
    /// The most timers that expire in one call.
    pub(crate) timers_at_once: usize,
    /// The ports that the stage may ask for operations.
    pub(crate) ports: Vec<OperationPort>,
    /// The most operations that one of them carries out at once.
    pub(crate) operations_at_once: usize,
    pub(crate) fds: Option<Fds>,
}

/// A port that takes operations from the stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationPort {
    /// The sink that gathers for it.
    pub(crate) sink: usize,
    /// The stage's number among the port's users.
    pub(crate) user: u16,
}

/// A stage's wait sources other than packets.
pub(crate) struct Waits {
    source: bool,
    /// For a source: its end has been reported.
    has_ended: bool,
    /// The run is stopping: timers that come due no longer count as work under way.
    drains: bool,
    /// A source of a stopping run: it is called only for its operations.
    stopped: bool,
    /// When the stage's own `poll` is due.
    own: Polling,
    /// Like `own`, or when the first timer is due, if that is earlier.
    next: Polling,
    /// How long the lcore may sleep; `None`: until something arrives.
    pub(crate) due_ns: Option<Tick>,
    /// The stage's `process` calls at the last poll. After further packets it may want another poll
    /// time.
    calls: u64,
    /// Due timers on their way to the stage; empty between calls.
    due: Vec<DueTimer>,
    ports: Box<[OperationPort]>,
    done: Vec<Done>,
    watched: Option<Watched>,
}

/// The descriptors of a stage.
struct Watched {
    stage: String,
    fds: Fds,
    next_look_ns: Tick,
    /// A descriptor has ended a sleep since the last look.
    has_woken: bool,
}

/// Completed operations on their way to their stage. The packets that it leaves are dropped and
/// counted, also if it panics.
struct Handed<'a> {
    completed: Completed<'a>,
    stats: &'a StageStats,
}

impl Drop for Handed<'_> {
    fn drop(&mut self) {
        let left: usize = self.completed.done.by_ref().map(|done| done.packets()).sum();
        if left > 0 {
            let reason = if std::thread::panicking() { DropReason::Stopped } else { DropReason::Unclaimed };
            self.stats.drops.add(reason, left as u64);
        }
    }
}

impl Waits {
    /// Returns the stage's timers, if it has some, and its other wait sources; `None` if it has
    /// neither.
    pub(crate) fn new(stage: &str, source: bool, spec: WaitsFor) -> Option<(Option<Box<Wheel>>, Box<Waits>)> {
        let WaitsFor { timers, timers_at_once, ports, operations_at_once, fds } = spec;
        if timers == 0 && ports.is_empty() && fds.is_none() {
            return None;
        }
        let waits = Waits {
            source,
            has_ended: false,
            drains: false,
            stopped: false,
            own: Polling::EACH_LOOP,
            next: Polling::EACH_LOOP,
            due_ns: None,
            calls: 0,
            due: Vec::with_capacity(if timers > 0 { timers_at_once } else { 0 }),
            done: Vec::with_capacity(if ports.is_empty() { 0 } else { operations_at_once }),
            ports: ports.into(),
            watched: fds.map(|fds| Watched { stage: stage.to_owned(), fds, next_look_ns: 0, has_woken: false }),
        };
        Some(((timers > 0).then(|| Box::new(Wheel::new(timers))), Box::new(waits)))
    }

    /// The stage was called, which may change when it wants to be polled.
    pub(crate) fn revive(&mut self) {
        for polling in [&mut self.own, &mut self.next] {
            if *polling != Polling::DONE {
                *polling = Polling::EACH_LOOP;
            }
        }
    }

    /// A descriptor has ended a sleep of the lcore. True if the stage has some.
    pub(crate) fn wake(&mut self) -> bool {
        self.watched.as_mut().map(|watched| watched.has_woken = true).is_some()
    }

    /// The run is stopping. Returns true if the stage may be given operations back; a source may,
    /// too.
    pub(crate) fn stop(&mut self) -> bool {
        self.drains = true;
        self.stopped = self.source;
        match &mut self.watched {
            Some(watched) if self.source => watched.fds.unwatch_all(),
            // No sleep ends by them any more.
            Some(watched) => {
                watched.fds.look_at_least_every(DRAIN_LOOK_NS);
                watched.next_look_ns = 0;
            }
            None => {}
        }
        !self.ports.is_empty()
    }

    /// Returns the node's polling after a poll that reported the stage's end.
    pub(crate) fn end(&mut self) -> Polling {
        match (self.ports.is_empty(), std::mem::replace(&mut self.has_ended, true)) {
            (true, _) => Polling::DONE,
            (false, false) => Polling::ENDED,
            (false, true) => Polling::FED,
        }
    }

    /// Hands the stage its descriptors, operations and timers, polls it if it is due, and returns
    /// when to do so again.
    pub(crate) fn poll(&mut self, stage: &mut dyn Stage, out: &mut Outputs<'_>) -> Next {
        let calls = out.stats.calls.value();
        if std::mem::replace(&mut self.calls, calls) != calls {
            self.revive();
        }
        // A descriptor may be ready for ever. Only packets that the stage sends prolong the drain.
        let mut busy = self.look(stage, out) && !self.drains;
        self.give_back(stage, out);
        if !self.stopped && self.next.is_due(&out.lcore.ctx.time) {
            let expired = self.expire(stage, out);
            // A heartbeat's timers never end. Packets that the stage then sends prolong the drain
            // by themselves.
            busy |= expired && !self.drains;
            if self.own.is_due(&out.lcore.ctx.time) {
                let next = stage.poll(out);
                self.own = Polling::after(next);
                busy |= next == Next::Busy;
            }
            // One batch of timers a turn: further due timers wait until the other stages had
            // theirs.
            self.next = if busy || expired { Polling::EACH_LOOP } else { self.wants(out) };
        }
        // Packets that wait for a port keep the lcore from its short turns; new operations need
        // this flag.
        if busy || self.any_port(out, |queue, _| queue.is_fresh) {
            return Next::Busy;
        }
        self.answer(out)
    }

    /// Hands the stage its ready descriptors. Returns true if there was one.
    fn look(&mut self, stage: &mut dyn Stage, out: &mut Outputs<'_>) -> bool {
        let Some(Watched { stage: name, fds, next_look_ns, has_woken }) = &mut self.watched else { return false };
        let now_ns = out.now_ns();
        if !std::mem::take(has_woken) && *next_look_ns > now_ns {
            return false;
        }
        let mut any = false;
        fds.look(|ready| {
            any = true;
            out.stats.fd_events.add(1);
            if ready.closed {
                out.stats.fds_closed.add(1);
                tracing::warn!(stage = %name, fd = ?ready.fd, "a descriptor was closed or failed: watched no longer");
            }
            stage.fd_ready(ready, out)
        });
        *next_look_ns = now_ns.saturating_add(fds.look_every_ns());
        if any {
            self.revive();
        }
        any
    }

    /// Hands the stage its completed operations, one batch per port.
    fn give_back(&mut self, stage: &mut dyn Stage, out: &mut Outputs<'_>) {
        let mut any = false;
        for OperationPort { sink, user } in &self.ports {
            let queue = out.lcore.operations_at(*sink).map(|(queue, _)| queue);
            let Some(queue) = queue.filter(|queue| queue.has_done(*user)) else { continue };
            queue.take_done(*user, &mut self.done);
            any = true;
            let mut handed = Handed { completed: Completed { done: self.done.drain(..) }, stats: out.stats };
            stage.operations(&mut handed.completed, out);
        }
        if any {
            self.revive();
        }
    }

    /// Hands the stage a batch of its due timers. Returns true if there was one.
    fn expire(&mut self, stage: &mut dyn Stage, out: &mut Outputs<'_>) -> bool {
        let now_ns = if out.timers.is_some() { out.now_ns() } else { return false };
        self.due.clear();
        if let Some(wheel) = &mut out.timers {
            wheel.expire(now_ns, &mut self.due);
        }
        if self.due.is_empty() {
            return false;
        }
        self.revive();
        out.stats.timers_due.add(self.due.len() as u64);
        stage.timers(&self.due, out);
        true
    }

    /// Returns when the stage next wants a poll, apart from operations. A source is done if it
    /// wants none and has no timer armed.
    fn wants(&mut self, out: &mut Outputs<'_>) -> Polling {
        if self.source && self.own == Polling::DONE && out.timers.as_ref().is_none_or(|wheel| wheel.armed() == 0) {
            if let Some(wheel) = &mut out.timers {
                wheel.close();
            }
            self.due_ns = None;
            return Polling::DONE;
        }
        let timer_ns = out.timers.as_ref().and_then(|wheel| wheel.next_ns());
        self.due_ns = [self.own.at(), timer_ns].into_iter().flatten().min();
        match self.own {
            Polling::EACH_LOOP => Polling::EACH_LOOP,
            _ => Polling::after(Next::At(self.due_ns.unwrap_or(Tick::MAX))),
        }
    }

    /// Returns what the node does until the next call.
    fn answer(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.any_port(out, |queue, user| queue.under_way(user) > 0) {
            return Next::Idle;
        }
        match self.next {
            // A source has finished only once its operations have.
            Polling::DONE => {
                self.watched.iter_mut().for_each(|watched| watched.fds.unwatch_all());
                Next::Done
            }
            Polling::EACH_LOOP if !self.stopped => Next::Idle,
            next => {
                let look_ns = self.watched.as_ref().map_or(Tick::MAX, |watched| watched.next_look_ns);
                Next::At(next.at().unwrap_or(Tick::MAX).min(look_ns))
            }
        }
    }

    fn any_port(&self, out: &mut Outputs<'_>, is_so: impl Fn(&OperationQueue, u16) -> bool) -> bool {
        let mut ports = self.ports.iter();
        ports.any(|port| out.lcore.operations_at(port.sink).is_some_and(|(queue, _)| is_so(queue, port.user)))
    }
}
