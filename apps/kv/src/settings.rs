//! `[kv]` in the plan: what clients do, and how many shards there are.

use std::ops::RangeInclusive;

use serde::Deserialize;
use verbline::plan::Params;
use verbline::prelude::*;

/// The least length of a value: its key and its generation, by which a client checks it.
pub(crate) const VALUE_BYTES_MIN: usize = 16;

/// `[kv]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The shards of the server.
    pub(crate) shards: u8,
    /// Keys that a client works with. It puts each once before it measures.
    #[serde(default = "keys")]
    pub(crate) keys: u32,
    /// Length of a value, bytes.
    #[serde(default = "value_bytes")]
    pub(crate) value_bytes: u32,
    /// Operations under way on a connection at once.
    #[serde(default = "window")]
    pub(crate) window: u32,
    /// GETs under way by RDMA READ at once. When so many are, others go by message.
    #[serde(default = "reads")]
    pub(crate) reads: u32,
    /// The share of operations that are GETs; the others are PUTs.
    #[serde(default = "get_share")]
    pub(crate) get_share: f64,
    /// The share of GETs that are made by RDMA READ, as far as `reads` lets them.
    #[serde(default = "read_share")]
    pub(crate) read_share: f64,
    /// After so long an operation is given up, milliseconds.
    #[serde(default = "timeout_ms")]
    pub(crate) timeout_ms: u32,
    /// Every so often the client closes a connection, which is opened anew, milliseconds; 0: never.
    #[serde(default)]
    pub(crate) close_every_ms: u32,
    /// For the choice of keys and operations.
    #[serde(default = "seed")]
    pub(crate) seed: u64,
}

fn keys() -> u32 {
    20_000
}

fn value_bytes() -> u32 {
    64
}

fn window() -> u32 {
    1
}

fn reads() -> u32 {
    64
}

fn get_share() -> f64 {
    0.9
}

fn read_share() -> f64 {
    0.5
}

fn timeout_ms() -> u32 {
    1_000
}

fn seed() -> u64 {
    1
}

/// More than any client has use for, and little enough to be set aside at the start.
const KEYS_MAX: u64 = 1 << 26;
const WINDOW_MAX: u64 = 1 << 10;
/// An hour.
const MS_MAX: u64 = 3_600_000;
/// As far as every reader of JSON keeps whole numbers exactly (RFC 8259, 6).
const SEED_MAX: u64 = (1 << 53) - 1;

impl Settings {
    /// Reads and checks the section.
    pub(crate) fn read(stage: &StageContext<'_>) -> Result<Settings, StageError> {
        Settings::of(stage.raw_section("kv")?)
    }

    /// The same, of the section itself.
    pub(crate) fn of(section: &Params) -> Result<Settings, StageError> {
        let settings: Settings = section.parse()?;
        let numbers: [(&str, u64, RangeInclusive<u64>); 8] = [
            ("shards", settings.shards.into(), 1..=64),
            ("keys", settings.keys.into(), 1..=KEYS_MAX),
            ("value_bytes", settings.value_bytes.into(), VALUE_BYTES_MIN as u64..=1 << 20),
            ("window", settings.window.into(), 1..=WINDOW_MAX),
            ("reads", settings.reads.into(), 1..=WINDOW_MAX),
            ("timeout_ms", settings.timeout_ms.into(), 1..=MS_MAX),
            ("close_every_ms", settings.close_every_ms.into(), 0..=MS_MAX),
            ("seed", settings.seed, 0..=SEED_MAX),
        ];
        for (key, value, bounds) in numbers {
            if !bounds.contains(&value) {
                let message = format!("{value} is not within {} to {}", bounds.start(), bounds.end());
                return Err(section.refuse(key, message).into());
            }
        }
        for (key, share) in [("get_share", settings.get_share), ("read_share", settings.read_share)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(section.refuse(key, format!("a share of {share} is not within 0 to 1")).into());
            }
        }
        Ok(settings)
    }
}
