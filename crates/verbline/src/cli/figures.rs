//! Figures as a person reads them.

use std::time::Duration;

use indicatif::HumanCount;

/// A count with thousands separators, e.g. `1,250,000`.
pub fn count(value: u64) -> String {
    HumanCount(value).to_string()
}

/// A time in the unit that suits it, e.g. `1.3µs`; from a minute on in two units, e.g. `1m 30s`.
pub fn duration(value_ns: u64) -> String {
    const UNITS: [(u64, &str, u64, &str); 3] = [(86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")];
    let seconds = value_ns / 1_000_000_000 + u64::from(value_ns % 1_000_000_000 >= 950_000_000);
    if let Some((unit, name, part, its_name)) = UNITS.into_iter().find(|(unit, ..)| seconds >= *unit) {
        return format!("{}{name} {}{its_name}", seconds / unit, seconds % unit / part);
    }
    match value_ns {
        0..1_000 => format!("{value_ns}ns"),
        // Values that round to a thousand of a unit are shown as one of the next.
        999_950..1_000_000 => duration(1_000_000),
        999_950_000..1_000_000_000 => duration(1_000_000_000),
        _ => format!("{:.1?}", Duration::from_nanos(value_ns)),
    }
}

/// A rate in a few digits, e.g. `1.25M`, to be read at a glance and compared.
pub fn rate(per_second: f64) -> String {
    // Units, with the value from which each is used: values that round to one of a unit use it.
    const UNITS: [(f64, &str, f64); 4] =
        [(1e12, "T", 999.95e9), (1e9, "G", 999.95e6), (1e6, "M", 999.95e3), (1e3, "k", 9999.5)];
    match UNITS.iter().find(|(_, _, from)| per_second >= *from) {
        Some((step, unit, _)) => digits(per_second / step, unit),
        None if per_second >= 100.0 || per_second == 0.0 => format!("{per_second:.0}"),
        None => format!("{per_second:.1}"),
    }
}

/// A value in four digits at most.
fn digits(value: f64, unit: &str) -> String {
    match value {
        ..99.995 => format!("{value:.2}{unit}"),
        ..999.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
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
        let durations = [0, 999, 1_300, 999_949, 999_950, 12_000_000, 999_999_999, 3_000_000_000].map(duration);
        assert_eq!(durations, ["0ns", "999ns", "1.3µs", "999.9µs", "1.0ms", "12.0ms", "1.0s", "3.0s"]);
        let long = [59_949, 59_950, 60_000, 90_000, 3_599_000, 3_600_000, 86_400_000, 273_600_000];
        let long = long.map(|value_ms| duration(value_ms * 1_000_000));
        assert_eq!(long, ["59.9s", "1m 0s", "1m 0s", "1m 30s", "59m 59s", "1h 0m", "1d 0h", "3d 4h"]);
        let rates = [0.0, 0.4, 99.9, 1234.4, 9_999.0, 12_345.0, 1_250_000.0, 99_999_999.0, 4.2e10].map(rate);
        let shown = ["0", "0.4", "99.9", "1234", "9999", "12.35k", "1.25M", "100.0M", "42.00G"];
        assert_eq!(rates, shown);
        assert_eq!((percent(0.125), percent(0.0)), ("12.5 %".to_owned(), "0.0 %".to_owned()));
    }
}
