//! A stage's own figures by name: counters, and histograms of times.

use serde::Serialize;

use crate::stats::counter::Counter;
use crate::stats::times::{Histogram, TimesReport};

/// The figures of one stage, in the order of its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnFigures {
    counters: Vec<(String, Counter)>,
    histograms: Vec<(String, Histogram)>,
}

impl OwnFigures {
    /// Returns the counter of that name, a new one the first time.
    pub(crate) fn counter(&mut self, name: String) -> Counter {
        of_name(&mut self.counters, name, Counter::new)
    }

    /// Returns the histogram of that name, a new one the first time.
    pub(crate) fn histogram(&mut self, name: String) -> Histogram {
        of_name(&mut self.histograms, name, Histogram::new)
    }

    pub(crate) fn counter_reports(&self) -> Vec<CounterReport> {
        let report = |(name, counter): &(String, Counter)| CounterReport { name: name.clone(), value: counter.value() };
        self.counters.iter().map(report).collect()
    }

    pub(crate) fn histogram_reports(&self) -> Vec<HistogramReport> {
        let report = |(name, of): &(String, Histogram)| HistogramReport { name: name.clone(), times: of.report() };
        self.histograms.iter().map(report).collect()
    }
}

fn of_name<T: Clone>(known: &mut Vec<(String, T)>, name: String, new: impl FnOnce() -> T) -> T {
    if let Some((_, figure)) = known.iter().find(|(known, _)| *known == name) {
        return figure.clone();
    }
    let figure = new();
    known.push((name, figure.clone()));
    figure
}

/// A counter of a stage's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CounterReport {
    /// As the stage named it.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// A histogram of times of a stage's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HistogramReport {
    /// As the stage named it.
    pub name: String,
    /// The times that it recorded.
    pub times: TimesReport,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_figure() {
        let mut own = OwnFigures::default();
        own.counter("seen".into()).add(2);
        own.counter("seen".into()).add(3);
        own.histogram("answer".into()).record(100);
        own.histogram("answer".into()).record(300);
        own.histogram("none".into());
        assert_eq!(own.counter_reports(), [CounterReport { name: "seen".into(), value: 5 }]);
        let [answer, none] = &own.histogram_reports()[..] else { panic!("{own:?}") };
        assert_eq!(
            (&*answer.name, answer.times.count, answer.times.sum_ns, answer.times.max_ns),
            ("answer", 2, 400, 300)
        );
        assert_eq!((&*none.name, &none.times), ("none", &TimesReport::default()));
    }
}
