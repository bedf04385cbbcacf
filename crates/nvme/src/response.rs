//! The completion queue entry: the whole of a response capsule.

use crate::bytes::{put, u16_at, u64_at};
use crate::error::FieldError;
use crate::status::Status;

/// Length of a response, bytes.
pub const RESPONSE_BYTES: usize = 16;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Dwords 0 and 1: the result, specific to the command.
    pub result: u64,
    /// The controller's read position in the submission queue.
    pub sq_head: u16,
    /// The submission queue.
    pub sq_id: u16,
    /// The identifier of the command.
    pub cid: u16,
    /// The status.
    pub status: Status,
}

impl Response {
    /// Returns dword 0 for a Connect that ends with [`Status::CONNECT_INVALID_PARAMETERS`]: the
    /// offset of the wrong field, in the data or in the command.
    pub fn invalid_parameter(offset: u16, in_data: bool) -> u64 {
        u64::from(offset) | u64::from(in_data) << 16
    }

    /// Reads a response capsule.
    ///
    /// # Errors
    /// The capsule does not have [`RESPONSE_BYTES`] bytes.
    #[inline]
    pub fn read(capsule: &[u8]) -> Result<Response, FieldError> {
        let Ok(bytes) = <&[u8; RESPONSE_BYTES]>::try_from(capsule) else {
            return Err(FieldError::short("Response Length", capsule.len()));
        };
        Ok(Response {
            result: u64_at(bytes, 0),
            sq_head: u16_at(bytes, 8),
            sq_id: u16_at(bytes, 10),
            cid: u16_at(bytes, 12),
            status: Status::from_field(u16_at(bytes, 14)),
        })
    }

    /// Returns the response as on the wire.
    #[inline]
    pub fn to_bytes(&self) -> [u8; RESPONSE_BYTES] {
        let mut bytes = [0; RESPONSE_BYTES];
        put(&mut bytes, 0, &self.result.to_le_bytes());
        put(&mut bytes, 8, &self.sq_head.to_le_bytes());
        put(&mut bytes, 10, &self.sq_id.to_le_bytes());
        put(&mut bytes, 12, &self.cid.to_le_bytes());
        put(&mut bytes, 14, &self.status.field().to_le_bytes());
        bytes
    }
}
