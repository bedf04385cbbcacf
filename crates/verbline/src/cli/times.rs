//! Times, as a command line says them.

use std::time::Duration;

/// Seconds, or a number with a unit. The caller says what else may be written.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }
}
