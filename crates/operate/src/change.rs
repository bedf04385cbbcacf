//! A run's activity in a time: the difference of two reports.

use serde::Serialize;

use crate::client_report::{Seen, Since};

/// A run's activity in a time: a report whose counters are those of that time. Values that do not
/// count (depths, states, maxima so far) are those of its end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change(Seen);

impl Change {
    /// The change between two reports of one run.
    pub fn between(earlier: &Seen, later: &Seen) -> Change {
        Change(later.since(earlier))
    }

    /// The change since the lcores started.
    pub fn since_start(seen: &Seen) -> Change {
        Change(seen.clone())
    }

    /// The counters of that time.
    pub fn counts(&self) -> &Seen {
        &self.0
    }

    /// A counter's growth per second in that time.
    pub fn per_second(&self, count: u64) -> f64 {
        match self.0.elapsed_ns {
            0 => 0.0,
            over_ns => count as f64 * 1e9 / over_ns as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use verbline_engine::{DropReport, LcoreReport, OperationsReport, PortReport, Report, StageReport, WakeReport};

    use super::*;

    fn report(times: u64) -> Seen {
        let lcore = LcoreReport {
            name: "main".into(),
            busy_ns: 10 * times,
            stall_max_ns: times,
            wakes: vec![WakeReport { cause: "ring", count: 3 * times }],
            ..LcoreReport::default()
        };
        let stage = StageReport { name: "book".into(), packets_in: 100 * times, ..StageReport::default() };
        let operations = Some(OperationsReport { under_way: times, ..OperationsReport::default() });
        let port = PortReport { name: "feed".into(), rx_packets: 7 * times, operations, ..PortReport::default() };
        let drops = DropReport { place: "stage.book".into(), reason: "late".into(), packets: times };
        let report = Report {
            elapsed_ns: 1_000_000_000 * times,
            lcores: vec![lcore],
            stages: vec![stage],
            ports: vec![port],
            drops: (0..times.min(1)).map(|_| drops.clone()).collect(),
            ..Report::default()
        };
        serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap()
    }

    #[test]
    fn counters_have_a_difference_and_the_rest_is_as_it_is_now() {
        let change = Change::between(&report(2), &report(4));
        let counts = change.counts();
        assert_eq!(
            (counts.elapsed_ns, counts.lcores[0].busy_ns, counts.lcores[0].wakes[0].count),
            (2_000_000_000, 20, 6)
        );
        assert_eq!((counts.lcores[0].stall_max_ns, counts.ports[0].operations.as_ref().unwrap().under_way), (4, 4));
        assert_eq!((change.per_second(counts.stages[0].packets_in), change.per_second(0)), (100.0, 0.0));
        // A place with no drops before.
        assert_eq!(Change::between(&report(0), &report(3)).counts().drops[0].packets, 3);
        assert_eq!(Change::since_start(&report(0)).per_second(7), 0.0, "no time has passed");
    }

    #[test]
    fn a_key_that_is_missing_is_an_error_and_one_more_is_none() {
        let whole = serde_json::to_value(Report::default()).unwrap();
        let read = |value: &serde_json::Value| serde_json::from_value::<Seen>(value.clone());
        let mut more = whole.clone();
        more["a_later_key"] = 1.into();
        assert!(read(&whole).is_ok() && read(&more).is_ok());
        for key in ["lcores", "elapsed_ns", "drops"] {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(key);
            assert!(read(&less).unwrap_err().to_string().contains(key));
        }
    }
}
