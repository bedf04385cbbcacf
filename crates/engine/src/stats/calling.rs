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

/// The call that an lcore makes now. Written by it alone: a store for each pass over its stages,
/// and one for each call. Two words, of which a reader may see one of this call and one of the
/// last; of a stage that never comes back both are long there.
#[derive(Debug, Default)]
pub(crate) struct Calling {
    /// What stages are called for; 0: the lcore calls none.
    what: Count,
    /// The place of the stage on the lcore, while `what` is not 0.
    stage: Count,
}

impl Calling {
    /// From here on the lcore calls stages for this, each of which [`Calling::stage`] says.
    #[inline]
    pub(crate) fn begin(&self, call: Call) {
        self.what.set(call as u64);
    }

    /// The lcore calls the stage in this place.
    #[inline]
    pub(crate) fn stage(&self, place: usize) {
        self.stage.set(place as u64);
    }

    /// The lcore calls none.
    #[inline]
    pub(crate) fn clear(&self) {
        self.what.set(0);
    }

    /// The stage that is called, by its place on the lcore, and for what.
    pub(crate) fn now(&self) -> Option<(usize, Call)> {
        let call = BY_NUMBER.get((self.what.value() as usize).checked_sub(1)?)?;
        Some((self.stage.value() as usize, *call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_every_stage_is_told_as_it_was_set() {
        let calling = Calling::default();
        assert_eq!(calling.now(), None);
        for call in BY_NUMBER {
            calling.begin(call);
            for stage in [0, 1, 65_535] {
                calling.stage(stage);
                assert_eq!(calling.now(), Some((stage, call)));
            }
            calling.clear();
            assert_eq!(calling.now(), None);
        }
    }
}
