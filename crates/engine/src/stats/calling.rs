//! The stage that an lcore calls now, and for what, for other threads to ask: the one that stops
//! the run names a stage that never comes back.

use crate::stats::counter::Count;

/// What a stage is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Process = 1,
    Poll,
    Stop,
    PortEvent,
    ConnectionEvent,
    Drop,
}

const BY_NUMBER: [Call; 6] =
    [Call::Process, Call::Poll, Call::Stop, Call::PortEvent, Call::ConnectionEvent, Call::Drop];

impl Call {
    /// Where an lcore is that calls no stage.
    pub(crate) const NONE: &str = "in a turn of its own, in which it called no stage,";

    /// Of the stage in this place.
    #[inline]
    pub(crate) fn of(self, place: usize) -> Called {
        Called((place as u64) << BITS | self as u64)
    }

    /// In the words of a stage's author.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Call::Process => "in `process`",
            // What stands between node and stage calls these as it is polled.
            Call::Poll => "in `poll` (or `timers`, `operations`, `fd_ready`)",
            Call::Stop => "in `stop`",
            Call::PortEvent => "in `port_event`",
            Call::ConnectionEvent => "in `connection_event`",
            Call::Drop => "in its `Drop`",
        }
    }
}

/// The bits of a call, below those of the stage's place on its lcore.
const BITS: u32 = 3;

/// A call of the stage in some place, in one word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called(u64);

impl Called {
    /// The same of the stage in the next place: a pass over all stages goes from word to word.
    #[inline]
    pub(crate) fn next(self) -> Called {
        Called(self.0 + (1 << BITS))
    }
}

/// The call that an lcore makes now. Written by it alone; one store a call.
#[derive(Debug, Default)]
pub(crate) struct Calling(Count);

impl Calling {
    #[inline]
    pub(crate) fn set(&self, called: Called) {
        self.0.set(called.0);
    }

    /// The lcore calls none.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.set(0);
    }

    /// The stage that is called, by its place on the lcore, and for what.
    pub(crate) fn now(&self) -> Option<(usize, Call)> {
        let word = self.0.value();
        let call = BY_NUMBER.get(((word & ((1 << BITS) - 1)) as usize).checked_sub(1)?)?;
        Some(((word >> BITS) as usize, *call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_every_stage_is_told_as_it_was_set() {
        let calling = Calling::default();
        assert_eq!(calling.now(), None);
        for (place, call) in [0, 1, 65_535].into_iter().flat_map(|place| BY_NUMBER.map(|call| (place, call))) {
            calling.set(call.of(place));
            assert_eq!(calling.now(), Some((place, call)));
            calling.set(call.of(place).next());
            assert_eq!(calling.now(), Some((place + 1, call)));
        }
        calling.clear();
        assert_eq!(calling.now(), None);
    }
}
