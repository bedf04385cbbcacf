//! The timers of a stage: a hierarchical timing wheel of nanoseconds, of a fixed number of timers.
//!
//! Eleven levels of 64 slots cover 64 bits. A timer lies on the level of the highest six bits in
//! which its tick differs from the wheel's time, in the slot that those bits name. So the first
//! occupied slot of the lowest occupied level holds the timers that are due first. When the time
//! reaches a slot, its timers move to lower levels; at the lowest, a slot is one tick, and they are
//! due.
//!
//! Guarantees: arming, rearming and canceling take the same time with any number of timers; a timer
//! moves down ten times at most. Timers are due at their tick, never before, in the order of their
//! ticks, and timers of one tick in the order in which they were armed. A tick before the wheel's
//! time counts as that time. A [`TimerId`] is valid until its timer is due or canceled, and never
//! for another. Nothing is allocated after [`Wheel::new`].
//!
//! No crate served: tokio-util's needs tokio's runtime; hierarchical_hash_wheel_timer and its
//! descendants allocate for each timer or slot; nexus-timer counts milliseconds of `Instant`, and
//! its handles must be given back.

#[cfg(test)]
mod tests;

use verbline_plan::{TIMER_BYTES, TIMERS_MAX};

use crate::stats::clock::Tick;

/// Bits of a tick that one level covers.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;

/// No timer; no slot.
const NONE: u32 = u32::MAX;

const INDEX_BITS: u32 = 20;
/// A timer used this often is not used again: its next handle would equal an old one.
const GENERATION_MAX: u64 = (1 << (u64::BITS - INDEX_BITS)) - 1;

const _: () = assert!(TIMERS_MAX as u64 <= 1 << INDEX_BITS, "an index fits its bits");
const _: () = assert!(size_of::<Timer>() as u64 <= TIMER_BYTES, "the plan's sum covers what is allocated");

/// The handle of one stage's armed timer. It becomes invalid when the timer is due or canceled, and
/// is never valid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(u64);

impl TimerId {
    fn new(index: u32, generation: u64) -> TimerId {
        TimerId(generation << INDEX_BITS | u64::from(index))
    }

    fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }

    fn generation(self) -> u64 {
        self.0 >> INDEX_BITS
    }
}

/// A due timer; [`Stage::timers`](crate::Stage::timers) gets a batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueTimer {
    /// Its handle, which is no longer valid.
    pub id: TimerId,
    /// The tag that the stage armed it with.
    pub tag: u64,
    /// The tick for which it was armed; it may be past.
    pub at_ns: Tick,
}

#[derive(Clone, Debug)]
struct Timer {
    at_ns: Tick,
    tag: u64,
    generation: u64,
    /// Its links in its slot's list, or in the free list.
    next: u32,
    previous: u32,
    /// Its slot while it is armed, else [`NONE`].
    slot: u32,
}

#[derive(Clone, Debug)]
struct Slot {
    first: u32,
    last: u32,
    /// No timer of the slot is due before this.
    least_ns: Tick,
}

impl Slot {
    const EMPTY: Slot = Slot { first: NONE, last: NONE, least_ns: Tick::MAX };
}

#[derive(Debug)]
pub(crate) struct Wheel {
    /// All timers due before this tick have been taken out.
    time_ns: Tick,
    timers: Box<[Timer]>,
    slots: Box<[Slot]>,
    /// The occupied slots of each level, as bits.
    taken: [u64; LEVELS],
    /// The occupied levels, as bits.
    levels: u32,
    free: u32,
    armed: u32,
    closed: bool,
}

impl Wheel {
    pub(crate) fn new(timers: u32) -> Wheel {
        let timer = |index: u32| {
            let next = if index + 1 < timers { index + 1 } else { NONE };
            Timer { at_ns: 0, tag: 0, generation: 0, next, previous: NONE, slot: NONE }
        };
        Wheel {
            time_ns: 0,
            timers: (0..timers).map(timer).collect(),
            slots: vec![Slot::EMPTY; LEVELS * SLOTS].into(),
            taken: [0; LEVELS],
            levels: 0,
            free: if timers > 0 { 0 } else { NONE },
            armed: 0,
            closed: false,
        }
    }

    /// Arms a timer; `None` if all are armed, or the wheel is closed.
    pub(crate) fn arm(&mut self, at_ns: Tick, tag: u64) -> Option<TimerId> {
        let index = self.free;
        if index == NONE || self.closed {
            return None;
        }
        let timer = &mut self.timers[index as usize];
        self.free = timer.next;
        (timer.at_ns, timer.tag) = (at_ns, tag);
        let id = TimerId::new(index, timer.generation);
        self.armed += 1;
        self.link(index);
        Some(id)
    }

    /// Moves an armed timer to another tick. Returns false if it is no longer armed.
    pub(crate) fn rearm(&mut self, id: TimerId, at_ns: Tick) -> bool {
        let Some(index) = self.find(id) else { return false };
        self.unlink(index);
        self.timers[index as usize].at_ns = at_ns;
        self.link(index);
        true
    }

