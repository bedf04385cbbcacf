//! The time of a turn, and the use of an lcore's time. The clock is read when the turn's time is
//! first asked for; the rest of the turn sees the same time. Every reading charges the time since
//! the last reading to busy or idle.
//!
//! Reading the clock is a good part of an empty turn, and a packet waits on average for two empty
//! turns. Therefore a turn reads no clock unless its time is asked for. Timed turns
//! ([`crate::stats::sampling`]) are frequent enough to keep the figures up to date. If a busy turn
//! follows idle turns without a reading between them, the end of the idle time is estimated: each
//! idle turn since the last reading took as long as the last measured ones. (Charging the busy turn
//! like a timed one instead is wrong by as much as turns differ: stages then had 194 % of a busy
//! lcore.)
//!
//! A late reading may mean that the lcore was kept from its CPU: by another thread, a quota, or a
//! hypervisor. Then, and only then, the kernel is asked how long the thread ran; the missing time
//! is neither busy nor idle but stolen.
//!
//! Guarantees: the time never runs backwards; all code that runs after a reading in a turn sees
//! that reading; no time is charged twice or not at all.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};

use crate::stats::clock::{Clock, Tick};
use crate::stats::counter::Shared;
use crate::stats::counters::LcoreStats;

/// A reading that comes this long after the last one asks the kernel whether the thread ran all the
/// time. Asking takes 0.2 µs, a hundredth of this, so that a stage whose every call takes this long
/// pays a hundredth. Stolen time is usually longer.
pub(crate) const LATE_NS: u64 = 20_000;

/// `idle_turn` counts in parts of a nanosecond, as an idle turn takes a few tens.
const PARTS: u64 = 16;

/// The time of an lcore's present turn.
#[derive(Debug)]
pub(crate) struct TurnTime {
    clock: Clock,
    stats: Shared<LcoreStats>,
    now_ns: Cell<Tick>,
    /// `now_ns` in cycles.
    now_cycles: Cell<u64>,
    /// Whether `now_ns` is of this turn.
    is_read: Cell<bool>,
    /// Whether this turn is timed, if it turns out to be busy.
    timed: Cell<bool>,
    /// The turn of the last reading, or the turn that began with it.
    read_in: Cell<u64>,
    /// The length of an idle turn in 1/[`PARTS`] ns: the lesser of the last two measurements, as
    /// one may have been disturbed.
    idle_turn: Cell<u64>,
    idle_turn_before: Cell<u64>,
    /// The thread's CPU time at the last look, and the time of that look.
    ran: Cell<Ran>,
    /// Stolen time found since the last reading by a stage's own late reading.
    found_ns: Cell<u64>,
    /// The cost of a reading, in cycles.
    reading_cycles: u64,
}

/// A look at the thread's CPU clock.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    at_ns: Tick,
    cpu_ns: u64,
}

impl TurnTime {
    pub(crate) fn new(clock: Clock, stats: Shared<LcoreStats>) -> TurnTime {
        let readings = (0..64).map(|_| (clock.cycles(), clock.cycles()));
        let reading_cycles = readings.map(|(first, second)| second.wrapping_sub(first)).min().unwrap_or(0);
        let (now_ns, now_cycles) = clock.now();
        TurnTime {
            clock,
            stats,
            now_ns: Cell::new(now_ns),
            now_cycles: Cell::new(now_cycles),
            is_read: Cell::new(true),
            timed: Cell::new(false),
            read_in: Cell::new(0),
            idle_turn: Cell::new(0),
            idle_turn_before: Cell::new(0),
            ran: Cell::new(Ran { at_ns: now_ns, cpu_ns: cpu_ns() }),
            found_ns: Cell::new(0),
            reading_cycles,
        }
    }

    /// Begins a turn after one that was busy or not. `at_once`: reads the clock now, because the
    /// turn needs the time of its beginning.
    // Always inlined into its callers, the two kinds of turn: a call of its own costs 16
    // instructions per turn.
    #[inline(always)]
    pub(crate) fn begin(&self, last_busy: bool, at_once: bool) {
        self.stats.loops.add(1);
        if last_busy {
            // The busy time ends here, not at the turn's first request for the time.
            self.end_busy();
        } else {
            self.is_read.set(false);
            if at_once {
                self.end_idle();
            }
        }
    }

    /// Sets whether this turn is timed, i.e. whether the time of an arrival matters if the turn is
    /// busy. Unless it is set, the turn is like the one before.
    #[inline]
    pub(crate) fn weigh(&self, timed: bool) {
        self.timed.set(timed);
    }

    /// Called before the thread blocks: the time that it runs from here to [`TurnTime::restart`] is
    /// part of its sleep. This is a system call of an lcore that has nothing to do; after the
    /// sleep, when somebody waits, it would be in the way.
    pub(crate) fn before_sleep(&self) {
        self.ran.set(Ran { cpu_ns: cpu_ns(), ..self.ran.get() });
    }

