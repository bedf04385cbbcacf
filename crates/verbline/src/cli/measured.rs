//! The measurements of stages on several lcores, added up at the end of a run.
//!
//! Each stage records into a part of its own, and leaves it when dropped, so that no lock is near
//! the measurement.

use std::sync::{Arc, Mutex, PoisonError};

use hdrhistogram::{CreationError, Histogram};
use serde_json::Value;
use verbline_engine::{Report, StageContext};

use super::figures::{count, duration};

/// The stages' parts.
#[derive(Debug)]
pub struct Parts<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Parts<T> {
    /// Another handle of the same parts.
    fn clone(&self) -> Self {
        Parts(self.0.clone())
    }
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Parts(Arc::default())
    }
}

impl<T> Parts<T> {
    /// Takes a stage's part.
    pub fn leave(&self, part: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }

    /// All parts as one, by `add`; `None` if no stage left one.
    pub fn total(&self, mut add: impl FnMut(&mut T, &T)) -> Option<T>
    where
        T: Clone,
    {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut total, others) = parts.split_first().map(|(first, others)| (first.clone(), others))?;
        others.iter().for_each(|other| add(&mut total, other));
        Some(total)
    }
}

/// The latencies of `N` kinds of operations, with the times of the first and the last.
#[derive(Clone, Debug)]
pub struct Latencies<const N: usize> {
    by_way_ns: [Histogram<u64>; N],
    /// The same latencies, as seen while the run lasts. Parts outside a run have none.
    live: Vec<verbline_engine::Histogram>,
    /// Records of operations that were given up.
    given_up: u64,
    first_ns: u64,
    last_ns: u64,
}

impl<const N: usize> Latencies<N> {
    /// Allocates all memory for recording: 1 ns to 60 s at three digits. While the run lasts, the
    /// stage shows the kinds under the names in `ways`, to a quarter.
    ///
    /// # Errors
    /// Never, with these bounds.
    pub fn new(stage: &StageContext<'_>, ways: [&str; N]) -> Result<Latencies<N>, CreationError> {
        Latencies::shown_by(ways.map(|way| stage.histogram(way)).into())
    }

    fn shown_by(live: Vec<verbline_engine::Histogram>) -> Result<Latencies<N>, CreationError> {
        let empty = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
        Ok(Latencies { by_way_ns: std::array::from_fn(|_| empty.clone()), live, given_up: 0, first_ns: 0, last_ns: 0 })
    }

    /// Records one operation of kind `way`, which is below `N`.
    #[inline]
    pub fn record(&mut self, way: usize, began_ns: u64, now_ns: u64) {
        if self.first_ns == 0 {
            self.first_ns = began_ns;
        }
        self.last_ns = now_ns;
        let took_ns = now_ns.saturating_sub(began_ns);
        self.by_way_ns[way].saturating_record(took_ns);
        if let Some(live) = self.live.get(way) {
            live.record(took_ns);
        }
    }

    /// Records one operation of kind `way` that is given up without an answer: it would have lasted
    /// longer. It is in the latencies of its kind, but not in [`Latencies::len`] and the rate.
    pub fn give_up(&mut self, way: usize, began_ns: u64, now_ns: u64) {
        self.record(way, began_ns, now_ns);
        self.given_up += 1;
    }

    /// Says that the load ended now: a time at the end in which nothing was recorded lowers
    /// [`Latencies::per_second`].
    pub fn end(&mut self, now_ns: u64) {
        self.last_ns = self.last_ns.max(now_ns);
    }

    /// Adds what another stage recorded.
    pub fn add(&mut self, other: &Latencies<N>) {
        for (mine, theirs) in self.by_way_ns.iter_mut().zip(&other.by_way_ns) {
            // The bounds are equal, so that no value is outside.
            let _ = mine.add(theirs);
        }
        self.given_up += other.given_up;
        if other.first_ns > 0 {
            self.first_ns = if self.first_ns == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
        }
        self.last_ns = self.last_ns.max(other.last_ns);
    }

