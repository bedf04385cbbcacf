//! Protection information: the 8 bytes behind each block of a namespace, and how a command handles
//! them.
//!
//! Protection information is T10-DIF's: a guard (CRC-16 of the data), an application tag and a
//! reference tag, each highest byte first. There is no other metadata. As fabrics require, it
//! travels behind the data of each block (extended blocks).

use crate::bytes::array;
use crate::command::Command;
use crate::io::{PROTECTION, ReadWrite};
use crate::opcode::io;
use crate::status::Status;

use crc_fast::{CrcAlgorithm, checksum};

/// Bytes of protection information behind a block.
pub const PROTECTION_BYTES: u32 = 8;

/// The protection type of a namespace, which defines its reference tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectionType {
    /// The low 32 bits of the block's number.
    Type1,
    /// The command gives the tag of its first block; each further block has one more.
    Type2,
    /// The host's own value, like the application tag.
    Type3,
}

impl ProtectionType {
    /// Returns the type's number: 1 to 3.
    pub const fn number(self) -> u8 {
        match self {
            ProtectionType::Type1 => 1,
            ProtectionType::Type2 => 2,
            ProtectionType::Type3 => 3,
        }
    }

    /// Returns the type with a number; `None` if it is not 1 to 3.
    pub const fn from_number(number: u8) -> Option<ProtectionType> {
        match number {
            1 => Some(ProtectionType::Type1),
            2 => Some(ProtectionType::Type2),
            3 => Some(ProtectionType::Type3),
            _ => None,
        }
    }
}

/// The protection information of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// CRC-16/T10-DIF of the data.
    pub guard: u16,
    /// The application tag.
    pub app_tag: u16,
    /// The reference tag.
    pub ref_tag: u32,
}

impl Tuple {
    /// The protection information of a block that was never written, or deallocated. It is not
    /// checked, whatever the type.
    pub const DEALLOCATED: Tuple = Tuple { guard: u16::MAX, app_tag: u16::MAX, ref_tag: u32::MAX };

    /// Reads protection information.
    #[inline]
    pub fn read(bytes: &[u8]) -> Tuple {
        Tuple {
            guard: u16::from_be_bytes(array(bytes, 0)),
            app_tag: u16::from_be_bytes(array(bytes, 2)),
            ref_tag: u32::from_be_bytes(array(bytes, 4)),
        }
    }

    /// Returns the bytes to put behind a block.
    #[inline]
    pub fn to_bytes(self) -> [u8; PROTECTION_BYTES as usize] {
        let ([g0, g1], [a0, a1]) = (self.guard.to_be_bytes(), self.app_tag.to_be_bytes());
        let [r0, r1, r2, r3] = self.ref_tag.to_be_bytes();
        [g0, g1, a0, a1, r0, r1, r2, r3]
    }

    /// Whether the tags exempt the block from checks.
    fn is_escape(self, kind: ProtectionType) -> bool {
        self.app_tag == u16::MAX && (kind != ProtectionType::Type3 || self.ref_tag == u32::MAX)
    }
}

/// Computes the guard of a block's data.
#[inline]
pub fn guard(data: &[u8]) -> u16 {
    checksum(CrcAlgorithm::Crc16T10Dif, data) as u16
}

/// How a command handles protection information (PRINFO and the tags).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// PRACT: the controller inserts it on a write, and strips it on a read. Otherwise it travels
    /// with the data.
    pub pract: bool,
    /// PRCHK: the guard is checked.
    pub checks_guard: bool,
    /// PRCHK: the bits of `app_mask` in the application tag are checked.
    pub checks_app_tag: bool,
    /// PRCHK: the reference tag is checked.
    pub checks_ref_tag: bool,
    /// ILBRT or EILBRT: the reference tag of the first block.
    pub ref_tag: u32,
    /// LBAT or ELBAT: the expected application tag.
    pub app_tag: u16,
    /// LBATM or ELBATM: the bits of the application tag that are checked.
    pub app_mask: u16,
}

const PRACT: u32 = 1 << 29;
const CHECK_GUARD: u32 = 1 << 28;
const CHECK_APP_TAG: u32 = 1 << 27;
const CHECK_REF_TAG: u32 = 1 << 26;

impl Action {
    /// Reads the action of a command.
    #[inline]
    pub fn of(command: &Command) -> Action {
        let [_, _, info, _, ref_tag, app] = command.cdw10;
        Action {
            pract: info & PRACT != 0,
            checks_guard: info & CHECK_GUARD != 0,
            checks_app_tag: info & CHECK_APP_TAG != 0,
            checks_ref_tag: info & CHECK_REF_TAG != 0,
            ref_tag,
            app_tag: app as u16,
            app_mask: (app >> 16) as u16,
        }
    }

    /// Adds the action to dwords 10 to 15 of a command.
    #[must_use]
    pub fn put(self, mut cdw10: [u32; 6]) -> [u32; 6] {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        cdw10[2] &= !PROTECTION;
        cdw10[2] |= bit(self.pract, PRACT) | bit(self.checks_guard, CHECK_GUARD);
        cdw10[2] |= bit(self.checks_app_tag, CHECK_APP_TAG) | bit(self.checks_ref_tag, CHECK_REF_TAG);
        cdw10[4] = self.ref_tag;
        cdw10[5] = u32::from(self.app_mask) << 16 | u32::from(self.app_tag);
        cdw10
    }