    /// Starts anew from now: the time since the last reading is charged to nothing.
    pub(crate) fn restart(&self) {
        let (now_ns, now_cycles) = self.clock.now();
        self.set(now_ns, now_cycles);
        self.ran.set(Ran { at_ns: now_ns, ..self.ran.get() });
        self.found_ns.set(0);
    }

    /// Returns the turn's time. The time before the first request in a turn was idle: after a busy
    /// turn the clock is read at once.
    #[inline]
    pub(crate) fn now_ns(&self) -> Tick {
        if !self.is_read.get() {
            self.stats.idle_ns.add(self.read());
        }
        self.now_ns.get()
    }

    /// Returns the turn's time, or an earlier turn's if this turn has not read the clock.
    #[inline]
    pub(crate) fn last_ns(&self) -> Tick {
        self.now_ns.get()
    }

    /// Returns [`TurnTime::last_ns`] in cycles.
    #[inline]
    pub(crate) fn last_cycles(&self) -> u64 {
        self.now_cycles.get()
    }

    /// Records an arrival: the idle time ends here. Returns true if this turn is timed.
    #[inline]
    pub(crate) fn wake(&self) -> bool {
        let timed = self.timed.get();
        if timed {
            self.now_ns();
        }
        timed
    }

    /// Returns the clock, for times that must not be a turn old.
    #[inline]
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Begins the turn after a busy one. If the last reading was in that turn, there was no idle
    /// turn since.
    #[inline]
    fn end_busy(&self) {
        let idle_turns = self.stats.loops.value() - 1 - self.read_in.get();
        let spent_ns = self.read();
        self.stats.busy_loops.add(1);
        // The case of every turn of a busy lcore, which so has nothing to estimate and no idle time
        // to store.
        if idle_turns == 0 {
            self.stats.busy_ns.add(spent_ns);
            return;
        }
        let idle_ns = (idle_turns * self.idle_turn.get() / PARTS).min(spent_ns);
        self.stats.busy_ns.add(spent_ns - idle_ns);
        self.stats.idle_ns.add(idle_ns);
    }

    /// Begins a turn after idle ones alone, and learns the length of such a turn.
    #[inline]
    fn end_idle(&self) {
        let idle_turns = self.stats.loops.value() - self.read_in.get();
        let spent_ns = self.read();
        self.stats.idle_ns.add(spent_ns);
        let idle_turn = spent_ns * PARTS / idle_turns.max(1);
        self.idle_turn.set(idle_turn.min(self.idle_turn_before.replace(idle_turn)));
    }

    /// Reads the clock. Returns the time since the last reading, without the time stolen since.
    #[inline]
    fn read(&self) -> u64 {
        let (now_ns, now_cycles) = self.clock.now();
        let spent_ns = now_ns.saturating_sub(self.now_ns.get());
        self.set(now_ns, now_cycles);
        // A compare and a branch that is not taken, after a clock read that takes ten times as
        // long.
        if spent_ns < LATE_NS { spent_ns } else { self.after_late(spent_ns) }
    }

    #[inline]
    fn set(&self, now_ns: Tick, now_cycles: u64) {
        // Another CPU's TSC may be a little behind.
        let now_ns = now_ns.max(self.now_ns.get());
        self.now_ns.set(now_ns);
        self.stats.read_at_ns.set(now_ns);
        self.now_cycles.set(now_cycles);
        self.read_in.set(self.stats.loops.value());
        self.is_read.set(true);
    }

    /// Returns how much of `spent_ns`, which end now, the thread ran.
    #[cold]
    fn after_late(&self, spent_ns: u64) -> u64 {
        let found_ns = self.found_ns.replace(0).min(spent_ns);
        let rest_ns = spent_ns - found_ns;
        rest_ns - self.steal(self.now_ns.get(), rest_ns)
    }

    /// Returns how many of a stage's cycles, which end now, the thread ran: all of them unless they
    /// are many.
    #[inline]
    pub(crate) fn ran_cycles(&self, cycles: u64) -> u64 {
        let cycles = cycles.saturating_sub(self.reading_cycles);
        let spent_ns = self.clock.cycles_to_ns(cycles);
        if spent_ns < LATE_NS { cycles } else { self.after_late_stage(cycles, spent_ns) }
    }

    #[cold]
    fn after_late_stage(&self, cycles: u64, spent_ns: u64) -> u64 {
        let stolen_ns = self.steal(self.clock.now_ns(), spent_ns);
        self.found_ns.set(self.found_ns.get() + stolen_ns);
        (cycles as f64 * (spent_ns - stolen_ns) as f64 / spent_ns as f64) as u64
    }

