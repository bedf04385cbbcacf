//! The counts of packets' ways, and the packets that are kept: the first, and the slowest.
//!
//! Guarantees: the memory is bounded, however long a trace lasts.

use std::collections::{BTreeMap, HashMap};

use super::journey::{Between, Ending, Journey, Part};
use super::timeline::{Doing, Output, Slice, Timeline};

/// The most ways counted apart; packets on others are counted together.
pub(super) const PATHS_MAX: usize = 256;

/// The wanted packets, and the number to keep.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Only packets that pass this place.
    pub at: Option<u16>,
    /// Only packets that take longer than this, with their wait before.
    pub above_ns: u64,
    /// The number of packets after which counting stops.
    pub packets: u64,
    /// The number of first packets to keep.
    pub first: usize,
    /// The number of slowest packets to keep, and of turns.
    pub slowest: usize,
    /// The length of the last time to count; `None` for the whole trace.
    pub last_ns: Option<u64>,
}

/// A kept packet, with the lcores' activities during each part of its time.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) journey: Journey,
    /// Further packets that came with it, went the same way, and took no longer.
    pub(super) alike: u64,
    pub(super) parts: Vec<(Part, Vec<(Doing, u64)>)>,
}

impl Kept {
    /// Whether a packet came with it, went the same way, and took no longer.
    fn is_like(&self, journey: &Journey) -> bool {
        let own = &self.journey;
        own.from_ns() == journey.from_ns()
            && own.at_most_ns() >= journey.at_most_ns()
            && own.ending == journey.ending
            && own.path() == journey.path()
    }
}

/// A kept turn, with the activities in it.
#[derive(Clone, Debug)]
pub(super) struct KeptTurn {
    pub(super) lcore: usize,
    pub(super) slice: Slice,
    pub(super) did: Vec<(Doing, u64)>,
}

/// A count of times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) packets: u64,
    pub(super) sum_ns: u64,
    pub(super) max_ns: u64,
}

