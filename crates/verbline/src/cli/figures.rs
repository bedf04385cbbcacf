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
