//! The SGL descriptor of a command: the place of its data.

use crate::bytes::{array, put, u32_at, u64_at};
use crate::error::FieldError;
use crate::status::Status;

/// The place of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// In the capsule, behind the command.
    InCapsule {
        /// The offset from the end of the command plus the controller's ICDOFF.
        offset: u64,
        /// The length, bytes.
        len: u32,
    },
    /// In the host's memory, reached by a remote key.
    Keyed {
        /// The address in the host's memory.
        addr: u64,
        /// The length, bytes; 24 bits on the wire.
        len: u32,
        /// The remote key.
        key: u32,
        /// The response shall invalidate the key (SEND with invalidate).
        invalidate: bool,
    },
}

/// Length on the wire, bytes.
pub(crate) const SGL_BYTES: usize = 16;
/// The offset of the descriptor in a command.
const AT: usize = 24;

const IN_CAPSULE: u8 = 0x01;
const KEYED: u8 = 0x40;
const KEYED_INVALIDATE: u8 = 0x4F;

impl Sgl {
    /// No data.
    pub const NONE: Sgl = Sgl::Keyed { addr: 0, len: 0, key: 0, invalidate: false };

    /// Returns the length of the data, bytes.
    pub fn len_bytes(self) -> usize {
        match self {
            Sgl::InCapsule { len, .. } | Sgl::Keyed { len, .. } => len as usize,
        }
    }

    /// Returns the key that the response shall invalidate.
    pub fn invalidated_key(self) -> Option<u32> {
        match self {
            Sgl::Keyed { key, invalidate: true, .. } => Some(key),
            Sgl::Keyed { .. } | Sgl::InCapsule { .. } => None,
        }
    }

    /// Reads a descriptor. Reserved bytes are ignored.
    pub(crate) fn read(bytes: &[u8; SGL_BYTES]) -> Result<Sgl, FieldError> {
        let [.., len0, len1, len2, key0, key1, key2, key3, identifier] = *bytes;
        match identifier {
            IN_CAPSULE => Ok(Sgl::InCapsule { offset: u64_at(bytes, 0), len: u32_at(bytes, 8) }),
            KEYED | KEYED_INVALIDATE => Ok(Sgl::Keyed {
                addr: u64_at(bytes, 0),
                len: u32::from_le_bytes([len0, len1, len2, 0]),
                key: u32::from_le_bytes([key0, key1, key2, key3]),
                invalidate: identifier == KEYED_INVALIDATE,
            }),
            other => Err(FieldError::new("SGL Identifier", AT + 15, other, Status::SGL_TYPE_INVALID.do_not_retry())),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; SGL_BYTES] {
        let mut bytes = [0; SGL_BYTES];
        match self {
            Sgl::InCapsule { offset, len } => {
                put(&mut bytes, 0, &offset.to_le_bytes());
                put(&mut bytes, 8, &len.to_le_bytes());
                bytes[15] = IN_CAPSULE;
            }
            Sgl::Keyed { addr, len, key, invalidate } => {
                put(&mut bytes, 0, &addr.to_le_bytes());
                put(&mut bytes, 8, &array::<3>(&len.to_le_bytes(), 0));
                put(&mut bytes, 11, &key.to_le_bytes());
                bytes[15] = if invalidate { KEYED_INVALIDATE } else { KEYED };
            }
        }
        bytes
    }
}
