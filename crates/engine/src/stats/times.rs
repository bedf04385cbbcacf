//! A histogram of times, from which percentiles are computed: a count for each range of times.
//!
//! Guarantees: one writer and any number of readers, like a [`Count`]; the range of a time is at
//! most a quarter of it wide.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use serde::Serialize;

use crate::stats::counter::Count;

/// Bins for each doubling of the time.
const PER_OCTAVE: u64 = 4;
/// Times below 2^4 share the first bin, and times of 2^36 or more the last: 23 s in cycles of 3
/// GHz.
const FIRST_BITS: u32 = 4;
const LAST_BITS: u32 = 36;
const BINS: usize = ((LAST_BITS - FIRST_BITS) as u64 * PER_OCTAVE) as usize + 2;

/// Times in a unit of the writer's choice: cycles or nanoseconds.
#[derive(Debug)]
pub(crate) struct Times {
    bins: [Count; BINS],
    max: Count,
}

impl Default for Times {
    fn default() -> Self {
        Times { bins: std::array::from_fn(|_| Count::default()), max: Count::default() }
    }
}

impl Times {
    /// Counts a time with a weight.
    #[inline]
    pub(crate) fn add(&self, time: u64, weight: u64) {
        self.bins[bin_of(time)].add(weight);
        self.max.raise_to(time);
    }

    /// Returns the report, given the writer's own sum and the conversion of its unit.
    pub(crate) fn report(&self, sum_ns: u64, to_ns: impl Fn(u64) -> u64) -> TimesReport {
        let counts = self.bins.iter().map(Count::value).enumerate().filter(|(_, count)| *count > 0);
        let bin = |(bin, count)| TimeBin { below_ns: end_of(bin).map_or(u64::MAX, &to_ns), count };
        // Room for all of them: reports taken during a run are of one size, so that their reader's
        // memory does not grow with each new bin.
        let mut bins: Vec<TimeBin> = Vec::with_capacity(BINS);
        bins.extend(counts.map(bin));
        let max_ns = to_ns(self.max.value());
        let of = |share: f64| quantile(&bins, share).min(max_ns);
        TimesReport {
            count: bins.iter().map(|bin| bin.count).sum(),
            sum_ns,
            p50_ns: of(0.5),
            p90_ns: of(0.9),
            p99_ns: of(0.99),
            p999_ns: of(0.999),
            max_ns,
            bins,
        }
    }
}

/// A stage's own measurements of a time, shown live in the report beside the engine's figures.
/// Written by its stage alone.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<CachePadded<(Times, Count)>>);

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram(Arc::new(CachePadded::new((Times::default(), Count::default()))))
    }

    /// Counts a time, in nanoseconds. Single writer: two threads that record at once may lose times
    /// (never more than that).
    #[inline]
    pub fn record(&self, time_ns: u64) {
        let (times, sum_ns) = &**self.0;
        times.add(time_ns, 1);
        sum_ns.add(time_ns);
    }

    pub(crate) fn report(&self) -> TimesReport {
        let (times, sum_ns) = &**self.0;
        times.report(sum_ns.value(), |time_ns| time_ns)
    }
}

/// How long something took: percentiles, each known to a quarter, and the histogram behind them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimesReport {
    /// The number of times.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// Nine in ten took no longer.
    pub p90_ns: u64,
    /// 99 in 100 took no longer.
    pub p99_ns: u64,
    /// 999 in 1,000 took no longer.
    pub p999_ns: u64,
    /// The longest that was timed.
    pub max_ns: u64,
    /// The histogram, shortest times first; empty bins are left out.
    pub bins: Vec<TimeBin>,
}

/// A bin of a histogram: the times below its end that are in no bin before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeBin {
    /// The end of the bin.
    pub below_ns: u64,
    /// How many.
    pub count: u64,
}

/// Returns the end of the bin in which this share of the counts is reached; 0 without any.
fn quantile(bins: &[TimeBin], share: f64) -> u64 {
    let all: u64 = bins.iter().map(|bin| bin.count).sum();
    let wanted = (all as f64 * share).ceil().max(1.0) as u64;
    let mut seen = 0;
    let reached = bins.iter().find(|bin| {
        seen += bin.count;
        seen >= wanted
    });
    reached.map_or(0, |bin| bin.below_ns)
}

#[inline]
fn bin_of(time: u64) -> usize {
    if time < 1 << FIRST_BITS {
        return 0;
    }
    let octave = time.ilog2();
    // The two bits below the highest give the quarter of the octave.
    let quarter = (time >> (octave - PER_OCTAVE.ilog2())) - PER_OCTAVE;
    let bin = u64::from(octave - FIRST_BITS) * PER_OCTAVE + quarter + 1;
    (bin as usize).min(BINS - 1)
}

/// Returns the end of a bin, where the next one begins; the last one has no end.
fn end_of(bin: usize) -> Option<u64> {
    let (octave, quarter) = (FIRST_BITS + bin as u32 / PER_OCTAVE as u32, bin as u64 % PER_OCTAVE);
    (bin < BINS - 1).then(|| (PER_OCTAVE + quarter) << (octave - PER_OCTAVE.ilog2()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_is_as_wide_as_a_quarter_of_its_times() {
        let beginning = |bin: usize| bin.checked_sub(1).and_then(end_of).unwrap_or(0);
        for octave in 0..LAST_BITS {
            for time in [1 << octave, (1 << octave) + (1 << octave) / 3, (2 << octave) - 1] {
                let (bin, end) = (bin_of(time), end_of(bin_of(time)).unwrap());
                assert!((beginning(bin)..end).contains(&time), "{time}: bin {bin}");
                assert!(bin == 0 || end - beginning(bin) <= beginning(bin) / PER_OCTAVE, "bin {bin}");
            }
        }
        assert_eq!((bin_of(0), bin_of(1 << LAST_BITS), bin_of(u64::MAX)), (0, BINS - 1, BINS - 1));
    }

    #[test]
    fn percentiles_are_the_ends_of_their_bins_and_never_above_the_longest() {
        let times = Times::default();
        assert_eq!(times.report(0, |time| time), TimesReport::default());
        times.add(100, 98);
        times.add(1_000, 1);
        times.add(5_000, 1);
        let report = times.report(15_800, |time| time);
        assert_eq!((report.count, report.sum_ns, report.max_ns), (100, 15_800, 5_000));
        assert_eq!((report.p50_ns, report.p90_ns, report.p99_ns, report.p999_ns), (112, 112, 1_024, 5_000));
        assert_eq!(report.bins.iter().map(|bin| bin.count).collect::<Vec<_>>(), [98, 1, 1]);
        // In units of two nanoseconds.
        let report = times.report(0, |time| time * 2);
        assert_eq!((report.p50_ns, report.p999_ns, report.max_ns), (224, 10_000, 10_000));
        times.add(u64::MAX, 1);
        assert_eq!(times.report(0, |time| time).bins.last().unwrap().below_ns, u64::MAX);
    }
}
