//! `[load]` in the plan: the subsystem, and the load on it.

use std::path::PathBuf;

use serde::Deserialize;
use verbline::plan::Params;
use verbline::prelude::*;
use verbline_nvme::Nqn;
use verbline_nvme::protection::PROTECTION_BYTES;

/// The section.
pub(crate) const SECTION: &str = "load";
/// The section's summary.
pub(crate) const MEANING: &str = "which subsystem, and what is done to it";

/// The key by which the target reaches the memory of a command.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemoryKeys {
    /// By the key of the whole region.
    Region,
    /// By a memory window that is bound for the command, and invalidated with its response.
    Window,
}

/// The side that makes and checks the protection information of a protected namespace.
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
    pub(crate) subsystem: String,
    pub(crate) host: String,
    pub(crate) secret: Option<PathBuf>,
    pub(crate) discover: bool,
    pub(crate) nsid: u32,
    pub(crate) depth: u16,
    pub(crate) block_bytes: u32,
    pub(crate) bytes: u64,
    pub(crate) read_share: f64,
    pub(crate) flush_every: u32,
    pub(crate) in_capsule: bool,
    pub(crate) keys: MemoryKeys,
    pub(crate) protection: Guards,
    pub(crate) keep_alive_ms: u32,
    pub(crate) seed: u64,
}

/// A key that the `params` of an initiator may have, too.
pub(crate) const NSID: AppKey = AppKey::integer("nsid", 1..=0xFFFF_FFFE, "the namespace");
pub(crate) const BLOCK_BYTES: AppKey =
    AppKey::integer("block_bytes", 512..=1 << 20, "a read or write; a power of two").unit("bytes");

impl Keys for Settings {
    const KEYS: &'static [AppKey] = &[
        AppKey::text("subsystem", "an NQN", "the subsystem to connect to"),
        AppKey::text("host", "an NQN", "who the initiator says it is").or_text("nqn.2026-01.org.verbline:load"),
        AppKey::text("secret", "a file's path", "the file of the secret by which it proves that").optional("none"),
        AppKey::flag("discover", "whether it asks the discovery controller first, and wants the subsystem there")
            .or_flag(true),
        NSID.or(1),
        AppKey::integer("depth", 1..=DEPTH_MAX, "commands under way on each queue").or(32),
        BLOCK_BYTES.or(4096),
        AppKey::integer("bytes", 0..=i64::MAX as u64, "of the namespace, from its start; 0: all").or(0).unit("bytes"),
        AppKey::share("read_share", "commands that are reads; the others are writes").or_real(0.7),
        AppKey::integer("flush_every", 0..=u32::MAX as u64, "writes between two Flushes; 0: none").or(0),
        AppKey::flag("in_capsule", "whether writes that fit go in the capsule").or_flag(true),
        AppKey::choice("keys", &["region", "window"], "how the target reaches memory: a window for each command")
            .or_text("region"),
        AppKey::choice("protection", &["none", "host", "target"], "who makes and checks protection information")
            .or_text("none"),
        AppKey::integer("keep_alive_ms", 0..=3_600_000, "the keep-alive time-out; 0: none").or(5_000).unit("ms"),
        AppKey::integer("seed", 0..=SEED_MAX, "for the choice of blocks and commands").or(1),
    ];
}

/// The fewest bytes of a namespace's block.
const BLOCK_BYTES_MIN: u32 = 512;
/// More than any target accepts.
const DEPTH_MAX: u64 = 1023;
/// As far as every reader of JSON keeps whole numbers exactly (RFC 8259, 6).
const SEED_MAX: u64 = (1 << 53) - 1;

/// Settings of `[load]` that an initiator's `params` override, so that the initiators of one plan
/// use several namespaces, by commands of several lengths.
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

    /// Like [`read`](Self::read), for an initiator with overrides in its `params`.
    pub(crate) fn read_with(section: &Params, params: &Params, own: Own) -> Result<Settings, StageError> {
        let settings: Settings = section.read()?;
        let bytes_at = if own.block_bytes.is_some() { params } else { section };
        let (nsid, block_bytes) = (own.nsid.unwrap_or(settings.nsid), own.block_bytes.unwrap_or(settings.block_bytes));
        let settings = Settings { nsid, block_bytes, ..settings };
        if !settings.block_bytes.is_power_of_two() {
            let message = format!("{} is no power of two", settings.block_bytes);
            return Err(bytes_at.refuse("block_bytes", message).into());
        }
        for (key, name) in [("subsystem", &settings.subsystem), ("host", &settings.host)] {
            Nqn::new(name).map_err(|error| section.refuse(key, format!("`{name}`: {error}")))?;
        }
        Ok(settings)
    }

    /// Bytes of memory for a command's data, for any block size of the namespace.
    pub(crate) fn slot_bytes(&self) -> usize {
        let behind = match self.protection {
            Guards::Host => self.block_bytes / BLOCK_BYTES_MIN * PROTECTION_BYTES,
            Guards::None | Guards::Target => 0,
        };
        (self.block_bytes + behind) as usize
    }

    /// Parses a name that was checked before.
    pub(crate) fn name(text: &str) -> Nqn {
        Nqn::new(text).expect("checked as the settings were read")
    }
}
