//! Turns a trace's events into slices of the lcores' time, ways of packets, and their summary.

use verbline_engine::{TraceEvent, TraceKind};

use super::follow::Follower;
use super::merge::Merge;
use super::summary::{self, Summary};
use super::tallies::Tallies;
use super::tally::Wanted;
use super::timeline::{Output, Timeline};
use crate::protocol::TraceHead;

/// The most events that wait for earlier ones, and the most packets followed at once.
const WAITING_MAX: usize = 4 << 20;
const FOLLOWED_MAX: usize = 1 << 20;

/// The same limits for an analysis with preallocated memory: per lcore as many events as its
/// recorder may hand out at once.
const KEPT_WAITING_MAX: usize = 65_536;
const KEPT_FOLLOWED_MAX: usize = 16_384;

/// Takes the events of a trace as they come.
#[derive(Debug)]
pub struct Analysis {
    head: TraceHead,
    merge: Merge,
    timeline: Timeline,
    follower: Follower,
    tallies: Tallies,
    /// The turns that each lcore has lost since the trace began.
    lost: Vec<u64>,
    /// The times of the first event and of the last.
    from_ns: Option<u64>,
    to_ns: u64,
}

impl Analysis {
    /// The analysis of a trace that has begun.
    pub fn new(head: TraceHead, wanted: Wanted) -> Analysis {
        let lcores = head.lcores.len();
        Analysis {
            merge: Merge::new(lcores, WAITING_MAX),
            timeline: Timeline::new(lcores),
            follower: Follower::new(lcores, injectors(&head), FOLLOWED_MAX),
            tallies: Tallies::new(wanted),
            lost: vec![0; lcores],
            from_ns: None,
            to_ns: 0,
            head,
        }
    }

    /// An analysis that lasts: its bounded memory for waiting events and followed packets is
    /// allocated now.
    pub(crate) fn with_memory(head: TraceHead, wanted: Wanted) -> Analysis {
        let lcores = head.lcores.len();
        Analysis {
            merge: Merge::with_memory(lcores, KEPT_WAITING_MAX),
            timeline: Timeline::with_memory(lcores),
            follower: Follower::with_memory(lcores, injectors(&head), KEPT_FOLLOWED_MAX),
            ..Analysis::new(head, wanted)
        }
    }

    /// Takes an event of an lcore.
    pub fn add(&mut self, lcore: usize, event: TraceEvent, output: &mut impl Output) {
        match event.kind() {
            Some(TraceKind::Now) => self.merge.has_all_until(event.at_ns),
            Some(TraceKind::Lost) => self.lose(lcore, event.value()),
            _ => self.merge.add(lcore, event),
        }
        self.advance(output);
    }

    /// Called when the trace has ended and another of the same run will begin. Ends the ways of
    /// packets in flight.
    pub(crate) fn pause(&mut self) {
        self.merge.has_all();
        self.advance(&mut ());
        self.merge.go_on();
        let Analysis { follower, timeline, tallies, .. } = self;
        follower.cut(&mut |journey| tallies.take(journey, timeline, &mut ()));
        self.lost.fill(0);
    }

    /// Notes that an lcore has lost this many turns since the trace began.
    fn lose(&mut self, lcore: usize, turns: u64) {
        let Some(told) = self.lost.get_mut(lcore) else { return };
        let more = turns.saturating_sub(std::mem::replace(told, turns));
        *self.tallies.now().lost.entry(lcore).or_default() += more;
    }

    /// Called at the end of the events. Returns the summary.
    pub fn finish(&mut self, output: &mut impl Output) -> Summary {
        self.merge.has_all();
        self.advance(output);
        let Analysis { timeline, follower, tallies, .. } = self;
        let is_full = tallies.now().is_full();
        let under_way = follower.finish(&mut |journey| tallies.take(journey, timeline, output));
        tallies.now().under_way = if is_full { 0 } else { under_way };
        self.summary()
    }

    /// The results so far.
    pub fn summary(&self) -> Summary {
        let (since_ns, tally) = self.tallies.merged();
        summary::of(&self.head, &tally, self.elapsed_ns(since_ns))
    }

    /// The number of wanted packets whose ways have ended.
    pub fn packets(&self) -> u64 {
        self.tallies.packets()
    }

    fn elapsed_ns(&self, since_ns: u64) -> u64 {
        self.from_ns.map_or(0, |from_ns| self.to_ns.saturating_sub(from_ns.max(since_ns)))
    }

    fn advance(&mut self, output: &mut impl Output) {
        let Analysis { merge, timeline, follower, tallies, .. } = self;
        while let Some((lcore, event)) = merge.next() {
            self.from_ns.get_or_insert(event.at_ns);
            tallies.advance(event.at_ns);
            tallies.now().events += 1;
            if !tallies.now().is_full() {
                self.to_ns = self.to_ns.max(event.at_ns);
            }
            if let Some(slice) = timeline.note(lcore, &event) {
                output.slice(lcore, &slice);
                tallies.slice(lcore, &slice, timeline);
            }
            let mut ended = |journey| tallies.take(journey, timeline, output);
            follower.note(lcore, &event, &mut ended);
            follower.settle(event.at_ns, &mut ended);
        }
        self.pass_time();
    }

    /// Lets old results expire even while nothing happens.
    fn pass_time(&mut self) {
        let until_ns = self.merge.until_ns();
        if self.tallies.is_of_last() && until_ns > 0 && until_ns < u64::MAX {
            self.tallies.advance(until_ns);
            self.from_ns.get_or_insert(until_ns);
            self.to_ns = self.to_ns.max(until_ns);
        }
    }
}

/// By place: whether it is an injector.
fn injectors(head: &TraceHead) -> Vec<bool> {
    head.places.iter().map(|place| place.name.starts_with("injector.")).collect()
}
