//! The submission queue entry: the first 64 bytes of a command capsule.

use crate::bytes::{array, put, u16_at, u32_at, u64_at};
use crate::error::FieldError;
use crate::sgl::Sgl;
use crate::status::Status;

/// Length of a command, bytes. Data in the capsule follows.
pub const COMMAND_BYTES: usize = 64;

/// The fields that all commands have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The opcode: one of [`opcode`](crate::opcode).
    pub opcode: u8,
    /// The command identifier: unique among the commands under way on its queue.
    pub cid: u16,
    /// The namespace. In a Fabrics command the lowest byte is its type.
    pub nsid: u32,
    /// Dwords 2 and 3.
    pub cdw2: [u32; 2],
    /// The metadata pointer.
    pub metadata: u64,
    /// The SGL descriptor of its data.
    pub sgl: Sgl,
    /// Dwords 10 to 15.
    pub cdw10: [u32; 6],
}

/// Flags of a command on fabrics: not fused, and an SGL is used.
const SGL_USED: u8 = 0x40;
const FUSED: u8 = 0x3F;

impl Command {
    /// Makes a command whose other fields are 0.
    pub fn new(opcode: u8, cid: u16, sgl: Sgl) -> Command {
        Command { opcode, cid, nsid: 0, cdw2: [0; 2], metadata: 0, sgl, cdw10: [0; 6] }
    }

    /// Sets dwords 10 to 15.
    #[must_use]
    pub fn with(self, cdw10: [u32; 6]) -> Command {
        Command { cdw10, ..self }
    }

    /// Reads the identifier of a command that may be malformed otherwise, to answer it; `None` if
    /// the capsule is too short.
    pub fn cid_of(capsule: &[u8]) -> Option<u16> {
        (capsule.len() >= 4).then(|| u16_at(capsule, 2))
    }

    /// Reads the command of a capsule.
    ///
    /// # Errors
    /// The capsule is shorter than a command; the command is fused, has no SGL, or an SGL of a type
    /// that the RDMA transport lacks.
    #[inline]
    pub fn read(capsule: &[u8]) -> Result<Command, FieldError> {
        let Some(bytes) = capsule.first_chunk::<COMMAND_BYTES>() else {
            return Err(FieldError::short("Capsule Length", capsule.len()));
        };
        let flags = bytes[1];
        if flags & FUSED != 0 {
            return Err(FieldError::new("FUSE", 1, flags, Status::INVALID_FIELD.do_not_retry()));
        }
        if flags != SGL_USED {
            return Err(FieldError::new("PSDT", 1, flags, Status::INVALID_FIELD.do_not_retry()));
        }
        let mut cdw10 = [0; 6];
        for (index, dword) in cdw10.iter_mut().enumerate() {
            *dword = u32_at(bytes, 40 + 4 * index);
        }
        Ok(Command {
            opcode: bytes[0],
            cid: u16_at(bytes, 2),
            nsid: u32_at(bytes, 4),
            cdw2: [u32_at(bytes, 8), u32_at(bytes, 12)],
            metadata: u64_at(bytes, 16),
            sgl: Sgl::read(&array(bytes, 24))?,
            cdw10,
        })
    }

    /// Returns the command as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0] = self.opcode;
        bytes[1] = SGL_USED;
        put(&mut bytes, 2, &self.cid.to_le_bytes());
        put(&mut bytes, 4, &self.nsid.to_le_bytes());
        put(&mut bytes, 8, &self.cdw2[0].to_le_bytes());
        put(&mut bytes, 12, &self.cdw2[1].to_le_bytes());
        put(&mut bytes, 16, &self.metadata.to_le_bytes());
        put(&mut bytes, 24, &self.sgl.to_bytes());
        for (index, dword) in self.cdw10.iter().enumerate() {
            put(&mut bytes, 40 + 4 * index, &dword.to_le_bytes());
        }
        bytes
    }

    /// Returns two dwords as one number, from the dword `dword` on (10 is the first).
    pub(crate) fn u64_of(&self, dword: usize) -> u64 {
        let low = self.cdw10.get(dword - 10).copied().unwrap_or_default();
        let high = self.cdw10.get(dword - 9).copied().unwrap_or_default();
        u64::from(high) << 32 | u64::from(low)
    }
}
