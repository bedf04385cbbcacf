//! `[load]` in the plan: which subsystem, and what is done to it.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;
use verbline::plan::Params;
use verbline::prelude::*;
use verbline_nvme::Nqn;
use verbline_nvme::protection::PROTECTION_BYTES;

/// The section.
pub(crate) const SECTION: &str = "load";

/// How the target reaches the memory of a command.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Keys {
    /// By the key of the whole region.
    Region,
    /// By a memory window that is bound for the command, and taken back with its response.
    Window,
}

/// Who makes and checks the protection information of a namespace that has it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Guards {
    /// The namespace has none.
    #[default]
    None,
    /// The initiator: it travels with the data.
    Host,
    /// The target inserts and strips it (PRACT).
    Target,
}

/// `[load]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The subsystem to connect to.
    pub(crate) subsystem: String,
    /// Who the initiator says it is.
    #[serde(default = "host")]
    pub(crate) host: String,
    /// The file of the secret by which it proves that.
    #[serde(default)]
    pub(crate) secret: Option<PathBuf>,
    /// Whether it asks the discovery controller first, and wants the subsystem named there.
    #[serde(default = "yes")]
    pub(crate) discover: bool,
    /// The namespace.
    #[serde(default = "nsid")]
    pub(crate) nsid: u32,
    /// Commands under way on each queue.
    #[serde(default = "depth")]
    pub(crate) depth: u16,
    /// Bytes of a read or write.
    #[serde(default = "block_bytes")]
    pub(crate) block_bytes: u32,
    /// Bytes of the namespace that are read and written, from its start; 0: all.
    #[serde(default)]
    pub(crate) bytes: u64,
    /// The share of commands that are reads.
    #[serde(default = "read_share")]
    pub(crate) read_share: f64,
    /// A Flush follows every so many writes; 0: never.
    #[serde(default)]
    pub(crate) flush_every: u32,
    /// Whether writes that fit go in the capsule.
    #[serde(default = "yes")]
    pub(crate) in_capsule: bool,
    /// How the target reaches memory.
    #[serde(default = "keys")]
    pub(crate) keys: Keys,
    /// Who makes protection information.
    #[serde(default)]
    pub(crate) protection: Guards,
    /// The keep-alive time-out, milliseconds; 0: none.
    #[serde(default = "keep_alive_ms")]
    pub(crate) keep_alive_ms: u32,
    /// For the choice of blocks and commands.
    #[serde(default = "nsid_u64")]
    pub(crate) seed: u64,
}

fn host() -> String {
    "nqn.2026-01.org.verbline:load".to_owned()
}

fn yes() -> bool {
    true
}

fn nsid() -> u32 {
    1
}

fn nsid_u64() -> u64 {
    1
}

fn depth() -> u16 {
    32
}

fn block_bytes() -> u32 {
    4096
}

fn read_share() -> f64 {
    0.7
}

fn keys() -> Keys {
    Keys::Region
}

fn keep_alive_ms() -> u32 {
    5_000
}

/// The least that a block of a namespace has.
const BLOCK_BYTES_MIN: u32 = 512;
/// More than any target takes.
const DEPTH_MAX: u64 = 1023;
/// As far as every reader of JSON keeps whole numbers exactly (RFC 8259, 6).
const SEED_MAX: u64 = (1 << 53) - 1;

/// What the `params` of an initiator say otherwise than `[load]`: so that those of one plan use
/// several namespaces, by commands of several lengths.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Own {
    pub(crate) nsid: Option<u32>,
    pub(crate) block_bytes: Option<u32>,
}

impl Settings {
    /// Reads and checks the section.
    pub(crate) fn read(section: &Params) -> Result<Settings, StageError> {
        Settings::read_with(section, section, Own::default())
    }

    /// The same of an initiator that has some of its own, which `params` are asked for.
    pub(crate) fn read_with(section: &Params, params: &Params, own: Own) -> Result<Settings, StageError> {
        let settings: Settings = section.parse()?;
        let where_of = |is_own: bool| if is_own { params } else { section };
        let (nsid_at, bytes_at) = (where_of(own.nsid.is_some()), where_of(own.block_bytes.is_some()));
        let (nsid, block_bytes) = (own.nsid.unwrap_or(settings.nsid), own.block_bytes.unwrap_or(settings.block_bytes));
        let settings = Settings { nsid, block_bytes, ..settings };
        let numbers: [(&Params, &str, u64, RangeInclusive<u64>); 5] = [
            (nsid_at, "nsid", settings.nsid.into(), 1..=0xFFFF_FFFE),
            (section, "depth", settings.depth.into(), 1..=DEPTH_MAX),
            (bytes_at, "block_bytes", settings.block_bytes.into(), 512..=1 << 20),
            (section, "keep_alive_ms", settings.keep_alive_ms.into(), 0..=3_600_000),
            (section, "seed", settings.seed, 0..=SEED_MAX),
        ];
        for (at, key, value, bounds) in numbers {
            if !bounds.contains(&value) {
                let message = format!("{value} is not within {} to {}", bounds.start(), bounds.end());
                return Err(at.refuse(key, message).into());
            }
        }
        if !settings.block_bytes.is_power_of_two() {
            let message = format!("{} is no power of two", settings.block_bytes);
            return Err(bytes_at.refuse("block_bytes", message).into());
        }
        if !(0.0..=1.0).contains(&settings.read_share) {
            let message = format!("a share of {} is not within 0 to 1", settings.read_share);
            return Err(section.refuse("read_share", message).into());
        }
        for (key, name) in [("subsystem", &settings.subsystem), ("host", &settings.host)] {
            Nqn::new(name).map_err(|error| section.refuse(key, format!("`{name}`: {error}")))?;
        }
        Ok(settings)
    }

    /// Bytes that the data of a command needs in memory, whatever the namespace's blocks.
    pub(crate) fn slot_bytes(&self) -> usize {
        let behind = match self.protection {
            Guards::Host => self.block_bytes / BLOCK_BYTES_MIN * PROTECTION_BYTES,
            Guards::None | Guards::Target => 0,
        };
        (self.block_bytes + behind) as usize
    }

    /// A name that was checked.
    pub(crate) fn name(text: &str) -> Nqn {
        Nqn::new(text).expect("checked as the settings were read")
    }
}