    /// Charges and returns the time that the thread did not run since the last look, `spent_ns` at
    /// most. The rest, from intervals that were not late, is charged with the next one.
    fn steal(&self, now_ns: Tick, spent_ns: u64) -> u64 {
        let (before, cpu_ns) = (self.ran.get(), cpu_ns());
        let off_ns = now_ns.saturating_sub(before.at_ns).saturating_sub(cpu_ns.saturating_sub(before.cpu_ns));
        let stolen_ns = off_ns.min(spent_ns);
        self.ran.set(Ran { at_ns: now_ns, cpu_ns: cpu_ns + (off_ns - stolen_ns) });
        self.stats.stolen_ns.add(stolen_ns);
        if stolen_ns >= LATE_NS {
            self.stats.stalls.add(1);
            self.stats.stall_max_ns.raise_to(stolen_ns);
        }
        stolen_ns
    }
}

/// Returns how long the calling thread has run.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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
        let charged = |stats: &LcoreStats| stats.idle_ns.value() + stats.busy_ns.value() + stats.stolen_ns.value();
        assert_eq!((charged(&stats), stats.busy_ns.value()), (woken_ns - start_ns, 0));
        pass(time.clock());
        begin(&time, true, false, false);
        let done_ns = time.last_ns();
        assert_eq!(charged(&stats), done_ns - start_ns);
        assert!(stats.busy_ns.value() <= done_ns - woken_ns && stats.idle_ns.value() <= woken_ns - start_ns);
        begin(&time, false, false, false);
        pass(time.clock());
        time.restart(); // as after a sleep
        begin(&time, false, false, true);
        assert!(stats.idle_ns.value() < woken_ns - start_ns + 50_000, "the time asleep is nobody's");
        assert_eq!((stats.loops.value(), stats.busy_loops.value()), (5, 1));
    }

    // The length of busy turns varies; that of idle turns does not.
    #[test]
    fn a_busy_turn_that_nobody_asked_was_busy_but_for_the_idle_turns_before_it() {
        let (time, stats) = time();
        for _ in 0..2 {
            for _ in 0..10 {
                begin(&time, false, false, false);
            }
            begin(&time, false, false, true); // learns what an idle turn takes
        }
        let idle_turn_ns = time.idle_turn.get() / PARTS;
        assert!(idle_turn_ns < 10_000, "{idle_turn_ns} ns");
        let (idle_ns, busy_ns, from_ns) = (stats.idle_ns.value(), stats.busy_ns.value(), time.last_ns());
        let stolen_ns = stats.stolen_ns.value();
        begin(&time, false, false, false);
        begin(&time, false, false, false);
        pass(time.clock()); // and is busy, after two idle turns, one of which the clock was read at
        begin(&time, true, false, false);
        let passed_ns = time.last_ns() - from_ns - (stats.stolen_ns.value() - stolen_ns);
        let (idle_ns, busy_ns) = (stats.idle_ns.value() - idle_ns, stats.busy_ns.value() - busy_ns);
        assert_eq!((idle_ns + busy_ns, idle_ns), (passed_ns, (2 * time.idle_turn.get() / PARTS).min(passed_ns)));
        // The next one follows at once: all of it is busy, whatever the length of the one before.
        let (idle_ns, busy_ns, from_ns) = (stats.idle_ns.value(), stats.busy_ns.value(), time.last_ns());
        pass(time.clock());
        pass(time.clock());
        begin(&time, true, false, false);
        let busier_ns = stats.busy_ns.value() - busy_ns;
        assert_eq!(stats.idle_ns.value(), idle_ns);
        assert!(busier_ns <= time.last_ns() - from_ns && busier_ns > 0);
    }

    #[test]
    fn time_off_the_cpu_is_stolen_and_neither_busy_nor_idle() {
        // Other threads may really take the CPU, and are counted; hardly in all of some rounds.
        let found = (0..5).find_map(|_| Some(stalls_of_two_times_off_the_cpu()).filter(|stalls| *stalls <= 2));
        assert_eq!(found, Some(2));
    }

    fn stalls_of_two_times_off_the_cpu() -> u64 {
        const OFF: Duration = Duration::from_millis(20);
        let (time, stats) = time();
        let start_ns = time.last_ns();
        begin(&time, false, true, true);
        std::thread::sleep(OFF); // as if preempted, in a stage that is timed
        let cycles = time.clock().cycles().wrapping_sub(time.last_cycles());
        let ran_ns = time.clock().cycles_to_ns(time.ran_cycles(cycles));
        assert!(ran_ns < 15_000_000, "the stage did not run for {ran_ns} ns");
        begin(&time, true, false, true);
        std::thread::sleep(OFF); // and again, while nothing comes
        begin(&time, false, false, true);
        let [busy_ns, idle_ns, stolen_ns] =
            [&stats.busy_ns, &stats.idle_ns, &stats.stolen_ns].map(crate::stats::counter::Count::value);
        assert_eq!(busy_ns + idle_ns + stolen_ns, time.last_ns() - start_ns, "all time is charged");
        assert!(stolen_ns >= 39_000_000 && busy_ns < 15_000_000, "{busy_ns} busy, {idle_ns} idle, {stolen_ns} stolen");
        assert!(stats.stall_max_ns.value() >= 19_500_000);
        stats.stalls.value()
    }
}
