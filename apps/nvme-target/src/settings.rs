//! `[nvme]` in the plan: the subsystem, its namespaces, and what hosts may ask for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Deserialize;
use verbline::plan::{Destination, Params};
use verbline::prelude::*;
use verbline_nvme::{NQN_BYTES, Nqn};

use crate::namespace_settings::check_namespaces;
pub(crate) use crate::namespace_settings::{NSID_MAX, NamespaceSettings};

/// The section.
pub(crate) const SECTION: &str = "nvme";

/// `[nvme]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The name of the subsystem.
    pub(crate) subsystem: String,
    /// 20 bytes at most. Hosts know the subsystem again by it: it is the same after a restart.
    #[serde(default = "serial")]
    pub(crate) serial: String,
    /// 40 bytes at most.
    #[serde(default = "model")]
    pub(crate) model: String,
    /// Who may connect; nobody named: all.
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    /// The files of the secrets of hosts that have to prove who they are, by the hosts' names.
    #[serde(default)]
    pub(crate) secrets: BTreeMap<String, PathBuf>,
    /// The numbers that controllers get. Processes that serve one subsystem have ranges that don't
    /// overlap: a host tells the controllers of a subsystem apart by their numbers.
    #[serde(default = "cntlid_min")]
    pub(crate) cntlid_min: u16,
    #[serde(default = "cntlid_max")]
    pub(crate) cntlid_max: u16,
    /// From the connection of a queue to its Connect command, at most.
    #[serde(default = "connect_timeout_ms")]
    pub(crate) connect_timeout_ms: u32,
    /// Connections from one address, at most; nothing: half of those that the ports have, and no
    /// fewer than a controller's queues.
    pub(crate) address_connections_max: Option<usize>,
    /// I/O queues of a controller, at most.
    #[serde(default = "queues_max")]
    pub(crate) queues_max: u16,
    /// Entries of a queue, at most.
    #[serde(default = "entries_max")]
    pub(crate) entries_max: u16,
    /// Commands under way at one port, at most: a queue for which there is no room is rejected.
    #[serde(default = "commands_max")]
    pub(crate) commands_max: u32,
    /// Bytes of data that a capsule may carry.
    #[serde(default = "in_capsule_bytes")]
    pub(crate) in_capsule_bytes: u32,
    /// Bytes of one command's data, at most: 4 KiB times a power of two.
    #[serde(default = "transfer_bytes_max")]
    pub(crate) transfer_bytes_max: u32,
    /// A host that does not take a response for so long is disconnected, milliseconds.
    #[serde(default = "response_timeout_ms")]
    pub(crate) response_timeout_ms: u32,
    /// A host that asks for it has its keys taken back by the response. Some cards announce that
    /// they can and cannot: then `false`.
    #[serde(default = "yes")]
    pub(crate) remote_invalidate: bool,
    /// What discovery says; nothing: where the plan's ports listen.
    #[serde(default)]
    pub(crate) addresses: Vec<SocketAddr>,
    /// By number.
    #[serde(default)]
    pub(crate) namespace: BTreeMap<String, NamespaceSettings>,
}

fn serial() -> String {
    "VERBLINE0001".to_owned()
}

fn model() -> String {
    "Verbline".to_owned()
}

fn cntlid_min() -> u16 {
    *CNTLIDS.start()
}

fn cntlid_max() -> u16 {
    *CNTLIDS.end()
}

fn connect_timeout_ms() -> u32 {
    5000
}

fn queues_max() -> u16 {
    8
}

fn entries_max() -> u16 {
    128
}

fn commands_max() -> u32 {
    1024
}

fn in_capsule_bytes() -> u32 {
    4096
}

fn transfer_bytes_max() -> u32 {
    1 << 20
}

fn response_timeout_ms() -> u32 {
    10_000
}

fn yes() -> bool {
    true
}

/// The numbers that a controller may have; those beyond stand for any.
const CNTLIDS: RangeInclusive<u16> = 1..=0xFFEF;
/// The least that a page of Identify needs.
pub(crate) const PAGE_BYTES: u64 = 4096;

impl Settings {
    /// Reads and checks the section.
    pub(crate) fn read(section: &Params) -> Result<Settings, StageError> {
        let settings: Settings = section.parse()?;
        let cntlids = u64::from(*CNTLIDS.start())..=u64::from(*CNTLIDS.end());
        let numbers: [(&str, u64, RangeInclusive<u64>); 9] = [
            ("cntlid_min", settings.cntlid_min.into(), cntlids.clone()),
            ("cntlid_max", settings.cntlid_max.into(), u64::from(settings.cntlid_min)..=*cntlids.end()),
            ("connect_timeout_ms", settings.connect_timeout_ms.into(), 100..=60_000),
            ("queues_max", settings.queues_max.into(), 1..=1024),
            ("entries_max", settings.entries_max.into(), 2..=4096),
            ("commands_max", settings.commands_max.into(), 32..=1 << 20),
            ("in_capsule_bytes", settings.in_capsule_bytes.into(), 1024..=1 << 16),
            ("response_timeout_ms", settings.response_timeout_ms.into(), 100..=3_600_000),
            ("transfer_bytes_max", settings.transfer_bytes_max.into(), PAGE_BYTES..=1 << 24),
        ];
        for (key, value, bounds) in numbers {
            if !bounds.contains(&value) {
                let message = format!("{value} is not within {} to {}", bounds.start(), bounds.end());
                return Err(section.refuse(key, message).into());
            }
        }
        if !settings.transfer_bytes_max.is_power_of_two() {
            let message = format!("{} is no power of two", settings.transfer_bytes_max);
            return Err(section.refuse("transfer_bytes_max", message).into());
        }
        if !settings.in_capsule_bytes.is_multiple_of(16) {
            let message = format!("{} is no multiple of 16", settings.in_capsule_bytes);
            return Err(section.refuse("in_capsule_bytes", message).into());
        }
        if let Some(address) = settings.addresses.iter().find(|address| address.ip().is_unspecified()) {
            let message = format!("no host can connect to {address}: write an address of this machine, or nothing");
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

    /// Bytes of the longest block, with what lies behind it; 0 without namespaces.
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

    /// There is a number for every controller: for those of all connections, and for as many that
    /// are over and have commands under way still.
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

    /// MDTS: the power of two by which a transfer is longer than 4 KiB, at most.
    pub(crate) fn mdts(&self) -> u8 {
        (self.transfer_bytes_max / 4096).trailing_zeros() as u8
    }

    /// Where the subsystem is, as discovery says it.
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

/// A name that was checked as the settings were read.
pub(crate) fn name(text: &str) -> Nqn {
    Nqn::new(text).expect("checked as the settings were read")
}
