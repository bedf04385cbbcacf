//! `[nvme]` in the plan: the subsystem, its namespaces, and what hosts may ask for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use verbline::plan::{Destination, Params, Provider};
use verbline::prelude::*;
use verbline_nvme::{NQN_BYTES, Nqn};

use crate::namespace_settings::check_namespaces;
pub(crate) use crate::namespace_settings::{NSID_MAX, NamespaceSettings};

/// The section.
pub(crate) const SECTION: &str = "nvme";

/// The section's summary.
pub(crate) const MEANING: &str = "the subsystem, its namespaces, and what hosts may ask for";

/// The checker of a protected Read's blocks, where the port has signature keys.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReadsCheckedBy {
    Auto,
    Device,
}

impl ReadsCheckedBy {
    /// Whether the device checks. The software RNIC runs on the CPU that posts: it computes the
    /// same guard as the lcore would, and configures a key for each Read besides.
    pub(crate) fn is_device(self, provider: Provider) -> bool {
        match (self, provider) {
            (ReadsCheckedBy::Device, _) | (ReadsCheckedBy::Auto, Provider::Kernel) => true,
            (ReadsCheckedBy::Auto, Provider::Soft) => false,
        }
    }
}

/// `[nvme]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) subsystem: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    #[serde(default)]
    pub(crate) secrets: BTreeMap<String, PathBuf>,
    pub(crate) cntlid_min: u16,
    pub(crate) cntlid_max: u16,
    pub(crate) connect_timeout_ms: u32,
    pub(crate) address_connections_max: Option<usize>,
    pub(crate) address_commands_max: Option<u32>,
    pub(crate) queues_max: u16,
    pub(crate) entries_max: u16,
    pub(crate) commands_max: u32,
    pub(crate) in_capsule_bytes: u32,
    pub(crate) transfer_bytes_max: u32,
    pub(crate) response_timeout_ms: u32,
    pub(crate) remote_invalidate: bool,
    pub(crate) reads_checked_by: ReadsCheckedBy,
    #[serde(default, deserialize_with = "with_ports")]
    pub(crate) addresses: Vec<SocketAddr>,
    /// By number.
    #[serde(default)]
    pub(crate) namespace: BTreeMap<String, NamespaceSettings>,
}

impl Keys for Settings {
    const KEYS: &'static [AppKey] = &[
        AppKey::text("subsystem", "an NQN", "the name of the subsystem"),
        AppKey::text("serial", "20 characters", "hosts know the subsystem by it: the same after a restart")
            .or_text("VERBLINE0001"),
        AppKey::text("model", "40 characters", "its model").or_text("Verbline"),
        AppKey::texts("hosts", "NQNs", "who may connect; nobody named: all"),
        AppKey::map("secrets", "paths by NQN", "the files of secrets of hosts that have to prove who they are"),
        // A host tells the controllers of a subsystem apart by their numbers, so processes share
        // none.
        AppKey::integer("cntlid_min", CNTLIDS, "controllers' least number; processes of a subsystem share none").or(1),
        AppKey::integer("cntlid_max", CNTLIDS, "controllers' greatest number").or(0xFFEF),
        AppKey::integer("connect_timeout_ms", 100..=60_000, "from a queue's connection to its Connect command")
            .or(5_000)
            .unit("ms"),
        AppKey::integer("address_connections_max", 1..=i64::MAX as u64, "connections from one address, at most")
            .optional("half of all"),
        AppKey::integer("address_commands_max", 1..=u32::MAX as u64, "commands from one address, at most")
            .optional("half of all"),
        AppKey::integer("queues_max", 1..=1024, "I/O queues of a controller, at most").or(8),
        AppKey::integer("entries_max", 2..=4096, "entries of a queue, at most").or(128),
        // The commands of two controllers: a queue each of 32 entries, and eight of 128.
        AppKey::integer("commands_max", 32..=1 << 20, "commands at one port; a queue without room is rejected")
            .or(2112),
        AppKey::integer("in_capsule_bytes", 1024..=1 << 16, "data in a capsule; a multiple of 16")
            .or(4096)
            .unit("bytes"),
        AppKey::integer("transfer_bytes_max", PAGE_BYTES..=1 << 24, "a command's data, at most; a power of two")
            .or(1 << 20)
            .unit("bytes"),
        AppKey::integer("response_timeout_ms", 100..=3_600_000, "a host that takes no response is disconnected")
            .or(10_000)
            .unit("ms"),
        // Some cards announce this ability without having it.
        AppKey::flag("remote_invalidate", "whether responses take keys back, for hosts that ask").or_flag(true),
        AppKey::choice("reads_checked_by", &["auto", "device"], "with `signature_keys`: auto, where that is a card")
            .or_text("auto"),
        AppKey::texts("addresses", "ADDRESS:PORT", "what discovery says; none: where the plan's ports listen"),
        AppKey::tables("namespace", "1 to 2048", NamespaceSettings::KEYS, "a namespace, by its number"),
    ];
}

/// The numbers that a controller may have; greater ones have meanings of their own.
const CNTLIDS: RangeInclusive<u64> = 1..=0xFFEF;
/// The bytes of a page of Identify.
pub(crate) const PAGE_BYTES: u64 = 4096;