    /// Whether protection information travels with the blocks and is not checked.
    #[inline]
    pub fn is_none(command: &Command) -> bool {
        command.cdw10[2] & PROTECTION == 0
    }

    fn checks(&self) -> bool {
        self.checks_guard || self.checks_app_tag || self.checks_ref_tag
    }
}

/// The layout of the blocks of a protected namespace, in a store or on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The protection type.
    pub kind: ProtectionType,
    /// Length of a block's data, bytes.
    pub block_bytes: u32,
}

/// A block whose protection information is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The block's index in the command.
    pub index: u32,
    /// The status that names the tag.
    pub status: Status,
}

impl Protection {
    /// Length of a block with its protection information, bytes.
    #[inline]
    pub const fn extended_bytes(&self) -> u32 {
        self.block_bytes + PROTECTION_BYTES
    }

    /// Checks that the specification allows the command's action.
    ///
    /// # Errors
    /// A checked reference tag of type 1 that differs from the first block's number, or of type 3;
    /// PRACT in a Compare or Verify; a check in a Write Zeroes.
    pub fn allow(&self, command: &Command) -> Result<(), Status> {
        let action = Action::of(command);
        let slba = ReadWrite::of(command).slba as u32;
        let is_wrong = match (self.kind, command.opcode) {
            (_, io::COMPARE | io::VERIFY) if action.pract => true,
            (_, io::WRITE_ZEROES) if action.checks() => true,
            (ProtectionType::Type1, _) => action.checks_ref_tag && action.ref_tag != slba,
            (ProtectionType::Type2, _) => false,
            (ProtectionType::Type3, _) => action.checks_ref_tag,
        };
        if is_wrong { Err(Status::INVALID_PROTECTION_INFORMATION.do_not_retry()) } else { Ok(()) }
    }

    /// The bytes of `blocks` blocks on the wire.
    #[inline]
    pub fn wire_bytes(&self, action: Action, blocks: u32) -> u64 {
        let bytes = if action.pract { self.block_bytes } else { self.extended_bytes() };
        u64::from(blocks) * u64::from(bytes)
    }

    fn ref_tag(&self, action: Action, index: u32) -> u32 {
        match self.kind {
            ProtectionType::Type1 | ProtectionType::Type2 => action.ref_tag.wrapping_add(index),
            ProtectionType::Type3 => action.ref_tag,
        }
    }

    /// Checks extended blocks. `first` is the first one's index in the command.
    ///
    /// # Errors
    /// The first wrong block.
    pub fn check(&self, action: Action, first: u32, blocks: &[u8]) -> Result<(), Wrong> {
        if !action.checks() {
            return Ok(());
        }
        for (at, block) in blocks.chunks_exact(self.extended_bytes() as usize).enumerate() {
            let index = first.wrapping_add(at as u32);
            let (data, behind) = block.split_at(self.block_bytes as usize);
            let tuple = Tuple::read(behind);
            if tuple.is_escape(self.kind) {
                continue;
            }
            let is_other = |one: u16, other: u16| (one ^ other) & action.app_mask != 0;
            let status = if action.checks_guard && tuple.guard != guard(data) {
                Status::GUARD_CHECK_ERROR
            } else if action.checks_app_tag && is_other(tuple.app_tag, action.app_tag) {
                Status::APPLICATION_TAG_CHECK_ERROR
            } else if action.checks_ref_tag && tuple.ref_tag != self.ref_tag(action, index) {
                Status::REFERENCE_TAG_CHECK_ERROR
            } else {
                continue;
            };
            return Err(Wrong { index, status });
        }
        Ok(())
    }

    /// Inserts protection information: `bytes` has the length of the extended blocks, and at its
    /// front the data alone. `first` is the first block's index in the command.
    pub fn insert(&self, action: Action, first: u32, bytes: &mut [u8]) {
        let (data, extended) = (self.block_bytes as usize, self.extended_bytes() as usize);
        let blocks = bytes.len() / extended;
        // Last block first, so that no data is overwritten.
        for at in (0..blocks).rev() {
            if at > 0 {
                bytes.copy_within(at * data..(at + 1) * data, at * extended);
            }
            let (block, behind) = bytes[at * extended..(at + 1) * extended].split_at_mut(data);
            let ref_tag = self.ref_tag(action, first.wrapping_add(at as u32));
            behind.copy_from_slice(&Tuple { guard: guard(block), app_tag: action.app_tag, ref_tag }.to_bytes());
        }
    }

    /// Strips protection information: moves the data of extended blocks to the front, and returns
    /// its length.
    pub fn strip(&self, bytes: &mut [u8]) -> usize {
        let (data, extended) = (self.block_bytes as usize, self.extended_bytes() as usize);
        let blocks = bytes.len() / extended;
        for at in 1..blocks {
            bytes.copy_within(at * extended..at * extended + data, at * data);
        }
        blocks * data
    }

    /// Iterates over the data of extended blocks.
    pub fn data<'a>(&self, blocks: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let data = self.block_bytes as usize;
        blocks.chunks_exact(self.extended_bytes() as usize).map(move |block| &block[..data])
    }

    /// Iterates over the protection information of extended blocks, as bytes.
    pub fn behind<'a>(&self, blocks: &'a mut [u8]) -> impl Iterator<Item = &'a mut [u8]> + use<'a> {
        let data = self.block_bytes as usize;
        blocks.chunks_exact_mut(self.extended_bytes() as usize).map(move |block| &mut block[data..])
    }
}
