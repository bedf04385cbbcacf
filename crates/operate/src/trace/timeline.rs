//! The lcores' activities over time: turns, calls of stages, sleeps, and times in which they were
//! kept from their CPUs. The latest are kept, to tell what an lcore did while a packet waited for
//! it.

use std::collections::VecDeque;

use verbline_engine::{TraceEvent, TraceKind};

use super::journey::Journey;

/// The number of slices kept per lcore.
const RECENT_MAX: usize = 16_384;

/// An activity of an lcore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// A turn that found work: the calls in it are slices of their own.
    Turn,
    /// A call of a stage with packets.
    Process {
        /// The stage's place.
        place: u16,
        /// The number of packets.
        packets: u64,
    },
    /// A poll of a stage.
    Poll {
        /// The stage's place.
        place: u16,
    },
    /// Sleep.
    Asleep {
        /// The cause of its end.
        cause: &'static str,
    },
    /// The lcore was kept from its CPU. The exact time is unknown: it found out at the end of the
    /// slice.
    Stolen,
}

impl Doing {
    /// The place of the stage that was called.
    pub fn stage(self) -> Option<u16> {
        match self {
            Doing::Process { place, .. } | Doing::Poll { place } => Some(place),
            Doing::Turn | Doing::Asleep { .. } | Doing::Stolen => None,
        }
    }
}

/// An activity of an lcore, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The activity.
    pub doing: Doing,
    /// The beginning, by the run's clock.
    pub from_ns: u64,
    /// The end.
    pub to_ns: u64,
}

impl Slice {
    /// Its length.
    pub fn took_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Timeline {
    lcores: Vec<Lane>,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    recent: VecDeque<Slice>,
    turn_ns: Option<u64>,
    /// The beginning and the end of the last turn that found work.
    last_turn_ns: u64,
    last_end_ns: u64,
    call: Option<(Doing, u64)>,
}

impl Timeline {
    pub(super) fn new(lcores: usize) -> Timeline {
        Timeline { lcores: vec![Lane::default(); lcores] }
    }

    /// Allocates and touches the memory of all slices that are kept.
    pub(super) fn with_memory(lcores: usize) -> Timeline {
        let mut timeline = Timeline::new(lcores);
        for lane in &mut timeline.lcores {
            lane.recent.resize(RECENT_MAX, Slice { doing: Doing::Turn, from_ns: 0, to_ns: 0 });
            lane.recent.clear();
        }
        timeline
    }

    /// Takes the next event of an lcore. Returns the slice that ends with it.
    pub(super) fn note(&mut self, lcore: usize, event: &TraceEvent) -> Option<Slice> {
        let lane = self.lcores.get_mut(lcore)?;
        let ended = lane.ended(event)?;
        if ended.doing != Doing::Turn {
            if lane.recent.len() == RECENT_MAX {
                lane.recent.pop_front();
            }
            lane.recent.push_back(ended);
        }
        Some(ended)
    }

    /// The beginning of the lcore's last turn that found work.
    pub(super) fn last_turn_ns(&self, lcore: usize) -> u64 {
        self.lcores.get(lcore).map_or(0, |lane| lane.last_turn_ns)
    }

    /// The time that the lcore was awake from the end of that turn until `at_ns`.
    pub(super) fn awake_since_turn_ns(&self, lcore: usize, at_ns: u64) -> u64 {
        let end_ns = self.lcores.get(lcore).map_or(0, |lane| lane.last_end_ns);
        let did = self.between(lcore, end_ns, at_ns).into_iter();
        let asleep_ns = did.filter(|(doing, _)| matches!(doing, Doing::Asleep { .. })).map(|(_, ns)| ns).sum();
        at_ns.saturating_sub(end_ns).saturating_sub(asleep_ns)
    }

