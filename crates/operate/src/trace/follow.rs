//! Follows packets through the graph: from events in the order of their times it makes the way of
//! each packet.
//!
//! A packet is known by its buffer. So its way ends when its buffer is seen in a place that the
//! packet can't have reached: that is another packet.

use std::collections::HashMap;

use verbline_engine::{TraceEvent, TraceKind};

use super::journey::{Ending, Journey, Step};

/// A packet left in a stage for this long is given up.
const LEFT_NS: u64 = 100_000_000;

#[derive(Debug)]
pub(super) struct Follower {
    followed: HashMap<u32, Journey>,
    /// The most packets followed at once.
    followed_max: usize,
    lcores: Vec<Lane>,
    /// By place: whether it is an injector, through which packets enter the graph.
    is_injector: Vec<bool>,
    settled_ns: u64,
    /// Some lcore has not recorded everything.
    has_gaps: bool,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    /// The longest time that packets received in this turn had waited.
    waited_ns: u64,
    /// The packets of the stage's current call.
    entered: Vec<u32>,
}

impl Follower {
    pub(super) fn new(lcores: usize, is_injector: Vec<bool>, followed_max: usize) -> Follower {
        let (followed, lcores) = (HashMap::new(), vec![Lane::default(); lcores]);
        Follower { followed, followed_max, lcores, is_injector, settled_ns: 0, has_gaps: false }
    }

    /// Allocates and touches the memory of all packets that may be followed at once.
    pub(super) fn with_memory(lcores: usize, is_injector: Vec<bool>, followed_max: usize) -> Follower {
        let mut followed = HashMap::with_capacity(followed_max);
        followed.extend((0..followed_max as u32).map(|packet| (packet, Journey::none())));
        followed.clear();
        Follower { followed, ..Follower::new(lcores, is_injector, followed_max) }
    }

    /// Takes the next event. Hands each packet whose way has ended by it to `ended`.
    pub(super) fn note(&mut self, lcore: usize, event: &TraceEvent, ended: &mut impl FnMut(Journey)) {
        let (Some(kind), Some(lane)) = (event.kind(), self.lcores.get_mut(lcore)) else { return };
        match kind {
            TraceKind::Turn => lane.waited_ns = event.value(),
            TraceKind::Process | TraceKind::Poll => lane.entered.clear(),
            TraceKind::Return => self.returned(lcore, event.place(), event.at_ns),
            TraceKind::Rests => self.cut(ended),
            kind if kind.is_of_packet() => self.step(lcore, kind, event, ended),
            _ => {}
        }
    }

    fn step(&mut self, lcore: usize, kind: TraceKind, event: &TraceEvent, ended: &mut impl FnMut(Journey)) {
        let step = Step { kind, place: event.place(), lcore: lcore as u16, at_ns: event.at_ns };
        let packet = event.packet();
        if kind == TraceKind::Entered {
            self.lcores[lcore].entered.push(packet);
        }
        match self.followed.get_mut(&packet) {
            Some(journey) if journey.leads_to(&step) => {
                journey.is_marked |= event.is_marked();
                journey.add(step);
            }
            _ => self.begin(lcore, packet, step, event.is_marked(), ended),
        }
        let ending = match kind {
            TraceKind::Posted => Ending::Posted,
            TraceKind::Dropped => Ending::Dropped,
            _ => return,
        };
        if let Some(journey) = self.followed.remove(&packet) {
            ended(Journey { ending, ..journey });
        }
    }

    fn begin(&mut self, lcore: usize, packet: u32, step: Step, is_marked: bool, ended: &mut impl FnMut(Journey)) {
        let is_injected = self.is_injector.get(usize::from(step.place)).copied().unwrap_or(false);
        let is_whole = match step.kind {
            TraceKind::Received | TraceKind::Sent => true,
            TraceKind::Popped => is_injected,
            _ => false,
        };
        let waited_ns = match step.kind {
            TraceKind::Received | TraceKind::Popped => self.lcores[lcore].waited_ns,
            _ => 0,
        };
        if self.followed.len() >= self.followed_max {
            self.followed.drain().for_each(|(_, journey)| ended(finished(journey, self.has_gaps)));
        }
        let before = self.followed.insert(packet, Journey::new(step, waited_ns, is_marked, is_whole));
        before.into_iter().for_each(|journey| ended(finished(journey, self.has_gaps)));
    }

