//! The discovery log: the addresses of subsystems.

use std::net::{IpAddr, SocketAddr};

use crate::bytes::{put, put_text, text_at, u16_at, u64_at};
use crate::error::FieldError;
use crate::nqn::Nqn;
use crate::status::Status;

/// Length of the log's header, and of each entry, bytes.
pub const ENTRY_BYTES: usize = 1024;

const RDMA: u8 = 1;
const IPV4: u8 = 1;
const IPV6: u8 = 2;
const NVM_SUBSYSTEM: u8 = 2;

/// An entry of the log: a subsystem on the RDMA transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscoveryEntry {
    /// The address of its listener.
    pub address: SocketAddr,
    /// The listener's port identifier in the subsystem (PORTID).
    pub port_id: u16,
    /// The most entries of its admin queue.
    pub admin_entries: u16,
    /// The subsystem.
    pub subsystem: Nqn,
}

/// Writes the header of a log with `entries` entries.
pub fn write_head(log: &mut [u8; ENTRY_BYTES], generation: u64, entries: u64) {
    log.fill(0);
    put(log, 0, &generation.to_le_bytes());
    put(log, 8, &entries.to_le_bytes());
}

/// Reads the header of a log: its generation and its number of entries; `None` if it is none.
pub fn read_head(log: &[u8]) -> Option<(u64, u64)> {
    (log.len() >= 18 && u16_at(log, 16) == 0).then(|| (u64_at(log, 0), u64_at(log, 8)))
}

impl DiscoveryEntry {
    /// Writes the entry as on the wire.
    pub fn write(&self, entry: &mut [u8; ENTRY_BYTES]) {
        entry.fill(0);
        let family = if self.address.is_ipv4() { IPV4 } else { IPV6 };
        put(entry, 0, &[RDMA, family, NVM_SUBSYSTEM]);
        put(entry, 4, &self.port_id.to_le_bytes());
        put(entry, 6, &crate::connect::CNTLID_ANY.to_le_bytes());
        put(entry, 8, &self.admin_entries.to_le_bytes());
        put_text(entry, 32, 32, &self.address.port().to_string(), b' ');
        self.subsystem.write(entry, 256);
        put_text(entry, 512, 256, &self.address.ip().to_string(), b' ');
        // Reliable connected queue pairs, no RDMA provider named, rdma_cm.
        put(entry, 768, &[1, 1, 1]);
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// The entry is of another transport or type of subsystem, or lacks an address or a name.
    pub fn read(entry: &[u8]) -> Result<DiscoveryEntry, FieldError> {
        if entry.len() < ENTRY_BYTES {
            return Err(FieldError::short("Discovery Log DiscoveryEntry", entry.len()));
        }
        let bad = |field, at: usize| FieldError::new(field, at, entry[at], Status::INVALID_FIELD);
        if entry[0] != RDMA {
            return Err(bad("TRTYPE", 0));
        }
        if entry[2] != NVM_SUBSYSTEM {
            return Err(bad("SUBTYPE", 2));
        }
        let ip: IpAddr =
            text_at(entry, 512, 256).and_then(|text| text.parse().ok()).ok_or_else(|| bad("TRADDR", 512))?;
        let port = text_at(entry, 32, 32).and_then(|text| text.parse().ok()).ok_or_else(|| bad("TRSVCID", 32))?;
        Ok(DiscoveryEntry {
            address: SocketAddr::new(ip, port),
            port_id: u16_at(entry, 4),
            admin_entries: u16_at(entry, 8),
            subsystem: Nqn::read(entry, 256).ok_or_else(|| bad("SUBNQN", 256))?,
        })
    }
}
