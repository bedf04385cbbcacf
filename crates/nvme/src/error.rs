//! Errors of reading.

use crate::status::Status;

/// A field with an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} (byte {at}) is {value:#x}: {status}")]
pub struct FieldError {
    /// The field's name in the specification.
    pub field: &'static str,
    /// Its offset in the bytes that were read.
    pub at: usize,
    /// The value; the number of bytes, where there were too few.
    pub value: u64,
    /// The status by which a controller answers such a command.
    pub status: Status,
}

impl FieldError {
    pub(crate) fn new(field: &'static str, at: usize, value: impl Into<u64>, status: Status) -> FieldError {
        FieldError { field, at, value: value.into(), status }
    }

    /// The error of a structure that is too short.
    pub(crate) fn short(field: &'static str, len: usize) -> FieldError {
        FieldError { field, at: 0, value: len as u64, status: Status::INVALID_FIELD }
    }
}