    /// Handles a stage's return: packets of the call that it has not sent are left in it.
    fn returned(&mut self, lcore: usize, place: u16, at_ns: u64) {
        let entered = std::mem::take(&mut self.lcores[lcore].entered);
        for packet in &entered {
            let Some(journey) = self.followed.get_mut(packet) else { continue };
            let is_left = |step: &Step| step.kind == TraceKind::Entered && step.place == place;
            if journey.steps.last().is_some_and(is_left) {
                journey.returned_ns = Some(at_ns);
            }
        }
        self.lcores[lcore].entered = entered;
        self.lcores[lcore].entered.clear();
    }

    /// Ends the ways of packets that have been left in a stage for too long.
    pub(super) fn settle(&mut self, now_ns: u64, ended: &mut impl FnMut(Journey)) {
        if now_ns.saturating_sub(self.settled_ns) < LEFT_NS {
            return;
        }
        self.settled_ns = now_ns;
        let is_over = |journey: &Journey| journey.returned_ns.is_some_and(|left_ns| left_ns + LEFT_NS < now_ns);
        let over: Vec<u32> =
            self.followed.iter().filter(|(_, journey)| is_over(journey)).map(|(packet, _)| *packet).collect();
        over.iter()
            .filter_map(|packet| self.followed.remove(packet))
            .for_each(|journey| ended(finished(journey, self.has_gaps)));
    }

    /// Ends all ways, because an lcore stops recording: what becomes of packets in flight is
    /// unknown, and their buffers may come again with other packets. They count as partly seen.
    pub(super) fn cut(&mut self, ended: &mut impl FnMut(Journey)) {
        self.has_gaps = true;
        self.followed.drain().for_each(|(_, journey)| ended(finished(journey, true)));
    }

    /// Ends the ways of packets left in a stage, at the end of the events. Returns the number of
    /// other packets, which are still in flight.
    pub(super) fn finish(&mut self, ended: &mut impl FnMut(Journey)) -> u64 {
        let mut under_way = 0;
        for (_, journey) in self.followed.drain() {
            match journey.returned_ns {
                Some(_) => ended(finished(journey, self.has_gaps)),
                None => under_way += 1,
            }
        }
        under_way
    }
}

