//! Which stage an lcore calls now, and for what, as another thread may ask: whoever stops the run
//! names a stage that never comes back.

use crate::stats::count::Count;

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

/// The bits of a call, below those of the stage's place on its lcore.
const BITS: u32 = 3;

impl Call {
    /// Where an lcore is that calls no stage.
    pub(crate) const NONE: &str = "in a turn of its own, in which it called no stage,";

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

/// The call that an lcore makes now. Written by it alone; one store a call.
#[derive(Debug, Default)]
pub(crate) struct Calling(Count);

impl Calling {
    /// The lcore calls the stage in this place.
    #[inline]
    pub(crate) fn set(&self, stage: usize, call: Call) {
        self.0.set((stage as u64) << BITS | call as u64);
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
        for (stage, call) in [0, 1, 65_535].into_iter().flat_map(|stage| BY_NUMBER.map(|call| (stage, call))) {
            calling.set(stage, call);
            assert_eq!(calling.now(), Some((stage, call)));
        }
        calling.clear();
        assert_eq!(calling.now(), None);
    }
}
