//! The Identify command, and the page of a controller. Pages of namespaces are in
//! [`namespace`](crate::namespace).

use crate::bytes::{put, put_text, text_at, u16_at, u32_at};
use crate::command::Command;
use crate::error::FieldError;
use crate::nqn::Nqn;

/// Length of every page, bytes.
pub const PAGE_BYTES: usize = 4096;

/// Values of CNS (Controller or Namespace Structure), which select the page.
pub mod cns {
    /// A namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// The controller.
    pub const CONTROLLER: u8 = 0x01;
    /// The list of active namespaces above a number, in ascending order.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// The identification descriptors of a namespace: its unique names.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// A namespace, the part of its command set.
    pub const NAMESPACE_OF_SET: u8 = 0x05;
    /// The controller, the part of a command set.
    pub const CONTROLLER_OF_SET: u8 = 0x06;
}

/// Reads which page an Identify asks for (CNS), and of which command set (CSI).
pub fn asked_by(command: &Command) -> (u8, u8) {
    (command.cdw10[0] as u8, (command.cdw10[1] >> 24) as u8)
}

/// Optional commands (ONCS).
pub mod optional {
    /// Compare.
    pub const COMPARE: u16 = 1;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
}

/// The type of a controller (CNTRLTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerType {
    /// An I/O controller, with namespaces.
    Io,
    /// A discovery controller.
    Discovery,
}

/// The page of a controller: the fields that matter on fabrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Serial number, 20 bytes at most.
    pub serial: String,
    /// Model, 40 bytes at most.
    pub model: String,
    /// Firmware revision, 8 bytes at most.
    pub firmware: String,
    /// The most bytes of a command's data: 4 KiB times two to the power of this; 0: no limit.
    pub mdts: u8,
    /// The controller identifier.
    pub cntlid: u16,
    /// The version of the specification, as in [`version`](crate::property::version).
    pub version: u32,
    /// Optional asynchronous events (OAES).
    pub async_events: u32,
    /// The controller's type.
    pub kind: ControllerType,
    /// The most outstanding Asynchronous Event Requests, less one.
    pub aerl: u8,
    /// Entries of its error log, less one.
    pub elpe: u8,
    /// The granularity of the keep-alive time-out, in units of 100 ms.
    pub kas: u16,
    /// The most commands under way on a queue.
    pub max_commands: u16,
    /// The greatest number of a namespace.
    pub namespaces_max: u32,
    /// Optional commands: [`optional`].
    pub commands: u16,
    /// Whether there is a volatile write cache.
    pub has_write_cache: bool,
    /// Length of a command capsule of an I/O queue, bytes; a multiple of 16.
    pub capsule_bytes: u32,
    /// The subsystem.
    pub subsystem: Nqn,
}

/// SGLs: without alignment, keyed, and with an offset in the capsule.
const SGLS: u32 = 0x0010_0005;
/// CTRATT: host identifiers of 128 bits, the only ones that fabrics have.
const LONG_HOST_IDS: u32 = 1;
/// Commands of 64 bytes, responses of 16.
const SQES: u8 = 0x66;
const CQES: u8 = 0x44;
/// VWC: a Flush of all namespaces is refused. Controllers from 1.4 on must tell.
const FLUSH_NAMES_ITS_NAMESPACE: u8 = 0b10 << 1;

impl Controller {
    /// Writes the page.
    pub fn write(&self, page: &mut [u8; PAGE_BYTES]) {
        page.fill(0);
        put_text(page, 4, 20, &self.serial, b' ');
        put_text(page, 24, 40, &self.model, b' ');
        put_text(page, 64, 8, &self.firmware, b' ');
        page[76] = 1 << 1 | 1; // CMIC: several ports and controllers.
        page[77] = self.mdts;
        put(page, 78, &self.cntlid.to_le_bytes());
        put(page, 80, &self.version.to_le_bytes());
        put(page, 92, &self.async_events.to_le_bytes());
        put(page, 96, &LONG_HOST_IDS.to_le_bytes()); // CTRATT.
        page[111] = match self.kind {
            ControllerType::Io => 1,
            ControllerType::Discovery => 2,
        };
        page[259] = self.aerl;
        page[260] = 1 << 1 | 1; // FRMW: one firmware slot, which nobody writes.
        page[261] = 1 << 1 | 1 << 2; // LPA: effects, and logs from an offset on.
        page[262] = self.elpe;
        put(page, 320, &self.kas.to_le_bytes());
        page[512] = SQES;
        page[513] = CQES;
        put(page, 514, &self.max_commands.to_le_bytes());
        put(page, 516, &self.namespaces_max.to_le_bytes());
        put(page, 520, &self.commands.to_le_bytes());
        page[525] = FLUSH_NAMES_ITS_NAMESPACE | u8::from(self.has_write_cache); // VWC.
        put(page, 536, &SGLS.to_le_bytes());
        self.subsystem.write(page, 768);
        put(page, 1792, &(self.capsule_bytes / 16).to_le_bytes());
        put(page, 1796, &1_u32.to_le_bytes()); // IORCSZ: 16 bytes.
        page[1803] = 1; // MSDBD: one descriptor.
    }

    /// Reads a page.
    ///
    /// # Errors
    /// The page is too short, a text in it is not ASCII, or the subsystem's name is no NQN.
    pub fn read(page: &[u8]) -> Result<Controller, FieldError> {
        if page.len() < PAGE_BYTES {
            return Err(FieldError::short("Identify Controller", page.len()));
        }
        let bad = |field, at| FieldError::new(field, at, page[at], crate::Status::INVALID_FIELD);
        let text = |field, at, len| text_at(page, at, len).map(str::to_owned).ok_or_else(|| bad(field, at));
        Ok(Controller {
            serial: text("SN", 4, 20)?,
            model: text("MN", 24, 40)?,
            firmware: text("FR", 64, 8)?,
            mdts: page[77],
            cntlid: u16_at(page, 78),
            version: u32_at(page, 80),
            async_events: u32_at(page, 92),
            // 0: controllers before 1.4 don't tell.
            kind: if page[111] == 2 { ControllerType::Discovery } else { ControllerType::Io },
            aerl: page[259],
            elpe: page[262],
            kas: u16_at(page, 320),
            max_commands: u16_at(page, 514),
            namespaces_max: u32_at(page, 516),
            commands: u16_at(page, 520),
            has_write_cache: page[525] & 1 != 0,
            capsule_bytes: u32_at(page, 1792).saturating_mul(16),
            subsystem: Nqn::read(page, 768).ok_or_else(|| bad("SUBNQN", 768))?,
        })
    }
}
