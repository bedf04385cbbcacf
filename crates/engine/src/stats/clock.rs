//! The engine's time: nanoseconds since the runtime was built, read from the TSC where it is invariant (`quanta`),
//! from `CLOCK_MONOTONIC` otherwise.
//!
//! A guest whose hypervisor hides the flag of an invariant TSC pays `clock_gettime` for that, even where its kernel trusts the TSC. The
//! crates that go by the kernel's trust (minstant, fastant) calibrate before `main`, to one part in 100,000, and give no raw cycles:
//! too much to take on for a clock that an lcore reads this seldom ([`crate::stats::turn_time`]).
//!
//! Guarantees: every lcore of a runtime counts from the same origin, so a tick taken on one lcore may be compared with
//! one taken on another, as far as the machine's TSCs agree.

/// Nanoseconds since the runtime was built.
pub type Tick = u64;

/// A copyable view of the runtime's clock; reading it costs one `rdtsc` and one multiplication.
#[derive(Clone, Debug)]
pub struct Clock {
    source: quanta::Clock,
    origin_raw: u64,
}

impl Clock {
    /// Starts a clock at zero. The first one of a process calibrates the TSC, which takes up to 200 ms.
    pub fn new() -> Clock {
        let source = quanta::Clock::new();
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

    /// [`Clock::now_ns`] and [`Clock::cycles`] of one instant.
    #[inline]
    pub(crate) fn now(&self) -> (Tick, u64) {
        let raw = self.source.raw();
        (self.source.delta_as_nanos(self.origin_raw, raw), raw)
    }

    /// What a difference of [`Clock::cycles`] is in nanoseconds.
    pub fn cycles_to_ns(&self, cycles: u64) -> u64 {
        self.source.delta_as_nanos(0, cycles)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}
