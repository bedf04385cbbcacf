//! The results of one run of a measurement: figures by name, with the unit last in the name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Figures by name, e.g. `ns` or `messages_per_s`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Figures(BTreeMap<String, f64>);

impl Figures {
    /// A single figure.
    pub fn of(name: &str, value: f64) -> Figures {
        Figures::default().and(name, value)
    }

    /// Adds a figure.
    #[must_use]
    pub fn and(mut self, name: &str, value: f64) -> Figures {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// Adds all figures of `others`.
    #[must_use]
    pub fn with(mut self, others: Figures) -> Figures {
        self.0.extend(others.0);
        self
    }

    /// The figure with this name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The middle value; for an even number, the mean of the two in the middle; NaN for none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (len, middle) if len % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        (_, middle) => sorted[middle],
    }
}

/// Measures two sides in pairs, whose order alternates.
pub fn in_turn<T: Copy>(pairs: usize, [one, other]: [T; 2], mut measure: impl FnMut(T) -> f64) -> Vec<[f64; 2]> {
    let pair = |at: usize| match at % 2 {
        0 => [one, other].map(&mut measure),
        _ => {
            let [of_other, of_one] = [other, one].map(&mut measure);
            [of_one, of_other]
        }
    };
    (0..pairs).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn figures_are_a_plain_json_object() {
        let figures = Figures::of("ns", 1.5).and("calls", 2.0);
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(text, r#"{"calls":2.0,"ns":1.5}"#);
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }
}
