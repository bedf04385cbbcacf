//! Durations in `params` and sections, in the notation of the plan's own: `"50us"`, `"20ms"`,
//! `"1s 500ms"`.
//!
//! ```
//! #[derive(serde::Deserialize)]
//! struct Limits {
//!     #[serde(deserialize_with = "verbline_plan::duration::deserialize")]
//!     timeout: std::time::Duration,
//! }
//! ```

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

/// For `#[serde(deserialize_with = "verbline_plan::duration::deserialize")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).map_err(D::Error::custom)
}

pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("`{text}` is not a duration: {error}"))
}
