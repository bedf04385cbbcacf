//! The Get Log Page command, and the logs. The discovery log is in
//! [`discovery`](crate::discovery).

use crate::bytes::{put, put_text};
use crate::command::Command;
use crate::opcode::{admin, io};

/// Log identifiers.
pub mod id {
    /// Errors.
    pub const ERROR: u8 = 0x01;
    /// Health.
    pub const SMART: u8 = 0x02;
    /// Firmware slots.
    pub const FIRMWARE_SLOTS: u8 = 0x03;
    /// Namespaces that changed since the log was last read.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Supported commands, and their effects.
    pub const EFFECTS: u8 = 0x05;
    /// Subsystems.
    pub const DISCOVERY: u8 = 0x70;
}

/// The request of a Get Log Page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// Log identifiers.
    pub id: u8,
    /// Reading the log clears no event (RAE).
    pub retain_event: bool,
    /// The offset in the log, bytes.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

impl LogRequest {
    /// Reads the request of a command.
    pub fn of(command: &Command) -> LogRequest {
        let [dword10, dword11, ..] = command.cdw10;
        let dwords = u64::from(dword11 & 0xFFFF) << 16 | u64::from(dword10 >> 16);
        LogRequest {
            id: dword10 as u8,
            retain_event: dword10 & 1 << 15 != 0,
            offset: command.u64_of(12),
            len: (dwords + 1) * 4,
        }
    }

    /// Returns dwords 10 to 15 of a command. The length is rounded up to whole dwords, and at least
    /// one.
    pub fn dwords(&self) -> [u32; 6] {
        let dwords = (self.len / 4).saturating_sub(1);
        let dword10 = u32::from(self.id) | u32::from(self.retain_event) << 15 | (dwords as u32 & 0xFFFF) << 16;
        [dword10, (dwords >> 16) as u32 & 0xFFFF, self.offset as u32, (self.offset >> 32) as u32, 0, 0]
    }
}

/// Length of an entry of the error log, bytes.
pub const ERROR_ENTRY_BYTES: usize = 64;
/// Length of the health log, bytes.
pub const SMART_BYTES: usize = 512;
/// Length of the log of firmware slots, bytes.
pub const FIRMWARE_BYTES: usize = 512;
/// Length of the log of supported commands, and of the log of changed namespaces, bytes.
pub const PAGE_BYTES: usize = 4096;

/// The most namespaces in the log of changed namespaces.
pub const CHANGED_MAX: usize = PAGE_BYTES / 4;
/// The first entry of that log if more have changed.
pub const CHANGED_TOO_MANY: u32 = u32::MAX;

/// An entry of the error log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorEntry {
    /// The number of errors up to and including this one; 0: no entry.
    pub count: u64,
    /// The submission queue.
    pub sq_id: u16,
    /// The identifier of the command.
    pub cid: u16,
    /// The status field of its response.
    pub status_field: u16,
    /// The offset of the wrong byte in the command.
    pub location: u16,
    /// The first block of the command.
    pub lba: u64,
    /// The namespace of the command.
    pub nsid: u32,
}

impl ErrorEntry {
    /// Returns the entry as on the wire.
    pub fn to_bytes(&self) -> [u8; ERROR_ENTRY_BYTES] {
        let mut bytes = [0; ERROR_ENTRY_BYTES];
        put(&mut bytes, 0, &self.count.to_le_bytes());
        put(&mut bytes, 8, &self.sq_id.to_le_bytes());
        put(&mut bytes, 10, &self.cid.to_le_bytes());
        put(&mut bytes, 12, &self.status_field.to_le_bytes());
        put(&mut bytes, 14, &self.location.to_le_bytes());
        put(&mut bytes, 16, &self.lba.to_le_bytes());
        put(&mut bytes, 24, &self.nsid.to_le_bytes());
        bytes
    }
}

/// The counters of the health log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Smart {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Entries that were ever made in the error log.
    pub errors: u64,
}

impl Smart {
    /// Returns the log as on the wire. A data unit is 1,000 blocks of 512 bytes, rounded up.
    pub fn to_bytes(&self) -> [u8; SMART_BYTES] {
        let mut bytes = [0; SMART_BYTES];
        let units = |bytes: u64| bytes.div_ceil(512_000).to_le_bytes();
        put(&mut bytes, 1, &300_u16.to_le_bytes()); // Kelvin.
        put(&mut bytes, 3, &[100, 10]); // Spare capacity, and its threshold.
        put(&mut bytes, 32, &units(self.read_bytes));
        put(&mut bytes, 48, &units(self.written_bytes));
        put(&mut bytes, 64, &self.reads.to_le_bytes());
        put(&mut bytes, 80, &self.writes.to_le_bytes());
        put(&mut bytes, 176, &self.errors.to_le_bytes());
        bytes
    }
}

/// Returns the log of firmware slots of a controller with one slot. The slot is active and holds
/// this revision, cut at 8 bytes.
pub fn firmware_slots(revision: &str) -> [u8; FIRMWARE_BYTES] {
    let mut bytes = [0; FIRMWARE_BYTES];
    bytes[0] = 1; // AFI: slot 1.
    put_text(&mut bytes, 8, 8, revision, b' ');
    bytes
}

/// Writes the log of supported commands, and marks those that change blocks.
pub fn write_effects(page: &mut [u8; PAGE_BYTES]) {
    const SUPPORTED: u32 = 1;
    const CHANGES_BLOCKS: u32 = 1 << 1;
    page.fill(0);
    let admins = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ];
    for opcode in admins {
        put(page, 4 * usize::from(opcode), &SUPPORTED.to_le_bytes());
    }
    for opcode in [io::READ, io::FLUSH, io::COMPARE, io::VERIFY] {
        put(page, 1024 + 4 * usize::from(opcode), &SUPPORTED.to_le_bytes());
    }
    for opcode in [io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT] {
        put(page, 1024 + 4 * usize::from(opcode), &(SUPPORTED | CHANGES_BLOCKS).to_le_bytes());
    }
}

/// Asynchronous events: dword 0 of the response to an Asynchronous Event Request.
pub mod event {
    /// A namespace was attached, changed or detached: log 04h tells which.
    pub const NAMESPACE_CHANGED: u32 = 0x02 | (super::id::CHANGED_NAMESPACES as u32) << 16;
    /// The discovery log changed.
    pub const DISCOVERY_CHANGED: u32 = 0x02 | 0xF0 << 8 | (super::id::DISCOVERY as u32) << 16;
    /// The bit of [`NAMESPACE_CHANGED`] in OAES and in the feature.
    pub const NAMESPACE_CHANGED_BIT: u32 = 1 << 8;
    /// The bits of the health log's critical warnings in the feature.
    pub const CRITICAL_WARNINGS: u32 = 0xFF;
    /// The bit of [`DISCOVERY_CHANGED`] in OAES and in the feature.
    pub const DISCOVERY_CHANGED_BIT: u32 = 1 << 31;
}
