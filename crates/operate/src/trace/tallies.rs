//! The tally of a whole trace, or of its last time only. The latter is kept in slices of that time;
//! the oldest is dropped as a new one begins.
//!
//! Guarantees: the memory is bounded, however long a trace lasts.

use std::collections::VecDeque;

use super::tally::{Tally, Wanted};
use super::timeline::{Doing, Output, Slice, Timeline};

/// Slices of the last time. Results are kept for that time, and for up to a slice longer.
pub(crate) const SLICES: u64 = 12;

#[derive(Debug)]
pub(super) struct Tallies {
    wanted: Wanted,
    /// The oldest first, each with its beginning.
    slices: VecDeque<(u64, Tally)>,
    /// Ended slices for reuse. For a last time, all are allocated at the start.
    spare: Vec<Tally>,
}

impl Tallies {
    pub(super) fn new(wanted: Wanted) -> Tallies {
        let others = if wanted.last_ns.is_some() { SLICES + 1 } else { 0 };
        let spare = (0..others).map(|_| Tally::new(wanted)).collect();
        Tallies { wanted, slices: VecDeque::from([(0, Tally::new(wanted))]), spare }
    }

    /// Whether only the last time is kept.
    pub(super) fn is_of_last(&self) -> bool {
        self.wanted.last_ns.is_some()
    }

    /// Moves on to the slice of this time.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let Some(last_ns) = self.wanted.last_ns else { return };
        let Some((from_ns, _)) = self.slices.back() else { return };
        if now_ns < from_ns.saturating_add((last_ns / SLICES).max(1)) {
            return;
        }
        // A slice whose successor began before the last time holds nothing of it.
        let is_over = |slices: &VecDeque<(u64, Tally)>| slices.get(1).is_some_and(|(next, _)| next + last_ns < now_ns);
        while is_over(&self.slices) {
            self.spare.extend(self.slices.pop_front().map(|(_, mut tally)| {
                tally.clear();
                tally
            }));
        }
        let fresh = self.spare.pop().unwrap_or_else(|| Tally::new(self.wanted));
        self.slices.push_back((now_ns, fresh));
    }

    /// The current slice's tally.
    pub(super) fn now(&mut self) -> &mut Tally {
        if self.slices.is_empty() {
            self.slices.push_back((0, Tally::new(self.wanted)));
        }
        let last = self.slices.len() - 1;
        &mut self.slices[last].1
    }

    /// Counts a slice of an lcore's time.
    pub(super) fn slice(&mut self, lcore: usize, slice: &Slice, timeline: &Timeline) {
        match slice.doing {
            // The turn or packet that it lengthened may have been counted in an earlier slice.
            Doing::Stolen => self.slices.iter_mut().for_each(|(_, tally)| tally.slice(lcore, slice, timeline)),
            _ => self.now().slice(lcore, slice, timeline),
        }
    }

    /// Takes the way of a packet that has ended.
    pub(super) fn take(&mut self, journey: super::journey::Journey, timeline: &Timeline, output: &mut impl Output) {
        self.now().take(journey, timeline, output);
    }

    /// All tallies as one, with the time since when it counts.
    pub(super) fn merged(&self) -> (u64, Tally) {
        let mut merged = Tally::new(self.wanted);
        self.slices.iter().for_each(|(_, tally)| merged.merge(tally));
        (self.slices.front().map_or(0, |(from_ns, _)| *from_ns), merged)
    }

    /// The wanted packets of all slices.
    pub(super) fn packets(&self) -> u64 {
        self.slices.iter().map(|(_, tally)| tally.packets).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::journey::{Ending, Journey, Step};
    use super::*;
    use verbline_engine::TraceKind;

    const WANTED: Wanted =
        Wanted { at: None, above_ns: 0, packets: u64::MAX, first: 0, slowest: 2, last_ns: Some(1_200) };

    fn took(from_ns: u64, took_ns: u64) -> Journey {
        let steps = vec![Step { kind: TraceKind::Entered, place: 3, lcore: 0, at_ns: from_ns }];
        let (returned_ns, ending) = (Some(from_ns + took_ns), Ending::InStage);
        Journey { steps, waited_ns: 0, is_marked: true, is_whole: true, returned_ns, ending }
    }

    #[test]
    fn the_slowest_of_the_last_time_are_kept_and_those_before_it_go() {
        let (mut tallies, timeline) = (Tallies::new(WANTED), Timeline::new(1));
        let mut take = |at_ns: u64, took_ns: u64| {
            tallies.advance(at_ns);
            tallies.take(took(at_ns, took_ns), &timeline, &mut ());
            let (from_ns, merged) = tallies.merged();
            let slowest: Vec<u64> = merged.slowest.iter().map(|kept| kept.journey.took_ns()).collect();
            assert_eq!((slowest.len() as u64).min(2), merged.packets.min(2));
            (from_ns, merged.packets, slowest)
        };
        assert_eq!(take(10_000, 900), (0, 1, vec![900]));
        assert_eq!(take(10_100, 5), (0, 2, vec![900, 5]));
        assert_eq!(take(11_000, 700), (0, 3, vec![900, 700]));
        // A part of the slice that began at 10,000 still counts.
        assert_eq!(take(11_250, 6), (10_000, 4, vec![900, 700]));
        assert_eq!(take(11_350, 7), (10_100, 4, vec![700, 7]), "the slowest is over a time ago");
        assert_eq!(take(20_000, 3), (11_350, 2, vec![7, 3]), "its end is not known to be over");
    }

    #[test]
    fn without_a_last_time_all_is_kept() {
        let (mut tallies, timeline) = (Tallies::new(Wanted { last_ns: None, ..WANTED }), Timeline::new(1));
        for at_ns in [5, 50_000, 900_000_000] {
            tallies.advance(at_ns);
            tallies.take(took(at_ns, 9), &timeline, &mut ());
        }
        assert_eq!((tallies.packets(), tallies.merged().1.packets), (3, 3));
    }
}
