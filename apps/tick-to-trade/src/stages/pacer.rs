//! The schedule of published messages.

/// The longest pause that an exchange makes up for after losing its CPU. After a longer one (a
/// stopped process, a machine that slept) it goes on from the present: no exchange publishes the
/// minutes of its own pause at once, and no receiver has room for them.
const CATCH_UP_NS: u64 = 100_000_000;

/// Evenly spaced departures from the first call on.
#[derive(Debug)]
pub(super) struct Pacer {
    /// Nanoseconds between departures, in 1/65,536; 0: no pacing.
    interval_x65536: u128,
    start_ns: Option<u64>,
    departed: u64,
    skipped_ns: u64,
}

impl Pacer {
    /// `per_second` departures per second; 0: whenever there is room.
    pub(super) fn new(per_second: f64) -> Pacer {
        let interval_x65536 = if per_second > 0.0 { (65_536e9 / per_second).round() as u128 } else { 0 };
        Pacer { interval_x65536, start_ns: None, departed: 0, skipped_ns: 0 }
    }

    /// When the next departure is due; now, without pacing.
    #[inline]
    pub(super) fn due_ns(&mut self, now_ns: u64) -> u64 {
        if self.interval_x65536 == 0 {
            return now_ns;
        }
        let start_ns = self.start_ns.get_or_insert(now_ns);
        let since_start_ns = ((u128::from(self.departed) * self.interval_x65536) >> 16) as u64;
        let late_ns = now_ns.saturating_sub(*start_ns + since_start_ns);
        if late_ns > CATCH_UP_NS {
            *start_ns += late_ns;
            self.skipped_ns += late_ns;
        }
        *start_ns + since_start_ns
    }

    /// The total time of pauses that it did not make up for.
    pub(super) fn skipped_ns(&self) -> u64 {
        self.skipped_ns
    }

    /// Counts `count` departures at once.
    #[inline]
    pub(super) fn depart(&mut self, count: u64) {
        self.departed += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_does_not_drift() {
        let mut pacer = Pacer::new(3.0);
        let exact = [1_000, 333_334_333, 666_667_666, 1_000_001_000];
        for exact_ns in exact {
            assert!(pacer.due_ns(1_000).abs_diff(exact_ns) <= 1);
            pacer.depart(1);
        }
        // A day later it is still on schedule, to a microsecond.
        (4..3 * 86_400).for_each(|_| pacer.depart(1));
        assert!(pacer.due_ns(0).abs_diff(86_400_000_001_000) <= 1_000);
        assert_eq!(pacer.skipped_ns(), 0);
        let mut unpaced = Pacer::new(0.0);
        unpaced.depart(1);
        assert_eq!(unpaced.due_ns(77), 77);
    }

    #[test]
    fn a_short_delay_is_made_up_for_and_a_pause_is_not() {
        let mut pacer = Pacer::new(1000.0);
        assert_eq!(pacer.due_ns(5_000), 5_000);
        pacer.depart(1);
        // 99 departures are due at once.
        assert_eq!(pacer.due_ns(100_000_000), 1_005_000);
        pacer.depart(99);
        assert_eq!((pacer.due_ns(100_000_000), pacer.skipped_ns()), (100_005_000, 0));
        // Six seconds later one departure is due, and the next on schedule.
        let back_ns = 6_100_005_000;
        assert_eq!((pacer.due_ns(back_ns), pacer.skipped_ns()), (back_ns, 6_000_000_000));
        pacer.depart(1);
        assert_eq!(pacer.due_ns(back_ns), back_ns + 1_000_000);
    }
}
