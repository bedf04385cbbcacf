//! The stored counts: `instructions.toml`, with a name and a number per line, and the tools of the
//! counts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The percentage by which a row may exceed the stored count.
pub(crate) const RISE_PERCENT: f64 = 3.0;

const HEAD: &str = "\
# Instructions of one operation of the hot path, counted by callgrind at the release profile
# (`./x instructions --list` says what an operation is). A row that takes over 3 % more than here
# fails CI, one that takes less never does. After a change that is meant: `./x instructions --write`.
#
# The counts are not of the machine that stored them: callgrind emulates one CPU whatever the host's
# is, and glibc is told to pick its memcpy as for the oldest x86-64 (GLIBC_TUNABLES, in
# benches/src/callgrind.rs). They are of the compiler, and where a row copies messages a little of
# glibc: a check that fails with other tools than these says so.
";

/// The key of the line with the tools.
const COUNTED_WITH: &str = "counted-with";

/// The file of the stored counts.
pub(crate) fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.toml")
}

/// Stored counts, by row.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Baseline {
    counts: BTreeMap<String, f64>,
    /// Versions of the tools that affect a count.
    pub(crate) counted_with: String,
}

/// A count, compared with the stored one.
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
        let mut baseline = Baseline::default();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let wrong = || format!("{}: `{line}` is not `row = count`", path().display());
            let (name, value) = line.split_once('=').ok_or_else(wrong)?;
            let (name, value) = (name.trim(), value.trim());
            if name == COUNTED_WITH {
                value.trim_matches('"').clone_into(&mut baseline.counted_with);
            } else {
                baseline.set(name, value.parse().map_err(|_| wrong())?);
            }
        }
        Ok(baseline)
    }

    pub(crate) fn write(&self) -> Result<(), String> {
        std::fs::write(path(), self.text()).map_err(|error| format!("{}: {error}", path().display()))
    }

    fn text(&self) -> String {
        let head = format!("{HEAD}{COUNTED_WITH} = \"{}\"\n\n", self.counted_with);
        self.counts.iter().fold(head, |text, (name, count)| text + &format!("{name} = {count:.1}\n"))
    }

    pub(crate) fn set(&mut self, name: &str, count: f64) {
        self.counts.insert(name.to_owned(), count);
    }

    /// Drops rows that no longer exist.
    pub(crate) fn keep(&mut self, is_row: impl Fn(&str) -> bool) {
        self.counts.retain(|name, _| is_row(name));
    }

    pub(crate) fn judge(&self, name: &str, count: f64) -> Verdict {
        let Some(&stored) = self.counts.get(name) else { return Verdict::New };
        let percent = (count - stored) * 100.0 / stored;
        match percent {
            _ if percent > RISE_PERCENT => Verdict::Risen { stored, percent },
            _ if percent < -RISE_PERCENT => Verdict::Fallen { stored, percent },
            _ => Verdict::Held { stored, percent },
        }
    }
}

impl Verdict {
    /// Whether the row passes. A row that is not stored fails: nothing would guard it.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Verdict::Held { .. } | Verdict::Fallen { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Held { stored, percent } => write!(f, "{stored:>12.1} {percent:>+7.1} %"),
            Verdict::Risen { stored, percent } => write!(f, "{stored:>12.1} {percent:>+7.1} % RISEN"),
            Verdict::Fallen { stored, percent } => write!(f, "{stored:>12.1} {percent:>+7.1} % fallen"),
            Verdict::New => write!(f, "{:>12} {:>9} NOT STORED", "none", ""),
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
        assert!(baseline.judge("ring-hop", 50.0).is_good(), "a fall is no fault");
        assert!(!Verdict::New.is_good() && !baseline.judge("ring-hop", 104.0).is_good());
    }

    #[test]
    fn what_is_written_is_read() {
        let mut baseline = Baseline::default();
        baseline.set("ring-hop", 123.4);
        baseline.set("gone", 1.0);
        baseline.keep(|name| name == "ring-hop");
        baseline.counted_with = "rustc 1.0, glibc 2.1".to_owned();
        assert_eq!(Baseline::parse(&baseline.text()), Ok(baseline));
        assert!(Baseline::parse("ring-hop 5").is_err());
    }
}
