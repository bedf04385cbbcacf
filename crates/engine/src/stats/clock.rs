//! The engine's clock: nanoseconds since the runtime was built, read from the TSC where it is
//! invariant (`quanta`), and from `CLOCK_MONOTONIC` elsewhere.
//!
//! A guest whose hypervisor hides the invariant-TSC flag pays for `clock_gettime`, even where its
//! kernel trusts the TSC. The crates that follow the kernel's trust (minstant, fastant) calibrate
//! before `main`, to one part in 100,000, and give no raw cycles. That is too high a price for a
//! clock that an lcore reads this seldom ([`crate::stats::turn_time`]).
//!
//! Guarantees: every lcore of a runtime counts from the same origin, so that ticks of two lcores
//! can be compared, as far as the machine's TSCs agree.

use quanta::Clock as Source;

/// Nanoseconds since the runtime was built.
pub type Tick = u64;

/// A copyable view of the runtime's clock; reading it costs one `rdtsc` and one multiplication.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    origin_raw: u64,
}

impl Clock {
    /// Starts a clock at zero. The first one of a process calibrates the TSC, which takes up to 200
    /// ms.
    pub fn new() -> Clock {
        let source = Source::new();
        let origin_raw = source.raw();
        Clock { source, origin_raw }
    }

    /// Nanoseconds since this clock's origin.
    #[inline]
    pub fn now_ns(&self) -> Tick {
        self.source.delta_as_nanos(self.origin_raw, self.source.raw())
    }

    /// The raw counter: cycles of the TSC where there is one. Only differences mean anything.
    #[inline]
    pub fn cycles(&self) -> u64 {
        self.source.raw()
    }

    /// Returns [`Clock::now_ns`] and [`Clock::cycles`] of one instant.
    #[inline]
    pub(crate) fn now(&self) -> (Tick, u64) {
        let raw = self.source.raw();
        (self.source.delta_as_nanos(self.origin_raw, raw), raw)
    }

    /// Converts a difference of [`Clock::cycles`] to nanoseconds.
    pub fn cycles_to_ns(&self, cycles: u64) -> u64 {
        self.source.delta_as_nanos(0, cycles)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

/// A clock that a test moves by hand, for tests of time-dependent code.
pub(crate) mod told {
    use std::sync::Arc;

    use super::{Clock, Source, Tick};

    /// The time of a [`Clock`] that a test moves.
    #[derive(Clone, Debug)]
    pub(crate) struct Time {
        source: Source,
        told: Arc<quanta::Mock>,
    }

    impl Default for Time {
        fn default() -> Time {
            let (source, told) = Source::mock();
            Time { source, told }
        }
    }

    impl Time {
        pub(crate) fn pass(&self, ns: u64) {
            self.told.increment(ns);
        }

        pub(crate) fn now_ns(&self) -> Tick {
            self.told.value()
        }

        pub(crate) fn clock(&self) -> Clock {
            Clock { source: self.source.clone(), origin_raw: 0 }
        }
    }
}
