//! When a stage is to be polled.

use crate::api::stage::Next;
use crate::stats::clock::Tick;
use crate::stats::turn_time::TurnTime;

/// When a stage wants its `poll` called: at a tick or once packets arrive; once packets arrive; in
/// every loop; or never again. It is one number, since every turn compares it with the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Polling(Tick);

impl Polling {
    pub(crate) const EACH_LOOP: Polling = Polling(0);
    /// Once packets arrive: a tick that is never reached.
    pub(crate) const FED: Polling = Polling(Tick::MAX - 1);
    pub(crate) const DONE: Polling = Polling(Tick::MAX);

    pub(crate) fn after(next: Next) -> Polling {
        match next {
            Next::Busy | Next::Idle => Polling::EACH_LOOP,
            // Tick 0 is as long ago as tick 1. The last ticks are never reached, which is not the
            // end of a source.
            Next::At(tick) => Polling(tick.clamp(Polling::EACH_LOOP.0 + 1, Polling::FED.0)),
            Next::Done => Polling::DONE,
        }
    }

    /// Whether the stage is to be polled now. Only a stage that waits for a tick needs the time.
    #[inline]
    pub(crate) fn is_due(self, time: &TurnTime) -> bool {
        match self {
            Polling::EACH_LOOP => true,
            Polling::FED | Polling::DONE => false,
            Polling(tick) => tick <= time.now_ns(),
        }
    }

    /// The tick, if it is one.
    #[inline]
    pub(crate) fn at(self) -> Option<Tick> {
        (Polling::EACH_LOOP.0 + 1..Polling::FED.0).contains(&self.0).then_some(self.0)
    }
}
