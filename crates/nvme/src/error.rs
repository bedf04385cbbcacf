//! What is wrong with bytes that were read.

use crate::status::Status;

/// A field whose content is not one that may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} (byte {at}) is {value:#x}: {status}")]
pub struct FieldError {
    /// The field, by the name that the specification gives it.
    pub field: &'static str,
    /// Its first byte in what was read.
    pub at: usize,
    /// What is there; of what is too short, its length.
    pub value: u64,
    /// How a controller answers a command with it.
    pub status: Status,
}

impl FieldError {
    pub(crate) fn new(field: &'static str, at: usize, value: impl Into<u64>, status: Status) -> FieldError {
        FieldError { field, at, value: value.into(), status }
    }

    /// What was to be read is shorter than it must be.
    pub(crate) fn short(field: &'static str, len: usize) -> FieldError {
        FieldError { field, at: 0, value: len as u64, status: Status::INVALID_FIELD }
    }
}
