//! Makes of a trace's events slices of the lcores' time, ways of packets, and their summary.

use verbline_engine::{TraceEvent, TraceKind};

use super::follow::Follower;
use super::merge::Merge;
use super::output::Output;
use super::summary::{self, Summary};
use super::tallies::Tallies;
use super::tally::Wanted;
use super::timeline::Timeline;
use crate::protocol::TraceHead;

/// Takes the events of a trace as they come.
#[derive(Debug)]
pub struct Analysis {
    head: TraceHead,
    merge: Merge,
    timeline: Timeline,
    follower: Follower,
    tallies: Tallies,
    lost: Vec<u64>,
    events: u64,
    /// The times of the first event and of the last.
    from_ns: Option<u64>,
    to_ns: u64,
}

impl Analysis {
    /// Of a trace that has begun.
    pub fn new(head: TraceHead, wanted: Wanted) -> Analysis {
        let lcores = head.lcores.len();
        let is_injector = head.places.iter().map(|place| place.name.starts_with("injector.")).collect();
        Analysis {
            merge: Merge::new(lcores),
            timeline: Timeline::new(lcores),
            follower: Follower::new(lcores, is_injector),
            tallies: Tallies::new(wanted),
            lost: vec![0; lcores],
            events: 0,
            from_ns: None,
            to_ns: 0,
            head,
        }
    }

    /// Takes an event of an lcore.
    pub fn add(&mut self, lcore: usize, event: TraceEvent, output: &mut impl Output) {
        match event.kind() {
            Some(TraceKind::Now) => self.merge.has_all_until(event.at_ns),
            Some(TraceKind::Lost) => self.lost.iter_mut().skip(lcore).take(1).for_each(|lost| *lost = event.value()),
            _ => self.merge.add(lcore, event),
        }
        self.advance(output);
    }

    /// No more will come.
    pub fn finish(&mut self, output: &mut impl Output) -> Summary {
        self.merge.has_all();
        self.advance(output);
        let Analysis { timeline, follower, tallies, .. } = self;
        let is_full = tallies.now().is_full();
        let under_way = follower.finish(&mut |journey| tallies.take(journey, timeline, output));
        tallies.now().under_way = if is_full { 0 } else { under_way };
        self.summary()
    }

    /// What it has found so far.
    pub fn summary(&self) -> Summary {
        let (since_ns, tally) = self.tallies.merged();
        summary::of(&self.head, &tally, &self.lost, self.events, self.elapsed_ns(since_ns))
    }

    /// How many packets that are wanted have come to their ends.
    pub fn packets(&self) -> u64 {
        self.tallies.packets()
    }

    fn elapsed_ns(&self, since_ns: u64) -> u64 {
        self.from_ns.map_or(0, |from_ns| self.to_ns.saturating_sub(from_ns.max(since_ns)))
    }

    fn advance(&mut self, output: &mut impl Output) {
        let Analysis { merge, timeline, follower, tallies, .. } = self;
        while let Some((lcore, event)) = merge.next() {
            self.events += 1;
            self.from_ns.get_or_insert(event.at_ns);
            tallies.advance(event.at_ns);
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
    }
}
