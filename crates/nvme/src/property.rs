//! Properties of a controller, which stand for its registers on PCIe.

use crate::command::Command;
use crate::error::FieldError;
use crate::opcode::fabrics;
use crate::sgl::Sgl;
use crate::status::Status;

/// Controller Capabilities, 8 bytes.
pub const CAP: u32 = 0x00;
/// Version, 4 bytes.
pub const VS: u32 = 0x08;
/// Controller Configuration, 4 bytes.
pub const CC: u32 = 0x14;
/// Controller Status, 4 bytes.
pub const CSTS: u32 = 0x1C;

/// CC: the controller is enabled.
pub const CC_ENABLE: u32 = 1;
/// CC: the shutdown notification bits (SHN).
pub const CC_SHUTDOWN: u32 = 3 << 14;
/// CSTS: the controller is ready.
pub const CSTS_READY: u32 = 1;
/// CSTS: the controller has failed until it is reset.
pub const CSTS_FATAL: u32 = 1 << 1;
/// CSTS: the shutdown status bits (SHST); 0 without a shutdown.
pub const CSTS_SHUTDOWN: u32 = 3 << 2;
/// CSTS: the shutdown is in progress.
pub const CSTS_SHUTDOWN_BEGUN: u32 = 1 << 2;
/// CSTS: the shutdown is complete.
pub const CSTS_SHUTDOWN_COMPLETE: u32 = 2 << 2;

/// The CC by which a host enables a controller: 64-byte commands, 16-byte responses, pages of
/// 4 KiB, the NVM command set.
pub const CC_USUAL: u32 = 4 << 20 | 6 << 16 | CC_ENABLE;

/// Whether a controller with the CAP of [`cap`] can have this CC. A CC that enables it selects the
/// NVM command set, pages of 4 KiB and round robin, and the sizes of entries if it has I/O queues.
pub fn is_possible(cc: u32, has_io_queues: bool) -> bool {
    const SET_PAGES_ARBITRATION: u32 = 7 << 4 | 0xF << 7 | 7 << 11;
    const ENTRIES: u32 = 0xF << 16 | 0xF << 20;
    let selected = SET_PAGES_ARBITRATION | if has_io_queues { ENTRIES } else { 0 };
    cc & CC_ENABLE == 0 || (cc ^ CC_USUAL) & selected == 0
}

/// Returns the CAP of a controller whose queues have at most `entries_max` entries, and which is
/// ready within half a second.
pub fn cap(entries_max: u16) -> u64 {
    const CONTIGUOUS_QUEUES: u64 = 1 << 16;
    const READY_WITHIN_500_MS: u64 = 1 << 24;
    const NVM_COMMAND_SET: u64 = 1 << 37;
    u64::from(entries_max.saturating_sub(1)) | CONTIGUOUS_QUEUES | READY_WITHIN_500_MS | NVM_COMMAND_SET
}

/// Reads the most entries of a queue from CAP.
pub fn entries_max(cap: u64) -> u32 {
    u32::from(cap as u16) + 1
}

/// Returns a version as in VS and Identify.
pub const fn version(major: u16, minor: u8, tertiary: u8) -> u32 {
    (major as u32) << 16 | (minor as u32) << 8 | tertiary as u32
}

/// A property, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// The offset, as of the register on PCIe.
    pub offset: u32,
    /// The property has 8 bytes, not 4.
    pub is_wide: bool,
}

impl Property {
    /// Reads the property of a Property Get or Set.
    ///
    /// # Errors
    /// The attributes ask for a length other than 4 or 8 bytes.
    pub fn of(command: &Command) -> Result<Property, FieldError> {
        let [attributes, offset, ..] = command.cdw10;
        match attributes & 7 {
            size @ 0..=1 => Ok(Property { offset, is_wide: size == 1 }),
            size => Err(FieldError::new("ATTRIB", 40, size, Status::INVALID_FIELD.do_not_retry())),
        }
    }

    /// Reads the value of a Property Set.
    pub fn value_of(command: &Command) -> u64 {
        command.u64_of(12)
    }

    /// Returns a Property Get.
    pub fn get(self, cid: u16) -> Command {
        let dwords = [self.is_wide.into(), self.offset, 0, 0, 0, 0];
        Command { nsid: fabrics::PROPERTY_GET.into(), ..Command::new(fabrics::OPCODE, cid, Sgl::NONE).with(dwords) }
    }

    /// Returns a Property Set.
    pub fn set(self, cid: u16, value: u64) -> Command {
        let dwords = [self.is_wide.into(), self.offset, value as u32, (value >> 32) as u32, 0, 0];
        Command { nsid: fabrics::PROPERTY_SET.into(), ..Command::new(fabrics::OPCODE, cid, Sgl::NONE).with(dwords) }
    }
}
