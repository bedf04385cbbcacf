//! A row of the table: its comparison, its unit, and its goal.

use std::fmt;

use serde_json::{Value, json};
use verbline_benches::figures::median;

/// The goal of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// Ours ÷ peer is at most this.
    RatioAtMost(f64),
    /// Ours ÷ peer is at least this.
    RatioAtLeast(f64),
    /// Ours is below this, for any peer's figure.
    OursBelow(f64),
    /// Shown without a goal.
    Reported,
}

impl Goal {
    fn met(self, ours: f64, ratio: f64) -> bool {
        match self {
            // A time that noise has made negative does not count.
            Goal::RatioAtMost(limit) => ratio > 0.0 && ratio <= limit,
            Goal::RatioAtLeast(limit) => ratio >= limit,
            Goal::OursBelow(limit) => ours < limit,
            Goal::Reported => ours.is_finite(),
        }
    }

    /// The ratio at which the goal is just met.
    pub(crate) fn ratio(self) -> Option<f64> {
        match self {
            Goal::RatioAtMost(limit) | Goal::RatioAtLeast(limit) => Some(limit),
            Goal::OursBelow(_) | Goal::Reported => None,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::RatioAtMost(limit) => write!(f, "ratio ≤ {}", round_to(*limit, 4)),
            Goal::RatioAtLeast(limit) => write!(f, "ratio ≥ {}", round_to(*limit, 4)),
            Goal::OursBelow(limit) => write!(f, "ours < {limit}"),
            Goal::Reported => f.write_str("reported"),
        }
    }
}

/// A figure of a contender, or a number that is not measured here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// The figure with this name, of the contender with this index in the group.
    Figure(usize, &'static str),
    /// A figure from elsewhere.
    Known(f64),
    /// None: the row has no peer.
    Nobody,
}

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Short and unique, for `--row`.
    pub(crate) name: &'static str,
    /// The measurement, in a line.
    pub(crate) what: &'static str,
    /// The unit of both figures.
    pub(crate) unit: &'static str,
    /// Ours.
    pub(crate) ours: Source,
    /// The peer's.
    pub(crate) peer: Source,
    /// The peer's name.
    pub(crate) peer_name: &'static str,
    /// The divisor of both figures that gives the unit.
    pub(crate) scale: f64,
    /// The goal.
    pub(crate) goal: Goal,
    /// Our figure with a round's ratio, if both sides take turns many times within a round;
    /// otherwise the ratio is that of the two figures.
    pub(crate) ratio: Option<&'static str>,
}

impl Row {
    /// A row whose figures are in its unit; the caller sets `what` and `peer_name`.
    pub(crate) fn new(name: &'static str, unit: &'static str, ours: Source, peer: Source, goal: Goal) -> Row {
        Row { name, what: "", unit, ours, peer, peer_name: "", scale: 1.0, goal, ratio: None }
    }
}

/// A row, measured.
#[derive(Clone, Debug)]
pub(crate) struct RowResult {
    pub(crate) row: Row,
    /// One value per round.
    pub(crate) ours: Vec<f64>,
    pub(crate) peer: Vec<f64>,
    /// Each round's own ratio, if the row has one.
    pub(crate) ratios: Option<Vec<f64>>,
    /// The commands, ours first.
    pub(crate) commands: Vec<String>,
    /// Other results, such as a series for a plot or the share of each step.
    pub(crate) extra: Value,
}

impl RowResult {
    pub(crate) fn ours_median(&self) -> f64 {
        median(self.ours.iter().copied())
    }

    pub(crate) fn peer_median(&self) -> f64 {
        median(self.peer.iter().copied())
    }

    /// The ratio of the medians, or the median of the rounds' own ratios.
    pub(crate) fn ratio(&self) -> f64 {
        match &self.ratios {
            Some(ratios) => median(ratios.iter().copied()),
            None => self.ours_median() / self.peer_median(),
        }
    }

