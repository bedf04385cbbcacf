//! `[kv]` in the plan: the clients' work, and the number of shards.

use serde::Deserialize;
use verbline::plan::Params;
use verbline::prelude::*;

/// The minimum length of a value: its key and its generation, by which a client checks it.
pub(crate) const VALUE_BYTES_MIN: usize = 16;

/// The section's meaning.
pub(crate) const MEANING: &str = "the shards of the server, and what clients do";

/// `[kv]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) shards: u8,
    pub(crate) keys: u32,
    pub(crate) client: u32,
    pub(crate) value_bytes: u32,
    pub(crate) window: u32,
    pub(crate) reads: u32,
    pub(crate) get_share: f64,
    pub(crate) read_share: f64,
    pub(crate) timeout_ms: u32,
    pub(crate) close_every_ms: u32,
    pub(crate) seed: u64,
}

impl Keys for Settings {
    const KEYS: &'static [AppKey] = &[
        AppKey::integer("shards", 1..=64, "the shards of the server"),
        AppKey::integer("keys", 1..=KEYS_MAX, "keys that a client works with; it puts each once before it measures")
            .or(20_000),
        AppKey::integer(
            "client",
            0..=CLIENTS as u64 - 1,
            "whose keys these are: clients that run at once have different numbers",
        )
        .or(0),
        AppKey::integer("value_bytes", VALUE_BYTES_MIN as u64..=1 << 20, "length of a value").or(64).unit("bytes"),
        AppKey::integer("window", 1..=WINDOW_MAX, "operations under way on a connection at once").or(1),
        AppKey::integer("reads", 1..=WINDOW_MAX, "GETs under way by RDMA READ at once; further ones go by message")
            .or(64),
        AppKey::share("get_share", "operations that are GETs; the others are PUTs").or_real(0.9),
        AppKey::share("read_share", "GETs that are made by RDMA READ, as far as `reads` lets them").or_real(0.5),
        AppKey::integer("timeout_ms", 1..=MS_MAX, "an operation is given up after so long").or(1_000).unit("ms"),
        AppKey::integer("close_every_ms", 0..=MS_MAX, "how often a connection is closed, and opened anew; 0: never")
            .or(0)
            .unit("ms"),
        AppKey::integer("seed", 0..=SEED_MAX, "for the choice of keys and operations").or(1),
    ];
}

/// More than any client needs, and few enough to allocate at start.
const KEYS_MAX: u64 = 1 << 26;
/// The number of client numbers; each has keys of its own.
pub(crate) const CLIENTS: u32 = 10_000;
const WINDOW_MAX: u64 = 1 << 10;
/// An hour.
const MS_MAX: u64 = 3_600_000;
/// The greatest whole number that every reader of JSON keeps exactly (RFC 8259, 6).
const SEED_MAX: u64 = (1 << 53) - 1;

impl Settings {
    /// Reads the section.
    pub(crate) fn read(stage: &StageContext<'_>) -> Result<Settings, StageError> {
        Settings::of(stage.raw_section("kv")?)
    }

    /// Reads the settings from the section itself.
    pub(crate) fn of(section: &Params) -> Result<Settings, StageError> {
        Ok(section.read()?)
    }
}
