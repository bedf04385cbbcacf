//! The time of a turn: read from the clock when somebody first asks, the same for all of the turn from then on. And where
//! an lcore's time went: every reading charges the time since the last one to busy or idle.
//!
//! Reading the clock is a good part of an empty turn, and what an empty turn takes is what a packet waits for on average twice
//! over; and when something has come, the packet waits for the reading. So a turn that nothing asks has no time: nobody
//! looks at it, no timer is set, and it isn't one of those that are timed ([`crate::sampling`]), which are frequent enough
//! to keep the figures up to date. Where idle time ended in a busy turn that nobody asked is an estimate: it was busy for as
//! long as the last timed one. Guarantees: the time never runs backwards; what follows a reading in a turn sees that reading;
//! no time is charged twice or not at all.

use std::cell::Cell;

use crate::clock::{Clock, Tick};
use crate::stats::{LcoreStats, Shared};

/// The time of the turn that is taken now, of one lcore.
#[derive(Debug)]
pub(crate) struct TurnTime {
    clock: Clock,
    stats: Shared<LcoreStats>,
    now_ns: Cell<Tick>,
    /// The same in cycles.
    now_cycles: Cell<u64>,
    /// Whether `now_ns` is of this turn.
    is_read: Cell<bool>,
    /// Whether this turn is timed, if it turns out to be busy.
    timed: Cell<bool>,
    /// How long the last busy turn that was timed took from where something came.
    busy_ns: Cell<u64>,
}

impl TurnTime {
    pub(crate) fn new(clock: Clock, stats: Shared<LcoreStats>) -> TurnTime {
        let (now_ns, now_cycles) = clock.now();
        TurnTime {
            clock,
            stats,
            now_ns: Cell::new(now_ns),
            now_cycles: Cell::new(now_cycles),
            is_read: Cell::new(true),
            timed: Cell::new(false),
            busy_ns: Cell::new(0),
        }
    }

    /// Begins a turn after one that was busy or not. `at_once` reads the clock now, for who wants the beginning of the turn.
    #[inline]
    pub(crate) fn begin(&self, last_busy: bool, at_once: bool) {
        self.stats.loops.add(1);
        if last_busy {
            // What was busy ends here, and not where somebody asks for the time.
            self.end_busy();
        } else {
            self.is_read.set(false);
            if at_once {
                self.now_ns();
            }
        }
    }

    /// If this turn is busy, does the time when something came matter? As for the turn before, unless told.
    #[inline]
    pub(crate) fn weigh(&self, timed: bool) {
        self.timed.set(timed);
    }

    /// Starts anew from now: the time since the last reading is charged to nothing.
    pub(crate) fn restart(&self) {
        let (now_ns, now_cycles) = self.clock.now();
        self.set(now_ns, now_cycles);
    }

    /// The turn's time. What has passed until it is first asked for was idle: after a busy turn it is read at once.
    #[inline]
    pub(crate) fn now_ns(&self) -> Tick {
        if !self.is_read.get() {
            self.stats.idle_ns.add(self.read());
        }
        self.now_ns.get()
    }

    /// The turn's time, or that of one before if nobody has asked in this one.
    #[inline]
    pub(crate) fn last_ns(&self) -> Tick {
        self.now_ns.get()
    }

    /// [`TurnTime::last_ns`] in cycles.
    #[inline]
    pub(crate) fn last_cycles(&self) -> u64 {
        self.now_cycles.get()
    }

