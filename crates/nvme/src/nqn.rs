//! Names of hosts and subsystems.

use std::fmt;

use crate::bytes::{put, text_at};

/// The longest name, bytes.
pub const NQN_BYTES: usize = 223;
/// The length of the field of a name, bytes: zeros follow it.
pub const NQN_FIELD_BYTES: usize = 256;

/// The name of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// An NVMe Qualified Name. By the specification it begins with `nqn.`; any other beginning is taken
/// as well, since Linux allows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nqn {
    len: u8,
    bytes: [u8; NQN_BYTES],
}

/// A text that is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NqnError {
    /// The text is empty, or longer than 223 bytes.
    #[error("a name has 1 to 223 bytes, not {0}")]
    Length(usize),
    /// The text has spaces, or characters other than printable ASCII.
    #[error("a name is of printable ASCII without spaces")]
    NotPrintable,
}

impl Nqn {
    /// Makes a name of a text.
    ///
    /// # Errors
    /// The length or a character is wrong.
    pub fn new(text: &str) -> Result<Nqn, NqnError> {
        if text.is_empty() || text.len() > NQN_BYTES {
            return Err(NqnError::Length(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(NqnError::NotPrintable);
        }
        let mut bytes = [0; NQN_BYTES];
        put(&mut bytes, 0, text.as_bytes());
        Ok(Nqn { len: text.len() as u8, bytes })
    }

    /// Reads the name in a field of 256 bytes; `None` if it is no name.
    pub fn read(bytes: &[u8], at: usize) -> Option<Nqn> {
        let field = bytes.get(at..at.checked_add(NQN_FIELD_BYTES)?)?;
        let end = field.iter().position(|byte| *byte == 0)?;
        text_at(field, 0, end).filter(|text| text.len() == end).and_then(|text| Nqn::new(text).ok())
    }

    /// Writes the name to a field of 256 bytes.
    pub(crate) fn write(&self, bytes: &mut [u8], at: usize) {
        put(bytes, at, &[0; NQN_FIELD_BYTES]);
        put(bytes, at, self.as_str().as_bytes());
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
