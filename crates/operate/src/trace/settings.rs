//! `[trace]` in the plan: the slowest packets that its run keeps.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;
use verbline_engine::Registry;
use verbline_plan::{AppKey, Diagnostic, Keys, Params, Plan};

/// The section's name.
const SECTION: &str = "trace";

/// A plan's `[trace]`.
///
/// ```toml
/// [trace]
/// slowest = 20
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// The number of packets kept, and of turns.
    pub slowest: u16,
    /// The length of the time of which they are kept.
    pub last: Duration,
    /// The recorded part of the time: one millisecond in this many, and one whenever an lcore comes
    /// late.
    pub one_in: NonZeroU32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    slowest: u16,
    last_s: u64,
    one_in: NonZeroU32,
}

impl Keys for Raw {
    const KEYS: &'static [AppKey] = &[
        AppKey::integer("slowest", 1..=100, "how many packets are kept, and how many turns").or(10),
        AppKey::integer("last_s", 1..=3_600, "of how long a time, up to now").or(60).unit("s"),
        AppKey::integer("one_in", 1..=1_000, "one millisecond in N is recorded, and one as an lcore comes late")
            .or(128),
    ];
}

impl TraceSettings {
    /// Registers the section, so that a plan may have it.
    pub fn register(registry: &mut Registry) {
        registry.section_of::<Raw>(SECTION, "the slowest packets, which the run keeps from its start on");
    }

    /// The plan's settings; `None` without the section, and then the run keeps nothing.
    ///
    /// # Errors
    /// A key is unknown or wrong.
    pub fn of(plan: &Plan) -> Result<Option<TraceSettings>, Diagnostic> {
        let read = |section: &Params| {
            let Raw { slowest, last_s, one_in } = section.read()?;
            Ok(TraceSettings { slowest, last: Duration::from_secs(last_s), one_in })
        };
        plan.section(SECTION).filter(|section| section.is_present()).map(read).transpose()
    }
}
