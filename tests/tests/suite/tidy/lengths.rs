//! No file is longer than 400 lines, except those listed with a reason.

use crate::tidy::counts::Faults;

const LINES_MAX: usize = 400;

/// Whether each file is short, or is listed and within its limit; every entry must be needed.
pub(crate) fn held<'a>(
    files: impl Iterator<Item = (&'a str, usize)>,
    allowed: &[(&str, usize, &str)],
) -> Result<(), Faults> {
    let long: Vec<_> = files.filter(|(_, lines)| *lines > LINES_MAX).collect();
    let mut faults = Vec::new();
    for &(path, lines) in &long {
        let limit = allowed.iter().find(|(name, ..)| *name == path).map_or(LINES_MAX, |(_, limit, _)| *limit);
        if lines > limit {
            faults.push(format!("{path}: {lines} lines, and {limit} are allowed"));
        }
    }
    for (path, _, why) in allowed {
        if why.is_empty() {
            faults.push(format!("{path}: no reason is given"));
        }
        if !long.iter().any(|(name, _)| name == path) {
            faults.push(format!("{path}: not longer than {LINES_MAX} lines; take it off the list"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Faults(faults)) }
}

#[test]
fn a_long_file_fails_unless_it_is_listed_and_no_longer_than_that() {
    let files = || [("a.rs", 400), ("b.rs", 401)].into_iter();
    assert_eq!(held(files(), &[]).unwrap_err().0, ["b.rs: 401 lines, and 400 are allowed"]);
    assert!(held(files(), &[("b.rs", 410, "a table")]).is_ok());
    assert_eq!(held([("b.rs", 411)].into_iter(), &[("b.rs", 410, "a table")]).unwrap_err().0.len(), 1);
}

#[test]
fn an_entry_that_is_not_needed_or_has_no_reason_fails() {
    let files = || [("a.rs", 400), ("b.rs", 401)].into_iter();
    let listed = [("a.rs", 410, "a table"), ("b.rs", 410, "a table")];
    assert_eq!(held(files(), &listed).unwrap_err().0, ["a.rs: not longer than 400 lines; take it off the list"]);
    assert_eq!(held(files(), &[("b.rs", 410, "")]).unwrap_err().0, ["b.rs: no reason is given"]);
}
