//! Figures as a person reads them.

use std::time::Duration;

use indicatif::HumanCount;

/// A count with thousands separators, e.g. `1,250,000`.
pub fn count(value: u64) -> String {
    HumanCount(value).to_string()
}

/// A time in the unit that suits it, e.g. `1.3µs`.
pub fn duration(value_ns: u64) -> String {
    match value_ns {
        0..1_000 => format!("{value_ns}ns"),
        _ => format!("{:.1?}", Duration::from_nanos(value_ns)),
    }
}

/// A share between 0 and 1 as a percentage, e.g. `12.5 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_units() {
        assert_eq!((count(0).as_str(), count(1_250_000).as_str()), ("0", "1,250,000"));
        let durations = [0, 999, 1_300, 12_000_000, 3_000_000_000].map(duration);
        assert_eq!(durations, ["0ns", "999ns", "1.3µs", "12.0ms", "3.0s"]);
        assert_eq!((percent(0.125), percent(0.0)), ("12.5 %".to_owned(), "0.0 %".to_owned()));
    }
}
