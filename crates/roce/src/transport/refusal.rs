//! Requests that can't simply be carried out, and their consequences.

use crate::memory::Denied;
use crate::transport::counters::Discard;
use crate::wire::Syndrome;
use crate::work::Status;

/// A request that ends the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: u8,
    /// The status of the receive that its message was filling.
    pub(crate) local: Status,
}

pub(crate) const INVALID: Refusal = Refusal { code: Syndrome::NAK_INVALID_REQUEST, local: Status::Flushed };
pub(crate) const NO_ACCESS: Refusal = Refusal { code: Syndrome::NAK_REMOTE_ACCESS, local: Status::Flushed };

impl Refusal {
    /// The request used a key without the right to.
    pub(crate) fn is_access(&self) -> bool {
        self.code == Syndrome::NAK_REMOTE_ACCESS
    }
}

/// Why a request is not simply carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Halt {
    Discard(Discard),
    Refuse(Refusal),
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Halt {
        Halt::Refuse(refusal)
    }
}

impl From<Denied> for Halt {
    fn from(_: Denied) -> Halt {
        Halt::Refuse(NO_ACCESS)
    }
}