impl Settings {
    /// Reads and checks the section.
    pub(crate) fn read(section: &Params) -> Result<Settings, StageError> {
        let settings: Settings = section.read()?;
        if settings.cntlid_max < settings.cntlid_min {
            let message = format!("{} is less than cntlid_min, {}", settings.cntlid_max, settings.cntlid_min);
            return Err(section.refuse("cntlid_max", message).into());
        }
        if !settings.transfer_bytes_max.is_power_of_two() {
            let message = format!("{} is no power of two", settings.transfer_bytes_max);
            return Err(section.refuse("transfer_bytes_max", message).into());
        }
        if !settings.in_capsule_bytes.is_multiple_of(16) {
            let message = format!("{} is no multiple of 16", settings.in_capsule_bytes);
            return Err(section.refuse("in_capsule_bytes", message).into());
        }
        if let Some(address) = settings.addresses.iter().find(|address| is_unreachable(address)) {
            let message =
                format!("no host can connect to {address}: write an address of this machine and a port, or nothing");
            return Err(section.refuse("addresses", message).into());
        }
        for (key, text, most) in [("serial", &settings.serial, 20), ("model", &settings.model, 40)] {
            if text.len() > most || !text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
                return Err(section.refuse(key, format!("`{text}` is not at most {most} of printable ASCII")).into());
            }
        }
        let names = std::iter::once(("subsystem", &settings.subsystem))
            .chain(settings.hosts.iter().map(|host| ("hosts", host)))
            .chain(settings.secrets.keys().map(|host| ("secrets", host)));
        for (key, name) in names {
            Nqn::new(name).map_err(|error| {
                section.refuse(
                    key,
                    format!("`{name}`: {error}; for example nqn.2026-01.org.example:disk, {NQN_BYTES} bytes at most"),
                )
            })?;
        }
        if let Some(host) = settings.secrets.keys().find(|host| !settings.allows(host)) {
            let message = format!("`{host}` has a secret, and may not connect: write it among `hosts`, too");
            return Err(section.refuse("secrets", message).into());
        }
        check_namespaces(&settings.namespace).map_err(|message| section.refuse("namespace", message))?;
        Ok(settings)
    }

    fn allows(&self, host: &String) -> bool {
        self.hosts.is_empty() || self.hosts.contains(host)
    }

    /// Bytes of the longest block, with its protection information; 0 without namespaces.
    pub(crate) fn stored_bytes_max(&self) -> u32 {
        self.namespace.values().map(|space| space.layout().stored_bytes()).max().unwrap_or_default()
    }

    /// The namespaces by their numbers.
    pub(crate) fn numbered(&self) -> BTreeMap<u32, NamespaceSettings> {
        let numbered = self.namespace.iter().filter_map(|(number, how)| Some((number.parse().ok()?, how.clone())));
        numbered.collect()
    }

    /// The numbers of controllers.
    pub(crate) fn cntlids(&self) -> RangeInclusive<u16> {
        self.cntlid_min..=self.cntlid_max
    }

    /// Checks that there is a number for every controller: those of all connections, and as many
    /// that have ended with commands still in flight.
    pub(crate) fn check_cntlids(&self, plan: &Plan, section: &Params) -> Result<(), StageError> {
        let listens = |port: &&verbline::plan::Port| matches!(port.destination, Destination::Listen(_));
        let connections = plan.ports().iter().filter(listens).filter_map(|port| port.connections.as_ref());
        let least = 2 * connections.map(|many| u64::from(many.max)).sum::<u64>();
        let count = u64::from(self.cntlid_max - self.cntlid_min) + 1;
        if count >= least {
            return Ok(());
        }
        let message = format!(
            "{} to {} are {count} numbers for controllers, and twice as many as the ports have connections are \
             needed: {least}; give cntlid_min and cntlid_max more",
            self.cntlid_min, self.cntlid_max
        );
        Err(section.refuse("cntlid_max", message).into())
    }

    /// The subsystem's name.
    pub(crate) fn nqn(&self) -> Nqn {
        name(&self.subsystem)
    }

    /// MDTS: the base-2 logarithm of the longest transfer, in units of 4 KiB.
    pub(crate) fn mdts(&self) -> u8 {
        (self.transfer_bytes_max / 4096).trailing_zeros() as u8
    }

    /// The addresses of the subsystem, for discovery.
    pub(crate) fn listeners(&self, plan: &Plan) -> Vec<SocketAddr> {
        if !self.addresses.is_empty() {
            return self.addresses.clone();
        }
        let of = |port: &verbline::plan::Port| match port.destination {
            Destination::Listen(address)
                if port.connections.as_ref().is_some_and(|many| many.listen_with.is_none()) =>
            {
                Some(address)
            }
            _ => None,
        };
        plan.ports().iter().filter_map(of).collect()
    }
}

/// Whether no address, or no port, is meant.
fn is_unreachable(address: &SocketAddr) -> bool {
    address.ip().is_unspecified() || address.port() == 0
}

fn with_ports<'de, D: Deserializer<'de>>(texts: D) -> Result<Vec<SocketAddr>, D::Error> {
    let parse = |text: &String| {
        let unknown = || D::Error::custom(format!("`{text}` is no address with a port, such as 10.9.9.1:4420"));
        text.parse().map_err(|_| unknown())
    };
    Vec::<String>::deserialize(texts)?.iter().map(parse).collect()
}

/// Parses a name that was checked when the settings were read.
pub(crate) fn name(text: &str) -> Nqn {
    Nqn::new(text).expect("checked as the settings were read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_checks_reads_and_the_software_rnic_where_it_is_asked_to() {
        let of = |by: ReadsCheckedBy| [Provider::Kernel, Provider::Soft].map(|provider| by.is_device(provider));
        assert_eq!(of(ReadsCheckedBy::Auto), [true, false]);
        assert_eq!(of(ReadsCheckedBy::Device), [true, true]);
    }
}