    /// Something came: what was idle so far ends here.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.timed.get() {
            self.now_ns();
        }
    }

    /// The clock, for what must not be a turn old.
    #[inline]
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    fn end_busy(&self) {
        let was_read = self.is_read.get();
        let spent_ns = self.read();
        if self.timed.get() {
            self.busy_ns.set(spent_ns);
        }
        let busy_ns = if was_read { spent_ns } else { self.busy_ns.get().min(spent_ns) };
        self.stats.busy_loops.add(1);
        self.stats.busy_ns.add(busy_ns);
        self.stats.idle_ns.add(spent_ns - busy_ns);
    }

    /// Reads the clock. Gives how long ago it was read before.
    #[inline]
    fn read(&self) -> u64 {
        let (now_ns, now_cycles) = self.clock.now();
        let spent_ns = now_ns.saturating_sub(self.now_ns.get());
        self.set(now_ns, now_cycles);
        spent_ns
    }

    #[inline]
    fn set(&self, now_ns: Tick, now_cycles: u64) {
        // Another CPU's TSC may be a little behind.
        self.now_ns.set(now_ns.max(self.now_ns.get()));
        self.now_cycles.set(now_cycles);
        self.is_read.set(true);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn time() -> (TurnTime, Shared<LcoreStats>) {
        let stats = Shared::<LcoreStats>::default();
        (TurnTime::new(Clock::new(), stats.clone()), stats)
    }

    fn begin(time: &TurnTime, last_busy: bool, timed: bool, at_once: bool) {
        time.begin(last_busy, at_once);
        time.weigh(timed);
    }

    fn pass(clock: &Clock) {
        let from_ns = clock.now_ns();
        while clock.now_ns() - from_ns < Duration::from_micros(50).as_nanos() as u64 {}
    }

    #[test]
    fn a_turn_has_one_time_which_is_read_when_asked_for() {
        let (time, _) = time();
        let before = time.last_ns();
        begin(&time, false, false, false);
        pass(time.clock());
        assert_eq!(time.last_ns(), before, "nobody has asked");
        let asked = time.now_ns();
        assert!(asked >= before + 50_000);
        pass(time.clock());
        assert_eq!((time.now_ns(), time.last_ns()), (asked, asked));
        begin(&time, false, false, true);
        assert!(time.last_ns() >= asked + 50_000, "read at once");
    }

    #[test]
    fn all_time_is_charged_and_none_twice() {
        let (time, stats) = time();
        let start_ns = time.last_ns();
        begin(&time, false, false, false); // finds nothing: the idle time goes on
        pass(time.clock());
        begin(&time, false, true, false);
        time.wake(); // something came
        let woken_ns = time.last_ns();
        assert_eq!((stats.idle_ns.value(), stats.busy_ns.value()), (woken_ns - start_ns, 0));
        pass(time.clock());
        begin(&time, true, false, false);
        let done_ns = time.last_ns();
        assert_eq!((stats.idle_ns.value(), stats.busy_ns.value()), (woken_ns - start_ns, done_ns - woken_ns));
        begin(&time, false, false, false);
        pass(time.clock());
        time.restart(); // as after a sleep
        begin(&time, false, false, true);
        assert!(stats.idle_ns.value() < woken_ns - start_ns + 50_000, "the time asleep is nobody's");
        assert_eq!((stats.loops.value(), stats.busy_loops.value()), (5, 1));
    }

    #[test]
    fn a_busy_turn_that_nobody_asked_was_busy_as_long_as_the_last_one_that_was_timed() {
        let (time, stats) = time();
        begin(&time, false, true, false);
        time.wake();
        pass(time.clock());
        begin(&time, true, false, false);
        let (idle_ns, busy_ns) = (stats.idle_ns.value(), stats.busy_ns.value());
        let before_ns = time.last_ns();
        begin(&time, false, false, false);
        pass(time.clock());
        pass(time.clock());
        time.wake(); // reads no clock
        assert_eq!(time.last_ns(), before_ns);
        begin(&time, true, false, false);
        let passed_ns = time.last_ns() - before_ns;
        let (idle_ns, busier_ns) = (stats.idle_ns.value() - idle_ns, stats.busy_ns.value() - busy_ns);
        assert_eq!((idle_ns + busier_ns, busier_ns), (passed_ns, busy_ns.min(passed_ns)));
    }
}