/// Ends the way of a packet whose buffer now holds another packet. If not everything was recorded,
/// a packet that was not seen again may have gone on.
fn finished(journey: Journey, has_gaps: bool) -> Journey {
    match journey.returned_ns {
        Some(_) => Journey { ending: Ending::InStage, ..journey },
        None => Journey { ending: Ending::Unseen, is_whole: journey.is_whole && !has_gaps, ..journey },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGE: u16 = 0;
    const PORT: u16 = 1;
    const RING: u16 = 2;

    struct Told {
        follower: Follower,
        ended: Vec<Journey>,
        now_ns: u64,
    }

    impl Told {
        fn new() -> Told {
            Told { follower: Follower::new(2, vec![false; 3], 9), ended: Vec::new(), now_ns: 0 }
        }

        fn note(&mut self, lcore: usize, event: TraceEvent) {
            self.follower.note(lcore, &event, &mut |journey| self.ended.push(journey));
        }

        fn packet(&mut self, lcore: usize, kind: TraceKind, place: u16, packet: u32) {
            self.now_ns += 10;
            self.note(lcore, TraceEvent::of_packet(kind, self.now_ns, place, packet, true));
        }

        fn other(&mut self, kind: TraceKind, place: u16, value: u64) {
            self.now_ns += 10;
            self.note(0, TraceEvent::new(kind, self.now_ns, place, value));
        }
    }

    #[test]
    fn a_packet_is_followed_from_port_to_port_over_two_lcores() {
        let mut told = Told::new();
        told.other(TraceKind::Turn, 0, 5);
        told.packet(0, TraceKind::Received, PORT, 7);
        told.packet(0, TraceKind::Pushed, RING, 7);
        told.packet(1, TraceKind::Popped, RING, 7);
        told.packet(1, TraceKind::Entered, STAGE, 7);
        told.packet(1, TraceKind::Sent, STAGE, 7);
        told.packet(1, TraceKind::Posted, PORT, 7);
        let [journey] = &told.ended[..] else { panic!("{:?}", told.ended) };
        assert_eq!((journey.ending, journey.path()), (Ending::Posted, vec![PORT, RING, STAGE, PORT]));
        assert_eq!((journey.took_ns(), journey.at_most_ns(), journey.is_whole), (50, 55, true));
        let sum: u64 = journey.parts().iter().map(|part| part.to_ns - part.from_ns).sum();
        assert_eq!(sum, 55, "its parts are all of its time");
    }

    #[test]
    fn a_buffer_that_comes_again_is_another_packet() {
        let mut told = Told::new();
        for _ in 0..2 {
            told.packet(0, TraceKind::Received, PORT, 7);
            told.other(TraceKind::Process, STAGE, 1);
            told.packet(0, TraceKind::Entered, STAGE, 7);
            told.other(TraceKind::Return, STAGE, 0);
        }
        assert_eq!(told.ended.len(), 1);
        assert_eq!(told.follower.finish(&mut |journey| told.ended.push(journey)), 0);
        for journey in &told.ended {
            assert_eq!((journey.ending, journey.took_ns(), journey.path()), (Ending::InStage, 30, vec![PORT, STAGE]));
        }
        told.packet(0, TraceKind::Received, PORT, 8);
        told.packet(0, TraceKind::Sent, STAGE, 8);
        assert_eq!(told.ended.last().map(|journey| journey.ending), Some(Ending::Unseen), "it was not in that stage");
        assert_eq!(told.follower.finish(&mut |_| panic!("none is left in a stage")), 1);
    }

    #[test]
    fn a_packet_under_way_as_an_lcore_rests_is_not_the_one_that_comes_later_in_its_buffer() {
        let mut told = Told::new();
        for packet in [7, 8] {
            told.packet(0, TraceKind::Received, PORT, packet);
        }
        told.packet(0, TraceKind::Pushed, RING, 7);
        told.packet(0, TraceKind::Entered, STAGE, 8);
        told.other(TraceKind::Return, STAGE, 0);
        told.other(TraceKind::Rests, 0, 0);
        let mut seen: Vec<_> = told.ended.iter().map(|journey| (journey.is_whole, journey.ending)).collect();
        seen.sort_by_key(|(is_whole, _)| *is_whole);
        assert_eq!(seen, [(false, Ending::Unseen), (true, Ending::InStage)], "one is cut off, one is left in a stage");
        told.packet(1, TraceKind::Popped, RING, 7);
        told.packet(1, TraceKind::Posted, PORT, 7);
        let last = told.ended.last().expect("it was posted");
        assert_eq!((last.is_whole, last.path()), (false, vec![RING, PORT]));
    }

    #[test]
    fn a_stage_may_keep_a_packet_for_a_while_and_send_it_later() {
        let mut told = Told::new();
        told.packet(0, TraceKind::Received, PORT, 7);
        told.packet(0, TraceKind::Entered, STAGE, 7);
        told.other(TraceKind::Return, STAGE, 0);
        told.follower.settle(LEFT_NS, &mut |_| panic!("it may come yet"));
        told.now_ns += 1_000;
        told.packet(0, TraceKind::Sent, STAGE, 7);
        told.packet(0, TraceKind::Posted, PORT, 7);
        assert_eq!((told.ended[0].ending, told.ended[0].took_ns()), (Ending::Posted, 1_040));
        told.packet(0, TraceKind::Received, PORT, 8);
        told.packet(0, TraceKind::Entered, STAGE, 8);
        told.other(TraceKind::Return, STAGE, 0);
        told.follower.settle(3 * LEFT_NS, &mut |journey| told.ended.push(journey));
        assert_eq!(told.ended[1].ending, Ending::InStage);
    }
}
