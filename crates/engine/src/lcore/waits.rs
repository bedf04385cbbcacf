//! When a stage is polled ([`Polling`]), and what it waits for besides packets ([`Waits`]): its
//! timers, the operations that it has asked for, and its descriptors. Only the node of such a stage
//! has `Waits`; the others ask once a poll whether they have.
//!
//! While operations are under way the stage's node is polled in every turn, though not the stage:
//! the lcore may sleep meanwhile, since a completion wakes it. No look at a descriptor is worth a
//! wake-up either, since what is ready ends the sleep.

#[cfg(test)]
mod tests;

use crate::api::outputs::Outputs;
use crate::api::stage::{Next, Stage};
use crate::operations::operation::{Completed, Done};
use crate::operations::queue::OperationQueue;
use crate::stats::clock::Tick;
use crate::stats::drop_reason::DropReason;
use crate::stats::turn_time::TurnTime;
use crate::waiting::fds::Fds;
use crate::waiting::wheel::{DueTimer, Wheel};

/// When a stage wants its `poll` called: at a tick or once packets arrive; once packets arrive; in
/// every loop; or never again. It is one number, since every turn compares it with the time.
///
/// A source that has finished may still ask for operations as it is given packets or told of
/// something. They come back to it by a poll of its node: it is [`Polling::ENDED`] in the turn in
/// which it finished, later [`Polling::FED`], and never [`Polling::DONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Polling(Tick);

impl Polling {
    pub(crate) const EACH_LOOP: Polling = Polling(0);
    /// Once packets arrive: a tick that is never reached.
    pub(crate) const FED: Polling = Polling(Tick::MAX - 2);
    /// The same of a source that has finished, as its node says so.
    pub(crate) const ENDED: Polling = Polling(Tick::MAX - 1);
    pub(crate) const DONE: Polling = Polling(Tick::MAX);

    pub(crate) fn after(next: Next) -> Polling {
        match next {
            Next::Busy | Next::Idle => Polling::EACH_LOOP,
            // Tick 0 is as long ago as tick 1. The last ticks are never reached, which is not the
            // end of a source.
            Next::At(tick) => Polling(tick.clamp(Polling::EACH_LOOP.0 + 1, Polling::FED.0)),
            Next::Done => Polling::DONE,
        }
    }

    /// Whether the stage is to be polled now. Only a stage that waits for a tick needs the time.
    #[inline]
    pub(crate) fn is_due(self, time: &TurnTime) -> bool {
        match self {
            Polling::EACH_LOOP => true,
            // Behind it are those that have finished.
            never if never >= Polling::FED => false,
            Polling(tick) => tick <= time.now_ns(),
        }
    }

    /// The tick, if it is one.
    #[inline]
    pub(crate) fn at(self) -> Option<Tick> {
        (Polling::EACH_LOOP.0 + 1..Polling::FED.0).contains(&self.0).then_some(self.0)
    }
}

/// What the plan and the stage's kind ask for.
#[derive(Debug, Default)]
pub(crate) struct WaitsFor {
    pub(crate) timers: u32,
    /// The most that are due in one call.
    pub(crate) timers_at_once: usize,
    /// The ports that the stage may ask for operations.
    pub(crate) ports: Vec<OperationPort>,
    /// The most operations that one of them carries out at once.
    pub(crate) operations_at_once: usize,
    pub(crate) fds: Option<Fds>,
}

/// A port that the stage may ask for operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationPort {
    /// The sink that gathers for it.
    pub(crate) sink: usize,
    /// The stage's number among the port's users.
    pub(crate) user: u16,
}

/// What a stage waits for besides packets.
pub(crate) struct Waits {
    source: bool,
    /// Of a source: it was said that it has finished.
    has_ended: bool,
    /// The run is stopping: timers that come due are no work that is under way.
    drains: bool,
    /// The same of a source, which is called for nothing but what it has asked for.
    stopped: bool,
    /// When the stage itself wants to be polled.
    own: Polling,
    /// The same, or when the first timer is due, if that is earlier.
    next: Polling,
    /// How long the lcore may sleep; `None`: until something comes.
    pub(crate) due_ns: Option<Tick>,
    /// How often the stage had been given packets: they may have changed when it wants to be
    /// polled.
    calls: u64,
    /// Handed to the stage; empty between calls.
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
    /// One has ended a sleep since they were looked at.
    has_woken: bool,
}

impl Waits {
    /// The timers of a stage, if it has some, and what else it waits for; `None` if for nothing.
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

    /// The run is stopping. True if the stage may be given operations back, as a source also is.
    pub(crate) fn stop(&mut self) -> bool {
        self.drains = true;
        self.stopped = self.source;
        if let Some(watched) = self.watched.as_mut().filter(|_| self.source) {
            watched.fds.unwatch_all();
        }
        !self.ports.is_empty()
    }

    /// What a node becomes whose poll said that it has finished.
    pub(crate) fn end(&mut self) -> Polling {
        match (self.ports.is_empty(), std::mem::replace(&mut self.has_ended, true)) {
            (true, _) => Polling::DONE,
            (false, false) => Polling::ENDED,
            (false, true) => Polling::FED,
        }
    }

    /// Hands the stage what has come, polls it if it wants to be, and says when to do so again.
    pub(crate) fn poll(&mut self, stage: &mut dyn Stage, out: &mut Outputs<'_>) -> Next {
        let calls = out.stats.calls.value();
        if std::mem::replace(&mut self.calls, calls) != calls {
            self.revive();
        }
        let mut busy = self.look(stage, out);
        self.give_back(stage, out);
        if !self.stopped && self.next.is_due(&out.lcore.ctx.time) {
            let expired = self.expire(stage, out);
            // Those of a heartbeat never end. What a stage sends then keeps the drain up by itself.
            busy |= expired && !self.drains;
            if self.own.is_due(&out.lcore.ctx.time) {
                let next = stage.poll(out);
                self.own = Polling::after(next);
                busy |= next == Next::Busy;
            }
            // One batch of timers a turn: what else is due waits until the others had theirs.
            self.next = if busy || expired { Polling::EACH_LOOP } else { self.wants(out) };
        }
        // Packets that wait for a port keep an lcore from its short turns; operations have to say
        // so.
        if busy || self.any_port(out, |queue, _| queue.is_fresh) {
            return Next::Busy;
        }
        self.answer(out)
    }

    /// Hands the stage its descriptors that are ready. True if one was.
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

    /// Hands the stage its operations that are done, a batch a port.
    fn give_back(&mut self, stage: &mut dyn Stage, out: &mut Outputs<'_>) {
        let mut any = false;
        for OperationPort { sink, user } in &self.ports {
            let queue = out.lcore.operations_at(*sink).map(|(queue, _)| queue);
            let Some(queue) = queue.filter(|queue| queue.has_done(*user)) else { continue };
            queue.take_done(*user, &mut self.done);
            any = true;
            let mut completed = Completed { done: self.done.drain(..) };
            stage.operations(&mut completed, out);
            let unclaimed: usize = completed.done.map(|done| done.packets()).sum();
            if unclaimed > 0 {
                out.stats.drops.add(DropReason::Unclaimed, unclaimed as u64);
            }
        }
        if any {
            self.revive();
        }
    }

    /// Hands the stage a batch of its timers that are due. True if one was.
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

    /// When the stage wants a poll next, operations aside: done is a source that wants none, and
    /// has no timer armed.
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

    /// What the node does until the next call.
    fn answer(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.any_port(out, |queue, user| queue.under_way(user) > 0) {
            return Next::Idle;
        }
        match self.next {
            // A source has finished when its operations have.
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
