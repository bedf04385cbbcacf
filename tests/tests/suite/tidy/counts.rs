//! Offences, and the allowed number in each place.

use std::collections::BTreeMap;
use std::fmt;

/// A rule broken in one place.
#[derive(Debug, PartialEq)]
pub(crate) struct Offence {
    pub(crate) path: String,
    /// From 1; 0 is the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Offence {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Offence { path: path.to_owned(), line, what: what.into() }
    }

    /// The crate, the app or the top-level folder of the offence.
    fn place(&self) -> String {
        let depth = if ["crates/", "apps/"].iter().any(|top| self.path.starts_with(top)) { 2 } else { 1 };
        self.path.split('/').take(depth).collect::<Vec<_>>().join("/")
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Whether each place has exactly the allowed number of offences: none, if it is not listed.
pub(crate) fn held(offences: impl Iterator<Item = Offence>, allowed: &[(&str, usize)]) -> Result<(), Faults> {
    let mut found: BTreeMap<String, Vec<Offence>> =
        allowed.iter().map(|(place, _)| (place.to_string(), Vec::new())).collect();
    offences.for_each(|offence| found.entry(offence.place()).or_default().push(offence));
    let mut faults = Vec::new();
    for (place, offences) in found {
        let limit = allowed.iter().find(|(name, _)| *name == place).map_or(0, |(_, limit)| *limit);
        let count = offences.len();
        if count > limit {
            faults.push(format!("{place}: {count}, and {limit} are allowed"));
            faults.extend(offences.iter().map(|offence| format!("    {offence}")));
        } else if count == 0 && limit == 0 {
            faults.push(format!("{place}: none is left; take it off the list"));
        } else if count < limit {
            faults.push(format!("{place}: {count} are left of {limit}; lower the number, or take it off the list"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
}

/// The faults, a line each.
pub(crate) struct Faults(pub(crate) Vec<String>);

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{}", self.0.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(count: usize) -> impl Iterator<Item = Offence> {
        (0..count).map(|line| Offence::new("crates/ring/src/lib.rs", line + 1, "wide"))
    }

    #[test]
    fn a_place_has_exactly_what_is_allowed() {
        assert!(held(offences(0), &[]).is_ok());
        assert!(held(offences(2), &[("crates/ring", 2)]).is_ok());
        let more = held(offences(3), &[("crates/ring", 2)]).unwrap_err();
        assert!(more.0[0].starts_with("crates/ring: 3, and 2"), "{more:?}");
        assert_eq!(more.0[3], "    crates/ring/src/lib.rs:3: wide");
        assert!(held(offences(1), &[]).is_err());
    }

    #[test]
    fn a_number_that_is_too_large_fails_as_well() {
        let fewer = held(offences(1), &[("crates/ring", 2)]).unwrap_err();
        assert_eq!(fewer.0, ["crates/ring: 1 are left of 2; lower the number, or take it off the list"]);
        assert!(held(offences(0), &[("crates/ring", 2)]).is_err());
        assert!(held(offences(0), &[("crates/ring", 0)]).is_err());
    }
}