    /// The number of records of operations that were not given up.
    pub fn len(&self) -> u64 {
        self.by_way_ns.iter().map(Histogram::len).sum::<u64>() - self.given_up
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many a second, from the beginning of the first to the end of the last, or of the load.
    pub fn per_second(&self) -> f64 {
        self.len() as f64 * 1e9 / self.last_ns.saturating_sub(self.first_ns).max(1) as f64
    }

    /// An object for each kind, by these names: its number of `what`, the latencies at these
    /// quantiles by their keys, and the greatest.
    pub fn to_json(&self, names: [&str; N], what: &str, quantiles: &[(&str, f64)]) -> Value {
        let row = |ns: &Histogram<u64>| {
            let latencies = quantiles.iter().map(|(key, quantile)| (*key, ns.value_at_quantile(*quantile)));
            [(what, ns.len())].into_iter().chain(latencies).chain([("max", ns.max())]).collect::<Value>()
        };
        names.into_iter().zip(self.by_way_ns.iter().map(row)).collect()
    }

    /// A line for each kind with records, by these names.
    pub fn lines(&self, names: [&str; N]) -> String {
        let gone = names.iter().zip(&self.by_way_ns).filter(|(_, ns)| !ns.is_empty());
        let line = |(name, ns): (&&str, &Histogram<u64>)| {
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| duration(ns.value_at_quantile(share)));
            let (number, max) = (count(ns.len()), duration(ns.max()));
            format!("{name:<5}{number:>12}  p50 {p50}  p99 {p99}  p99.9 {p999}  max {max}\n")
        };
        gone.map(line).collect()
    }
}

/// A live line: the stages' count of something so far, and its rate a second.
pub fn so_far(report: &Report, counter: &str, what: &str) -> String {
    let done: u64 = report.stages.iter().filter_map(|stage| stage.counter(counter)).sum();
    let per_second = u128::from(done) * 1_000_000_000 / u128::from(report.elapsed_ns.max(1));
    format!("{} {what}, {} a second", count(done), count(per_second as u64))
}

/// A live line of a server alone: what its stages have served so far, and the connections that are
/// open, called `connections`.
pub fn served(report: &Report, counter: &str, what: &str, connections: &str) -> String {
    let open: u64 = report.ports.iter().filter_map(|port| Some(port.connections.as_ref()?.open)).sum();
    format!("{}, {} {connections} open", so_far(report, counter, what), count(open))
}

/// Declares a struct of counts, each a `u64`, with `fields` (every count with its name) and `add`.
#[macro_export]
macro_rules! counts {
    ($(#[$about:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default)]
        $vis struct $name {
            $($(#[$doc])* $vis $field: u64,)*
        }

        impl $name {
            fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }

            fn add(&mut self, other: &$name) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three in the first millisecond, and then none for a second.
    #[test]
    fn a_stall_at_the_end_lowers_the_rate() {
        let mut measured = Latencies::<1>::shown_by(Vec::new()).unwrap();
        measured.end(1);
        assert_eq!((measured.len(), measured.per_second()), (0, 0.0), "nothing was recorded");
        (1..=3).for_each(|index| measured.record(0, index * 100_000, 1_000_000));
        measured.end(1_000_100_000);
        assert_eq!(measured.per_second(), 3.0);
        measured.record(0, 900_000, 1_500_100_000);
        assert_eq!(measured.per_second() as u64, 2, "the drain brought one more");
    }

    /// An operation without an answer is one of the slowest, and none of those done.
    #[test]
    fn what_is_given_up_is_a_latency_and_in_no_rate() {
        let mut measured = Latencies::<1>::shown_by(Vec::new()).unwrap();
        measured.give_up(0, 1, 1_000_000_001);
        assert!(measured.is_empty() && measured.per_second() == 0.0);
        let mut other = Latencies::<1>::shown_by(Vec::new()).unwrap();
        (0..9).for_each(|_| other.record(0, 1, 1_000_000_001));
        other.give_up(0, 1, 2_000_000_001);
        measured.add(&other);
        assert_eq!((measured.len(), measured.per_second()), (9, 4.5));
        let row = &measured.to_json(["get"], "operations", &[("p50", 0.5)])["get"];
        assert_eq!(row["operations"], 11);
        assert!(row["max"].as_u64() >= Some(2_000_000_000) && row["p50"].as_u64() < Some(1_100_000_000), "{row}");
    }

    #[test]
    fn parts_are_added_up_and_one_that_is_empty_does_not_count() {
        let parts = Parts::default();
        let add = |total: &mut Latencies<2>, part: &Latencies<2>| total.add(part);
        assert!(parts.total(add).is_none());
        for recorded in [&[][..], &[(0, 2_000, 3_000)], &[(0, 1_000, 3_000), (1, 5_000, 6_000)]] {
            let mut part = Latencies::shown_by(Vec::new()).unwrap();
            recorded.iter().for_each(|&(way, began_ns, now_ns)| part.record(way, began_ns, now_ns));
            parts.clone().leave(part);
        }
        let total = parts.total(add).unwrap();
        assert_eq!((total.len(), total.per_second()), (3, 3e9 / 5_000.0));
        let lines = total.lines(["read", "write"]);
        assert_eq!(lines.lines().next().unwrap().split_whitespace().nth(1), Some("2"), "{lines}");
        let rows = total.to_json(["read", "write"], "commands", &[("p50", 0.5)]);
        assert_eq!(rows["read"]["commands"], 2);
        assert_eq!(rows["write"]["p50"], rows["write"]["max"]);
    }
}