impl Times {
    fn add(&mut self, ns: u64) {
        self.packets += 1;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    fn merge(&mut self, other: &Times) {
        self.packets += other.packets;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[derive(Debug)]
pub(super) struct Tally {
    wanted: Wanted,
    /// Wanted packets.
    pub(super) packets: u64,
    /// Packets first seen in the middle of their ways.
    pub(super) partial: u64,
    /// Packets still in flight at the end.
    pub(super) under_way: u64,
    /// Events received.
    pub(super) events: u64,
    /// By lcore: lost turns.
    pub(super) lost: BTreeMap<usize, u64>,
    pub(super) paths: HashMap<(Vec<u16>, Ending), Times>,
    pub(super) other_paths: Times,
    pub(super) parts: HashMap<Between, Times>,
    pub(super) first: Vec<Kept>,
    /// The slowest first.
    pub(super) slowest: Vec<Kept>,
    pub(super) turns: Vec<KeptTurn>,
}

/// Room preallocated for this many of the slowest.
const ROOM_MAX: usize = 256;

impl Tally {
    pub(super) fn new(wanted: Wanted) -> Tally {
        // One is inserted before another is removed.
        let room = wanted.slowest.min(ROOM_MAX) + 1;
        Tally {
            wanted,
            packets: 0,
            partial: 0,
            under_way: 0,
            events: 0,
            lost: BTreeMap::new(),
            paths: HashMap::new(),
            other_paths: Times::default(),
            parts: HashMap::new(),
            first: Vec::new(),
            slowest: Vec::with_capacity(room),
            turns: Vec::with_capacity(room),
        }
    }

    /// Empties the tally, but keeps its room: a run that keeps its last minute takes no more memory
    /// with the minutes.
    pub(super) fn clear(&mut self) {
        let Tally {
            wanted: _,
            packets,
            partial,
            under_way,
            events,
            lost,
            paths,
            other_paths,
            parts,
            first,
            slowest,
            turns,
        } = self;
        for count in [packets, partial, under_way, events] {
            *count = 0;
        }
        *other_paths = Times::default();
        lost.clear();
        paths.clear();
        parts.clear();
        first.clear();
        slowest.clear();
        turns.clear();
    }

    /// Whether all wanted packets are counted.
    pub(super) fn is_full(&self) -> bool {
        self.packets >= self.wanted.packets
    }

    /// Takes the way of a packet that has ended.
    pub(super) fn take(&mut self, journey: Journey, timeline: &Timeline, output: &mut impl Output) {
        if self.is_full() {
            return;
        }
        if !journey.is_whole {
            self.partial += 1;
            return;
        }
        let path = journey.path();
        let is_there = self.wanted.at.is_none_or(|place| path.contains(&place));
        let at_most_ns = journey.at_most_ns();
        if !journey.is_marked || !is_there || at_most_ns < self.wanted.above_ns {
            return;
        }
        self.packets += 1;
        output.journey(&journey);
        let parts = journey.parts();
        for part in &parts {
            self.parts.entry(part.between).or_default().add(part.to_ns - part.from_ns);
        }
        let key = (path, journey.ending);
        match self.paths.len() < PATHS_MAX || self.paths.contains_key(&key) {
            true => self.paths.entry(key).or_default().add(at_most_ns),
            false => self.other_paths.add(at_most_ns),
        }
        let is_first = self.first.len() < self.wanted.first;
        let is_slow = self.is_slow(&journey);
        if is_first || is_slow {
            self.keep(Kept { parts: explained(parts, timeline), alike: 0, journey }, is_first, is_slow);
        }
    }

    /// Whether to keep it among the slowest. One packet stands for its batch.
    fn is_slow(&mut self, journey: &Journey) -> bool {
        let ns = journey.at_most_ns();
        let is_full = self.slowest.len() == self.wanted.slowest;
        if is_full && self.slowest.last().is_none_or(|last| ns < last.journey.at_most_ns()) {
            return false;
        }
        match self.slowest.iter_mut().find(|kept| kept.is_like(journey)) {
            Some(kept) => {
                kept.alike += 1;
                false
            }
            None => is_among(&self.slowest, self.wanted.slowest, ns, |kept| kept.journey.at_most_ns()),
        }
    }

    fn keep(&mut self, kept: Kept, is_first: bool, is_slow: bool) {
        let took_ns = |kept: &Kept| kept.journey.at_most_ns();
        match (is_first, is_slow) {
            (true, true) => {
                self.first.push(kept.clone());
                insert(&mut self.slowest, self.wanted.slowest, kept, took_ns);
            }
            (true, false) => self.first.push(kept),
            (false, true) => insert(&mut self.slowest, self.wanted.slowest, kept, took_ns),
            (false, false) => {}
        }
    }

    /// Counts a slice of an lcore's time.
    pub(super) fn slice(&mut self, lcore: usize, slice: &Slice, timeline: &Timeline) {
        if slice.doing == Doing::Stolen {
            // Turns without work are not recorded, and may account for all of it.
            if timeline.awake_since_turn_ns(lcore, slice.to_ns) < slice.took_ns() {
                self.stolen(lcore, slice, timeline.last_turn_ns(lcore));
            }
            return;
        }
        let took_ns = |turn: &KeptTurn| turn.slice.took_ns();
        if slice.doing != Doing::Turn || !is_among(&self.turns, self.wanted.slowest, slice.took_ns(), took_ns) {
            return;
        }
        let did = timeline.between(lcore, slice.from_ns, slice.to_ns);
        insert(&mut self.turns, self.wanted.slowest, KeptTurn { lcore, slice: *slice, did }, took_ns);
    }
}

impl Tally {
    /// Adds the counts and the kept packets of another tally.
    pub(super) fn merge(&mut self, other: &Tally) {
        self.packets += other.packets;
        self.partial += other.partial;
        self.under_way += other.under_way;
        self.events += other.events;
        other.lost.iter().for_each(|(lcore, turns)| *self.lost.entry(*lcore).or_default() += turns);
        self.other_paths.merge(&other.other_paths);
        for (key, times) in &other.paths {
            match self.paths.len() < PATHS_MAX || self.paths.contains_key(key) {
                true => self.paths.entry(key.clone()).or_default().merge(times),
                false => self.other_paths.merge(times),
            }
        }
        other.parts.iter().for_each(|(between, times)| self.parts.entry(*between).or_default().merge(times));
        let most = self.wanted.slowest;
        for kept in &other.slowest {
            insert(&mut self.slowest, most, kept.clone(), |kept| kept.journey.at_most_ns());
        }
        other.turns.iter().for_each(|turn| insert(&mut self.turns, most, turn.clone(), |turn| turn.slice.took_ns()));
        let room = self.wanted.first.saturating_sub(self.first.len());
        self.first.extend(other.first.iter().take(room).cloned());
    }

    /// Handles time stolen from an lcore since `since_ns`, when its last turn began. Its activities
    /// then may already be kept with a turn or a packet. The stolen time is added to those that it
    /// may have lengthened.
    fn stolen(&mut self, lcore: usize, slice: &Slice, since_ns: u64) {
        let (ns, to_ns) = (slice.took_ns(), slice.to_ns);
        let may_have = |from: u64, to: u64| to.min(to_ns).saturating_sub(from.max(since_ns)) >= ns.div_ceil(2);
        for turn in self.turns.iter_mut().filter(|turn| turn.lcore == lcore) {
            if may_have(turn.slice.from_ns, turn.slice.to_ns) {
                add_stolen(&mut turn.did, ns);
            }
        }
        for kept in self.slowest.iter_mut().chain(&mut self.first) {
            let parts = kept.parts.iter_mut().filter(|(part, _)| usize::from(part.lcore) == lcore);
            let fitting = parts.filter(|(part, _)| may_have(part.from_ns, part.to_ns));
            if let Some((_, did)) = fitting.max_by_key(|(part, _)| part.to_ns - part.from_ns) {
                add_stolen(did, ns);
            }
        }
    }
}

fn add_stolen(did: &mut Vec<(Doing, u64)>, ns: u64) {
    match did.iter_mut().find(|(doing, _)| *doing == Doing::Stolen) {
        Some((_, stolen_ns)) => *stolen_ns += ns,
        None => did.push((Doing::Stolen, ns)),
    }
    did.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
}

/// Adds the activities of the lcore that each part waited for.
fn explained(parts: Vec<Part>, timeline: &Timeline) -> Vec<(Part, Vec<(Doing, u64)>)> {
    let explain = |part: Part| {
        let mut did = timeline.between(usize::from(part.lcore), part.from_ns, part.to_ns);
        if let Between::InStage(place) = part.between {
            // The call of the stage that the packet is in needs no mention.
            did.retain(|(doing, _)| doing.stage() != Some(place));
        }
        (part, did)
    };
    parts.into_iter().map(explain).collect()
}

/// Whether a time of `ns` belongs to the `most` longest.
fn is_among<T>(kept: &[T], most: usize, ns: u64, of: impl Fn(&T) -> u64) -> bool {
    kept.len() < most || kept.last().is_some_and(|last| of(last) < ns)
}

fn insert<T>(kept: &mut Vec<T>, most: usize, one: T, of: impl Fn(&T) -> u64) {
    let at = kept.partition_point(|other| of(other) >= of(&one));
    kept.insert(at, one);
    kept.truncate(most);
}

#[cfg(test)]
mod tests {
    use verbline_engine::{TraceEvent, TraceKind};

    use super::*;
    use crate::trace::journey::Step;

    /// A packet that came at `from_ns`, and was in a stage for `took_ns`.
    fn journey(from_ns: u64, took_ns: u64) -> Journey {
        let steps = vec![Step { kind: TraceKind::Entered, place: 3, lcore: 0, at_ns: from_ns }];
        let (returned_ns, ending) = (Some(from_ns + took_ns), Ending::InStage);
        Journey { steps, waited_ns: 0, is_marked: true, is_whole: true, returned_ns, ending }
    }

    fn tally(packets: u64) -> Tally {
        Tally::new(Wanted { at: None, above_ns: 0, packets, first: 0, slowest: 2, last_ns: None })
    }

    #[test]
    fn one_of_a_batch_is_kept_among_the_slowest_and_counts_the_others() {
        let (mut tally, timeline) = (tally(u64::MAX), Timeline::new(1));
        for (from_ns, took_ns) in [(0, 90), (100, 50), (100, 50), (100, 40), (200, 50), (300, 70), (100, 10)] {
            tally.take(journey(from_ns, took_ns), &timeline, &mut ());
        }
        let kept: Vec<_> = tally.slowest.iter().map(|kept| (kept.journey.from_ns(), kept.alike)).collect();
        assert_eq!(kept, [(0, 0), (300, 0)], "the batch of 100 gave way to a slower one");
        tally.take(journey(300, 70), &timeline, &mut ());
        assert_eq!((tally.slowest[1].alike, tally.packets), (1, 8));
    }

    #[test]
    fn nothing_is_counted_behind_the_packets_that_are_wanted() {
        let (mut tally, timeline) = (tally(2), Timeline::new(1));
        (0..5).for_each(|at| tally.take(journey(at, 10), &timeline, &mut ()));
        assert_eq!((tally.packets, tally.slowest.len(), tally.is_full()), (2, 2, true));
    }

    /// Stolen time reported at the beginning of a turn belongs to the turn before, or to turns
    /// without work between the two.
    #[test]
    fn a_turn_has_no_more_stolen_from_it_than_it_took() {
        let (mut tally, mut timeline) = (tally(u64::MAX), Timeline::new(1));
        let mut note = |kind, at_ns, value| {
            let event = TraceEvent::new(kind, at_ns, 0, value);
            timeline.note(0, &event).into_iter().for_each(|slice| tally.slice(0, &slice, &timeline));
        };
        note(TraceKind::Turn, 1_000, 0);
        note(TraceKind::TurnEnd, 9_000, 0);
        note(TraceKind::Stolen, 9_010, 7_000);
        // In a turn without work, and while asleep.
        note(TraceKind::Stolen, 20_000, 8_000);
        note(TraceKind::Asleep, 60_000, 40_000);
        note(TraceKind::Stolen, 70_000, 9_000);
        assert_eq!(tally.turns[0].did, [(Doing::Stolen, 7_000)]);
    }

    #[test]
    fn times_without_the_cpu_add_up_and_stand_where_their_length_is() {
        let mut did = vec![(Doing::Poll { place: 1 }, 40)];
        [30, 1, 20].into_iter().for_each(|ns| add_stolen(&mut did, ns));
        assert_eq!(did, [(Doing::Stolen, 51), (Doing::Poll { place: 1 }, 40)]);
    }
}