    /// Cancels a timer. Returns false if it is no longer armed.
    pub(crate) fn cancel(&mut self, id: TimerId) -> bool {
        let Some(index) = self.find(id) else { return false };
        self.unlink(index);
        self.release(index);
        true
    }

    /// Moves timers due at `now_ns` to `due`, as many as it has room for.
    pub(crate) fn expire(&mut self, now_ns: Tick, due: &mut Vec<DueTimer>) {
        while due.len() < due.capacity() {
            let Some((level, slot)) = self.first() else { break };
            let start_ns = self.start_ns(level, slot);
            if start_ns > now_ns {
                break;
            }
            let Slot { first, last, .. } = self.slots[slot];
            // A slot of a higher level may hold timers in any order, unless it holds a single one.
            let at_ns = self.timers[first as usize].at_ns.max(start_ns);
            if level == 0 || (first == last && at_ns <= now_ns) {
                self.time_ns = at_ns.min(now_ns);
                self.unlink(first);
                due.push(self.release(first));
            } else {
                self.time_ns = start_ns;
                self.spread(slot);
            }
        }
        // With `due` full, there may be more.
        if due.len() < due.capacity() {
            self.time_ns = self.time_ns.max(now_ns);
        }
    }

    /// Returns when to call [`Wheel::expire`] next: the tick of the first due timer, or earlier if
    /// that was canceled.
    pub(crate) fn next_ns(&self) -> Option<Tick> {
        self.first().map(|(_, slot)| self.slots[slot].least_ns)
    }

    pub(crate) fn armed(&self) -> u32 {
        self.armed
    }

    /// Closes the wheel: no timer can be armed from now on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    fn find(&self, id: TimerId) -> Option<u32> {
        let timer = self.timers.get(id.index())?;
        (timer.generation == id.generation() && timer.slot != NONE).then_some(id.index() as u32)
    }

    /// Returns the first occupied slot, and its level.
    fn first(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, level * SLOTS + self.taken[level].trailing_zeros() as usize))
    }

    /// Returns the first tick of a slot.
    fn start_ns(&self, level: usize, slot: usize) -> Tick {
        let shift = level as u32 * LEVEL_BITS;
        let above = self.time_ns.checked_shr(shift + LEVEL_BITS).unwrap_or(0);
        let above = above.checked_shl(shift + LEVEL_BITS).unwrap_or(0);
        above | ((slot % SLOTS) as u64) << shift
    }

    fn link(&mut self, index: u32) {
        let timer = &mut self.timers[index as usize];
        // A past tick is due now.
        let at_ns = timer.at_ns.max(self.time_ns);
        let level = match (at_ns ^ self.time_ns).checked_ilog2() {
            Some(bit) => (bit / LEVEL_BITS) as usize,
            None => 0,
        };
        let digit = (at_ns >> (level as u32 * LEVEL_BITS)) as usize % SLOTS;
        let number = level * SLOTS + digit;
        let slot = &mut self.slots[number];
        (timer.slot, timer.next, timer.previous) = (number as u32, NONE, slot.last);
        slot.least_ns = slot.least_ns.min(timer.at_ns);
        let last = std::mem::replace(&mut slot.last, index);
        match last {
            NONE => {
                slot.first = index;
                self.taken[level] |= 1 << digit;
                self.levels |= 1 << level;
            }
            last => self.timers[last as usize].next = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let Timer { next, previous, slot: number, .. } = self.timers[index as usize];
        let slot = &mut self.slots[number as usize];
        match previous {
            NONE => slot.first = next,
            previous => self.timers[previous as usize].next = next,
        }
        match next {
            NONE => slot.last = previous,
            next => self.timers[next as usize].previous = previous,
        }
        if slot.first == NONE {
            self.empty(number as usize);
        }
    }

    fn empty(&mut self, number: usize) {
        let (level, digit) = (number / SLOTS, number % SLOTS);
        self.slots[number] = Slot::EMPTY;
        self.taken[level] &= !(1 << digit);
        if self.taken[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Moves the timers of a slot that the time has reached to lower levels.
    fn spread(&mut self, number: usize) {
        let mut index = self.slots[number].first;
        self.empty(number);
        while index != NONE {
            let next = self.timers[index as usize].next;
            self.link(index);
            index = next;
        }
    }

    /// Frees a timer that is in no slot.
    fn release(&mut self, index: u32) -> DueTimer {
        let timer = &mut self.timers[index as usize];
        let due = DueTimer { id: TimerId::new(index, timer.generation), tag: timer.tag, at_ns: timer.at_ns };
        timer.slot = NONE;
        self.armed -= 1;
        if timer.generation < GENERATION_MAX {
            timer.generation += 1;
            timer.next = std::mem::replace(&mut self.free, index);
        }
        due
    }
}
