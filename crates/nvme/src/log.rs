//! Log pages: which is asked for, and what is in them. The discovery log is in
//! [`discovery`](crate::discovery).

use crate::bytes::{put, put_text};
use crate::command::Command;
use crate::opcode::{admin, io};

/// Which log.
pub mod id {
    /// Errors.
    pub const ERROR: u8 = 0x01;
    /// Health.
    pub const SMART: u8 = 0x02;
    /// Firmware slots.
    pub const FIRMWARE_SLOTS: u8 = 0x03;
    /// Namespaces that changed since it was read.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands, and what they change.
    pub const EFFECTS: u8 = 0x05;
    /// Subsystems.
    pub const DISCOVERY: u8 = 0x70;
}

/// What a Get Log Page asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRequest {
    /// Which log.
    pub id: u8,
    /// Events that it tells of stay.
    pub retain_event: bool,
    /// From this byte on.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

impl LogRequest {
    /// Of a command.
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

    /// Dwords 10 to 15 of a command. The length is rounded to whole dwords, of which there is one
    /// at least.
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
/// Length of the log of commands, and of that of changed namespaces, bytes.
pub const PAGE_BYTES: usize = 4096;

/// Namespaces that the log of changed ones names, at most.
pub const CHANGED_MAX: usize = PAGE_BYTES / 4;
/// What it says in place of their numbers, where more have changed.
pub const CHANGED_TOO_MANY: u32 = u32::MAX;

/// An entry of the error log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorEntry {
    /// How many errors there were with this one; 0: no entry.
    pub count: u64,
    /// The queue, and the command.
    pub sq_id: u16,
    /// The command.
    pub cid: u16,
    /// The status field of its response.
    pub status_field: u16,
    /// The byte of the command that is wrong.
    pub location: u16,
    /// Its first block.
    pub lba: u64,
    /// Its namespace.
    pub nsid: u32,
}

impl ErrorEntry {
    /// The entry on the wire.
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

/// What the health log counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Smart {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Entries that the error log ever had.
    pub errors: u64,
}

impl Smart {
    /// The log on the wire. A unit of data is 1,000 blocks of 512 bytes, rounded up.
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

/// The log of firmware slots of a controller that has one, with this revision (8 bytes of it) in
/// it, which is the one that runs.
pub fn firmware_slots(revision: &str) -> [u8; FIRMWARE_BYTES] {
    let mut bytes = [0; FIRMWARE_BYTES];
    bytes[0] = 1; // AFI: slot 1.
    put_text(&mut bytes, 8, 8, revision, b' ');
    bytes
}

/// Writes the log of commands: which there are, and which change blocks.
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

/// An asynchronous event: dword 0 of the response to the request that waited for it.
pub mod event {
    /// A namespace came, changed or went: the log 04h says which.
    pub const NAMESPACE_CHANGED: u32 = 0x02 | (super::id::CHANGED_NAMESPACES as u32) << 16;
    /// The discovery log changed.
    pub const DISCOVERY_CHANGED: u32 = 0x02 | 0xF0 << 8 | (super::id::DISCOVERY as u32) << 16;
    /// OAES, and the bit of the feature, of [`NAMESPACE_CHANGED`].
    pub const NAMESPACE_CHANGED_BIT: u32 = 1 << 8;
    /// OAES, and the bit of the feature, of [`DISCOVERY_CHANGED`].
    pub const DISCOVERY_CHANGED_BIT: u32 = 1 << 31;
}