    /// The lcore's activities between two times, with the time of each: the longest first.
    pub(super) fn between(&self, lcore: usize, from_ns: u64, to_ns: u64) -> Vec<(Doing, u64)> {
        let mut did: Vec<(Doing, u64)> = Vec::new();
        let Some(lane) = self.lcores.get(lcore) else { return did };
        // Slices are in the order of their ends.
        let since = lane.recent.iter().rev().take_while(|slice| slice.to_ns > from_ns);
        for slice in since {
            let spent_ns = slice.to_ns.min(to_ns).saturating_sub(slice.from_ns.max(from_ns));
            if spent_ns == 0 {
                continue;
            }
            let is_same = |doing: &Doing| match (doing.stage(), slice.doing.stage()) {
                (None, None) => std::mem::discriminant(doing) == std::mem::discriminant(&slice.doing),
                (one, other) => one == other,
            };
            match did.iter_mut().find(|(doing, _)| is_same(doing)) {
                Some((_, ns)) => *ns += spent_ns,
                None => did.push((slice.doing, spent_ns)),
            }
        }
        did.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        did
    }
}

impl Lane {
    fn ended(&mut self, event: &TraceEvent) -> Option<Slice> {
        let (at_ns, place) = (event.at_ns, event.place());
        let before = |doing, ns: u64| Some(Slice { doing, from_ns: at_ns.saturating_sub(ns), to_ns: at_ns });
        match event.kind()? {
            TraceKind::Turn => {
                (self.turn_ns, self.last_turn_ns, self.call) = (Some(at_ns), at_ns, None);
                None
            }
            TraceKind::TurnEnd => {
                self.last_end_ns = at_ns;
                Some(Slice { doing: Doing::Turn, from_ns: self.turn_ns.take()?, to_ns: at_ns })
            }
            TraceKind::Process => {
                self.call = Some((Doing::Process { place, packets: event.value() }, at_ns));
                None
            }
            TraceKind::Poll => {
                self.call = Some((Doing::Poll { place }, at_ns));
                None
            }
            TraceKind::Return => {
                let (doing, from_ns) = self.call.take().filter(|(doing, _)| doing.stage() == Some(place))?;
                Some(Slice { doing, from_ns, to_ns: at_ns })
            }
            TraceKind::Asleep => {
                let cause = TraceKind::CAUSES.get(usize::from(place)).copied().unwrap_or("something else");
                before(Doing::Asleep { cause }, event.value())
            }
            TraceKind::Stolen => before(Doing::Stolen, event.value()),
            _ => None,
        }
    }
}

/// Takes the slices and the packets of a trace, beside its summary.
pub trait Output {
    /// A slice of an lcore's time.
    fn slice(&mut self, lcore: usize, slice: &Slice);
    /// The way of a wanted packet.
    fn journey(&mut self, journey: &Journey);
}

/// Discards everything.
impl Output for () {
    fn slice(&mut self, _: usize, _: &Slice) {}
    fn journey(&mut self, _: &Journey) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: TraceKind, at_ns: u64, place: u16, value: u64) -> TraceEvent {
        TraceEvent::new(kind, at_ns, place, value)
    }

    #[test]
    fn what_an_lcore_did_meanwhile_is_told_by_how_long_it_took() {
        let mut timeline = Timeline::new(2);
        for event in [
            event(TraceKind::Asleep, 100, 1, 60),
            event(TraceKind::Turn, 110, 0, 10),
            event(TraceKind::Process, 120, 4, 8),
            event(TraceKind::Return, 150, 4, 8),
            event(TraceKind::Poll, 150, 4, 0),
            event(TraceKind::Return, 160, 4, 0),
            event(TraceKind::Process, 160, 5, 1),
            event(TraceKind::Return, 165, 5, 0),
        ] {
            timeline.note(0, &event);
        }
        let turn = timeline.note(0, &event(TraceKind::TurnEnd, 170, 0, 0));
        assert_eq!(turn, Some(Slice { doing: Doing::Turn, from_ns: 110, to_ns: 170 }));
        let did = timeline.between(0, 90, 162);
        let stage = |place| did.iter().find(|(doing, _)| doing.stage() == Some(place)).map(|(_, ns)| *ns);
        assert_eq!((did.len(), stage(4), stage(5)), (3, Some(40), Some(2)));
        assert_eq!(did[1], (Doing::Asleep { cause: "ring" }, 10));
        assert!(timeline.between(1, 0, 999).is_empty() && timeline.between(7, 0, 999).is_empty());
    }

    /// An end whose beginning was lost.
    #[test]
    fn an_end_without_its_beginning_is_nothing() {
        let mut timeline = Timeline::new(1);
        assert_eq!(timeline.note(0, &event(TraceKind::Return, 5, 1, 0)), None);
        timeline.note(0, &event(TraceKind::Process, 6, 1, 1));
        assert_eq!(timeline.note(0, &event(TraceKind::Return, 7, 2, 0)), None);
        assert_eq!(timeline.note(0, &event(TraceKind::TurnEnd, 8, 0, 0)), None);
    }
}
