//! The stored counts: `instructions.toml`, a name and a number a line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A row may take so much more than stored.
pub(crate) const RISE_PERCENT: f64 = 3.0;

const HEAD: &str = "\
# Instructions of one operation of the hot path, counted by callgrind at the release profile. A change that raises one by
# more than 3 % fails; `cargo run --release -p verbline-benches --bin instructions -- --write` stores new ones.
";

/// Where they are stored.
pub(crate) fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.toml")
}

/// Stored counts, by row.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Baseline(BTreeMap<String, f64>);

/// What a count is beside the stored one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Held { stored: f64, percent: f64 },
    Risen { stored: f64, percent: f64 },
    Fallen { stored: f64, percent: f64 },
    New,
}

impl Baseline {
    pub(crate) fn read() -> Result<Baseline, String> {
        match std::fs::read_to_string(path()) {
            Ok(text) => Baseline::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Baseline::default()),
            Err(error) => Err(format!("{}: {error}", path().display())),
        }
    }

    fn parse(text: &str) -> Result<Baseline, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pairs = lines.map(|line| {
            let pair = line.split_once('=').map(|(name, count)| (name.trim().to_owned(), count.trim().parse()));
            match pair {
                Some((name, Ok(count))) => Ok((name, count)),
                _ => Err(format!("{}: `{line}` is not `row = count`", path().display())),
            }
        });
        pairs.collect::<Result<_, _>>().map(Baseline)
    }

    pub(crate) fn write(&self) -> Result<(), String> {
        std::fs::write(path(), self.text()).map_err(|error| format!("{}: {error}", path().display()))
    }

    fn text(&self) -> String {
        self.0.iter().fold(HEAD.to_owned(), |text, (name, count)| text + &format!("{name} = {count:.1}\n"))
    }

    pub(crate) fn set(&mut self, name: &str, count: f64) {
        self.0.insert(name.to_owned(), count);
    }

    pub(crate) fn judge(&self, name: &str, count: f64) -> Verdict {
        let Some(&stored) = self.0.get(name) else { return Verdict::New };
        let percent = (count - stored) * 100.0 / stored;
        match percent {
            _ if percent > RISE_PERCENT => Verdict::Risen { stored, percent },
            _ if percent < -RISE_PERCENT => Verdict::Fallen { stored, percent },
            _ => Verdict::Held { stored, percent },
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Held { stored, percent } => write!(f, "{stored:>12.1} {percent:>+7.1}%"),
            Verdict::Risen { stored, percent } => write!(f, "{stored:>12.1} {percent:>+7.1}% RISEN"),
            Verdict::Fallen { stored, percent } => write!(f, "{stored:>12.1} {percent:>+7.1}% fallen: --write it"),
            Verdict::New => write!(f, "{:>12} {:>8}", "none", ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rise_of_more_than_three_percent_is_seen() {
        let baseline = Baseline::parse("# head\nring-hop = 100.0\n").unwrap();
        assert_eq!(baseline.judge("ring-hop", 103.0), Verdict::Held { stored: 100.0, percent: 3.0 });
        assert!(matches!(baseline.judge("ring-hop", 103.1), Verdict::Risen { .. }));
        assert!(matches!(baseline.judge("ring-hop", 96.0), Verdict::Fallen { .. }));
        assert_eq!(baseline.judge("another", 1.0), Verdict::New);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut baseline = Baseline::default();
        baseline.set("ring-hop", 123.4);
        assert_eq!(Baseline::parse(&baseline.text()), Ok(baseline));
        assert!(Baseline::parse("ring-hop 5").is_err());
    }
}
