//! The present call of an lcore into a stage, for other threads to read: the thread that stops the
//! run names a stage that never returns.

use crate::stats::counter::Count;

/// The method of a stage that is called.
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
    /// The place of an lcore that calls no stage.
    pub(crate) const NONE: &str = "in a turn of its own, in which it called no stage,";

    /// Returns this call of the stage in this place.
    #[inline]
    pub(crate) fn of(self, place: usize) -> Called {
        Called((place as u64) << BITS | self as u64)
    }

    /// Returns the call in the words of a stage's author.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Call::Process => "in `process`",
            // The wrapper between node and stage calls these as it is polled.
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

/// A stage's place and the call, in one word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Called(u64);

impl Called {
    /// Returns this call of the stage in the next place: a pass over all stages goes from word to
    /// word.
    #[inline]
    pub(crate) fn next(self) -> Called {
        Called(self.0 + (1 << BITS))
    }
}

/// The present call of an lcore, which alone writes it; one store per call.
#[derive(Debug, Default)]
pub(crate) struct Calling(Count);

impl Calling {
    #[inline]
    pub(crate) fn set(&self, called: Called) {
        self.0.set(called.0);
    }

    /// Records that the lcore calls no stage.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.set(0);
    }

    /// Returns the called stage, by its place on the lcore, and the call.
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
