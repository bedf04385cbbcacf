//! The faults of a message.

use crate::book::BookError;
use crate::itch::ItchError;

/// The locate code of a message, if it is long enough for one.
pub(super) fn locate_of(message: &[u8]) -> Option<u16> {
    message.get(1..3)?.try_into().ok().map(u16::from_be_bytes)
}

/// The fault of a message.
pub(super) enum Fault {
    /// The message contradicts the books; its locate code.
    Contradiction(u16, BookError),
    /// The message leaves this book crossed.
    Crossed(u16),
    /// The message is not ITCH; its locate code, unless its type may be one of another version.
    Malformed(Option<u16>),
}

impl Fault {
    #[cold]
    pub(super) fn malformed(message: &[u8], error: ItchError) -> Fault {
        Fault::Malformed(locate_of(message).filter(|_| !matches!(error, ItchError::UnknownType { .. })))
    }
}
