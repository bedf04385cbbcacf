//! The view that a trace's thread has of an lcore beside its events: lost turns, and the present
//! turn, of which no event has come yet.

use crate::stats::clock::Tick;
use crate::stats::counter::Count;
use crate::trace::event::{TraceEvent, TraceKind};

/// The view that the trace's thread has of the recorder beside its events.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The number of lost turns.
    pub(crate) lost: Count,
    /// The beginning of the present turn; 0: there is none.
    pub(crate) turn_ns: Count,
    /// The place of the stage that it calls, plus one, or 0; and the beginning of that call.
    pub(crate) calls: Count,
    pub(crate) called_ns: Count,
}

impl Told {
    /// Returns the events of the present turn, as if it ended at `now_ns`.
    pub(crate) fn standing(&self, now_ns: Tick) -> Option<Vec<TraceEvent>> {
        let turn_ns = Some(self.turn_ns.value()).filter(|turn_ns| *turn_ns > 0)?;
        let event = |kind, at_ns, place| TraceEvent::new(kind, at_ns, place, 0);
        let mut events = vec![event(TraceKind::Turn, turn_ns, 0)];
        if let Some(place) = self.calls.value().checked_sub(1) {
            let (place, called_ns) = (place as u16, self.called_ns.value().max(turn_ns));
            events.extend([event(TraceKind::Process, called_ns, place), event(TraceKind::Return, now_ns, place)]);
        }
        events.push(event(TraceKind::TurnEnd, now_ns, 0));
        Some(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_stands_is_told_with_the_stage_that_is_called() {
        let told = Told::default();
        assert_eq!(told.standing(90), None, "between two turns");
        told.turn_ns.set(10);
        let event = |kind, at_ns, place| TraceEvent::new(kind, at_ns, place, 0);
        let (turn, end) = (event(TraceKind::Turn, 10, 0), event(TraceKind::TurnEnd, 90, 0));
        assert_eq!(told.standing(90), Some(vec![turn, end]));
        told.called_ns.set(30);
        told.calls.set(5);
        let call = [event(TraceKind::Process, 30, 4), event(TraceKind::Return, 90, 4)];
        assert_eq!(told.standing(90), Some(vec![turn, call[0], call[1], end]));
    }
}