    /// The least and the greatest ratio of one round; without a peer, of a round to our median.
    pub(crate) fn spread(&self) -> [f64; 2] {
        let of_figures = || match self.row.peer {
            Source::Nobody => self.ours.iter().map(|ours| ours / self.ours_median()).collect(),
            _ => self.ours.iter().zip(&self.peer).map(|(ours, peer)| ours / peer).collect(),
        };
        let ratios = self.ratios.clone().unwrap_or_else(of_figures);
        ratios
            .iter()
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], ratio| [least.min(*ratio), most.max(*ratio)])
    }

    pub(crate) fn met(&self) -> bool {
        self.row.goal.met(self.ours_median(), self.ratio())
    }

    /// The row as one object; absent values, such as a ratio without a peer, are null. The keys of
    /// `extra` are added to the common ones.
    pub(crate) fn json(&self) -> Value {
        let mut json = json!({
            "row": self.row.name,
            "what": self.row.what,
            "unit": self.row.unit,
            "ours": rounded(self.ours_median()),
            "peer": rounded(self.peer_median()),
            "peer_name": self.row.peer_name,
            "ratio": rounded(self.ratio()),
            "spread": self.spread().map(rounded),
            "goal": self.row.goal.to_string(),
            "met": self.met(),
            "rounds": self.ours.len(),
            "commands": self.commands,
        });
        if let (Some(json), Some(extra)) = (json.as_object_mut(), self.extra.as_object()) {
            json.extend(extra.clone());
        }
        json
    }
}

/// Rounds to five digits: more than any of these figures deserves.
pub(crate) fn rounded(value: f64) -> f64 {
    round_to(value, 5)
}

/// Rounds to this many digits.
pub(crate) fn round_to(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = 10f64.powi(value.abs().log10().floor() as i32 + 1 - digits);
    let digits = (value / unit).round();
    // Dividing by an exact power of ten keeps 0.1 from becoming 0.1000…01.
    if unit < 1.0 { digits / (1.0 / unit).round() } else { digits * unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(goal: Goal, ours: &[f64], peer: &[f64]) -> RowResult {
        let source = Source::Figure(0, "ns");
        let row = Row { what: "w", peer_name: "p", ..Row::new("r", "ns", source, source, goal) };
        let (ours, peer) = (ours.to_vec(), peer.to_vec());
        RowResult { row, ours, peer, ratios: None, commands: Vec::new(), extra: Value::Null }
    }

    #[test]
    fn the_ratio_is_of_the_medians_and_the_spread_of_the_rounds() {
        let result = result(Goal::RatioAtMost(0.8), &[70.0, 90.0, 80.0], &[100.0, 90.0, 160.0]);
        assert_eq!((result.ratio(), result.spread(), result.met()), (0.8, [0.5, 1.0], true));
        let json = result.json();
        for key in ["row", "unit", "ours", "peer", "peer_name", "ratio", "spread", "goal", "met"] {
            assert!(json.get(key).is_some_and(|value| !value.is_null()), "{key}");
        }
    }

    #[test]
    fn rounds_may_have_ratios_of_their_own() {
        let mut result = result(Goal::RatioAtLeast(0.99), &[50.0, 100.0], &[60.0, 90.0]);
        result.ratios = Some(vec![0.98, 1.01, 0.995]);
        assert_eq!((result.ratio(), result.spread(), result.met()), (0.995, [0.98, 1.01], true));
    }

    #[test]
    fn goals_know_which_way_is_better() {
        assert!(!result(Goal::RatioAtLeast(2.0), &[19.0], &[10.0]).met());
        assert!(result(Goal::RatioAtLeast(2.0), &[20.0], &[10.0]).met());
        assert!(!result(Goal::RatioAtMost(1.0), &[f64::NAN], &[10.0]).met(), "nothing measured is nothing met");
        assert!(!result(Goal::RatioAtMost(1.0), &[0.2], &[-0.9]).met());
        assert!(result(Goal::OursBelow(0.5), &[0.4], &[0.1]).met());
    }

    #[test]
    fn five_digits_are_kept() {
        assert_eq!(rounded(0.123_456_7), 0.12346);
        assert_eq!(rounded(1_234_567.0), 1_234_600.0);
        assert_eq!(rounded(1.0), 1.0);
    }
}
