//! The events of several lcores in the order of their times.
//!
//! A turn's events arrive at its end, possibly after later events of another lcore. To show a
//! packet's steps on one lcore before those on the next, both lcores' events wait for a while.

use std::collections::VecDeque;

use verbline_engine::{TraceEvent, TraceKind};

/// The time to wait: between a push and the end of its turn an lcore may be kept from its CPU.
const HOLD_NS: u64 = 20_000_000;

#[derive(Debug)]
pub(super) struct Merge {
    lanes: Vec<VecDeque<TraceEvent>>,
    waiting: usize,
    /// The most events that wait. With more, the first go on, though earlier ones may still arrive.
    waiting_max: usize,
    /// Events up to this time go on.
    until_ns: u64,
}

impl Merge {
    pub(super) fn new(lcores: usize, waiting_max: usize) -> Merge {
        Merge { lanes: vec![VecDeque::new(); lcores], waiting: 0, waiting_max, until_ns: 0 }
    }

    /// Allocates and touches the memory of all events that may wait.
    pub(super) fn with_memory(lcores: usize, waiting_max: usize) -> Merge {
        let mut merge = Merge::new(lcores, waiting_max);
        for lane in &mut merge.lanes {
            lane.resize(waiting_max + 1, TraceEvent::new(TraceKind::Now, 0, 0, 0));
            lane.clear();
        }
        merge
    }

    pub(super) fn add(&mut self, lcore: usize, event: TraceEvent) {
        if let Some(lane) = self.lanes.get_mut(lcore) {
            lane.push_back(event);
            self.waiting += 1;
        }
    }

    /// Called when everything up to this time has arrived.
    pub(super) fn has_all_until(&mut self, now_ns: u64) {
        self.until_ns = self.until_ns.max(now_ns.saturating_sub(HOLD_NS));
    }

    /// Called at the end of the events.
    pub(super) fn has_all(&mut self) {
        self.until_ns = u64::MAX;
    }

    /// Called when nothing waits, and more events will arrive after all.
    pub(super) fn go_on(&mut self) {
        self.until_ns = 0;
    }

    /// The time up to which all events have gone on.
    pub(super) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// The next event; `None` if an earlier one may still arrive.
    pub(super) fn next(&mut self) -> Option<(usize, TraceEvent)> {
        let fronts = self.lanes.iter().enumerate().filter_map(|(lcore, lane)| Some((lcore, lane.front()?)));
        // Of two events at the same time, the pop comes after the push on the other lcore.
        let order = |(_, event): &(usize, &TraceEvent)| (event.at_ns, event.kind() == Some(TraceKind::Popped));
        let (lcore, first) = fronts.min_by_key(order)?;
        if first.at_ns > self.until_ns && self.waiting <= self.waiting_max {
            return None;
        }
        self.waiting -= 1;
        self.lanes[lcore].pop_front().map(|event| (lcore, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_ns: u64) -> TraceEvent {
        TraceEvent::new(TraceKind::Turn, at_ns, 0, 0)
    }

    #[test]
    fn events_go_on_in_the_order_of_their_times_once_no_earlier_one_can_come() {
        let mut merge = Merge::new(2, 9);
        merge.add(1, at(30));
        merge.add(1, at(50));
        assert_eq!(merge.next(), None);
        merge.has_all_until(HOLD_NS + 40);
        merge.add(0, at(20));
        assert_eq!([merge.next(), merge.next(), merge.next()], [Some((0, at(20))), Some((1, at(30))), None]);
        merge.has_all_until(HOLD_NS + 35);
        assert_eq!(merge.next(), None, "it never goes back");
        merge.add(9, at(1));
        merge.has_all();
        assert_eq!([merge.next(), merge.next()], [Some((1, at(50))), None]);
    }

    #[test]
    fn at_the_same_time_a_packet_is_pushed_before_it_is_popped() {
        let mut merge = Merge::new(2, 9);
        let [popped, pushed] =
            [TraceKind::Popped, TraceKind::Pushed].map(|kind| TraceEvent::of_packet(kind, 7, 1, 3, true));
        merge.add(0, popped);
        merge.add(1, pushed);
        merge.has_all();
        assert_eq!([merge.next(), merge.next()], [Some((1, pushed)), Some((0, popped))]);
    }

    #[test]
    fn beyond_those_that_may_wait_the_first_goes_on_and_no_more_memory_is_taken() {
        let mut merge = Merge::with_memory(1, 2);
        let capacity = merge.lanes[0].capacity();
        for at_ns in 1..100 {
            merge.add(0, at(at_ns));
            assert_eq!(merge.next(), at_ns.checked_sub(2).filter(|ns| *ns > 0).map(|ns| (0, at(ns))));
        }
        assert_eq!(merge.lanes[0].capacity(), capacity);
        merge.has_all();
        assert_eq!([merge.next(), merge.next(), merge.next()], [Some((0, at(98))), Some((0, at(99))), None]);
        merge.go_on();
        merge.add(0, at(100));
        assert_eq!(merge.next(), None, "it waits again");
    }
}
