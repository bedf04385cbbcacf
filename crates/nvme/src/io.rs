//! The NVM command set: the block ranges of its commands.

use crate::bytes::{put, u32_at, u64_at};
use crate::command::Command;

/// The blocks of a Read, Write, Compare, Write Zeroes or Verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWrite {
    /// The first block.
    pub slba: u64,
    /// The number of blocks: 1 to 65,536.
    pub blocks: u32,
}

/// Dword 12: the write is durable before its response.
pub const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// Dword 12 of Write Zeroes: the blocks may be deallocated.
pub const DEALLOCATE: u32 = 1 << 25;
/// Dword 12: PRACT and PRCHK, the handling of protection information.
pub const PROTECTION: u32 = 0xF << 26;

impl ReadWrite {
    /// Reads the range of a command.
    #[inline]
    pub fn of(command: &Command) -> ReadWrite {
        ReadWrite { slba: command.u64_of(10), blocks: (command.cdw10[2] & 0xFFFF) + 1 }
    }

    /// Returns dwords 10 to 15 of a command for the range.
    #[inline]
    pub fn dwords(&self) -> [u32; 6] {
        [self.slba as u32, (self.slba >> 32) as u32, self.blocks.wrapping_sub(1) & 0xFFFF, 0, 0, 0]
    }

    /// Returns the byte offset and the length in a namespace of `blocks` blocks of
    /// `1 << block_shift` bytes. `None` if the range goes past the end.
    #[inline]
    pub fn bytes_within(&self, blocks: u64, block_shift: u32) -> Option<(u64, u64)> {
        let end = self.slba.checked_add(self.blocks.into())?;
        (end <= blocks).then_some((self.slba << block_shift, u64::from(self.blocks) << block_shift))
    }
}

/// Length of a Dataset Management range, bytes.
pub const DSM_RANGE_BYTES: usize = 16;
/// Dword 11 of Dataset Management: the ranges may be deallocated.
pub const DSM_DEALLOCATE: u32 = 1 << 2;

/// A range of a Dataset Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DsmRange {
    /// Context attributes.
    pub attributes: u32,
    /// The number of blocks.
    pub blocks: u32,
    /// The first block.
    pub slba: u64,
}

impl DsmRange {
    /// Reads the number of ranges of a command.
    pub fn count_of(command: &Command) -> usize {
        (command.cdw10[0] & 0xFF) as usize + 1
    }

    /// Reads the ranges in `data`. An incomplete range at the end is ignored.
    pub fn read_all(data: &[u8]) -> impl Iterator<Item = DsmRange> {
        data.chunks_exact(DSM_RANGE_BYTES).map(|bytes| DsmRange {
            attributes: u32_at(bytes, 0),
            blocks: u32_at(bytes, 4),
            slba: u64_at(bytes, 8),
        })
    }

    /// Returns the range as on the wire.
    pub fn to_bytes(&self) -> [u8; DSM_RANGE_BYTES] {
        let mut bytes = [0; DSM_RANGE_BYTES];
        put(&mut bytes, 0, &self.attributes.to_le_bytes());
        put(&mut bytes, 4, &self.blocks.to_le_bytes());
        put(&mut bytes, 8, &self.slba.to_le_bytes());
        bytes
    }
}
