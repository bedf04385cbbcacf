//! Status codes of completed commands.

use std::fmt;

/// A status: its type (SCT), its code (SC), and whether the host shall try again (DNR).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

const DO_NOT_RETRY: u16 = 1 << 14;

macro_rules! statuses {
    ($($name:ident = $sct:literal, $sc:literal, $text:literal;)*) => {
        impl Status {
            $(
                #[doc = concat!($text, ".")]
                pub const $name: Status = Status(($sct << 8) | $sc);
            )*

            /// Returns the name in the specification; `None` if the status is not one of these.
            pub fn name(self) -> Option<&'static str> {
                match Status(self.0 & 0x07FF) {
                    $(Status::$name => Some($text),)*
                    Status::CONNECT_FORMAT => Some("Connect Incompatible Format"),
                    Status::CONNECT_INVALID_HOST => Some("Connect Invalid Host"),
                    Status::AUTHENTICATION_REQUIRED => Some("Authentication Required"),
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0, 0x00, "Successful Completion";
    INVALID_OPCODE = 0, 0x01, "Invalid Command Opcode";
    INVALID_FIELD = 0, 0x02, "Invalid Field in Command";
    ID_CONFLICT = 0, 0x03, "Command ID Conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "Data Transfer Error";
    INTERNAL_ERROR = 0, 0x06, "Internal Error";
    ABORT_REQUESTED = 0, 0x07, "Command Abort Requested";
    INVALID_NAMESPACE = 0, 0x0B, "Invalid Namespace or Format";
    SEQUENCE_ERROR = 0, 0x0C, "Command Sequence Error";
    INVALID_SGL_SEGMENT = 0, 0x0D, "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = 0, 0x0E, "Invalid Number of SGL Descriptors";
    SGL_DATA_LENGTH_INVALID = 0, 0x0F, "Data SGL Length Invalid";
    SGL_TYPE_INVALID = 0, 0x11, "SGL Descriptor Type Invalid";
    SGL_OFFSET_INVALID = 0, 0x16, "SGL Offset Invalid";
    HOST_ID_FORMAT = 0, 0x18, "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = 0, 0x19, "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = 0, 0x1A, "Keep Alive Timeout Invalid";
    SGL_DATA_BLOCK_GRANULARITY = 0, 0x1E, "SGL Data Block Granularity Invalid";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, "Namespace is Write Protected";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "Transient Transport Error";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA Out of Range";
    CAPACITY_EXCEEDED = 0, 0x81, "Capacity Exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "Namespace Not Ready";
    INVALID_QUEUE_ID = 1, 0x01, "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "Invalid Queue Size";
    ASYNC_EVENT_LIMIT = 1, 0x05, "Asynchronous Event Request Limit Exceeded";
    INVALID_LOG_PAGE = 1, 0x09, "Invalid Log Page";
    FEATURE_NOT_SAVEABLE = 1, 0x0D, "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0E, "Feature Not Changeable";
    INVALID_PROTECTION_INFORMATION = 1, 0x81, "Invalid Protection Information";
    ATTEMPTED_WRITE_TO_READ_ONLY = 1, 0x82, "Attempted Write to Read Only Range";
    WRITE_FAULT = 2, 0x80, "Write Fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, "Unrecovered Read Error";
    GUARD_CHECK_ERROR = 2, 0x82, "End-to-end Guard Check Error";
    APPLICATION_TAG_CHECK_ERROR = 2, 0x83, "End-to-end Application Tag Check Error";
    REFERENCE_TAG_CHECK_ERROR = 2, 0x84, "End-to-end Reference Tag Check Error";
    COMPARE_FAILURE = 2, 0x85, "Compare Failure";
}

/// Statuses of the Connect command. Other commands use the same numbers for other statuses.
impl Status {
    /// Connect Incompatible Format.
    pub const CONNECT_FORMAT: Status = Status(0x180);
    /// Connect Controller Busy.
    pub const CONNECT_BUSY: Status = Status(0x181);
    /// Connect Invalid Parameters: the response tells which ([`Response::invalid_parameter`]).
    ///
    /// [`Response::invalid_parameter`]: crate::Response::invalid_parameter
    pub const CONNECT_INVALID_PARAMETERS: Status = Status(0x182);
    /// Connect Invalid Host.
    pub const CONNECT_INVALID_HOST: Status = Status(0x184);
    /// Authentication Required: for any command on a queue that is not authenticated.
    pub const AUTHENTICATION_REQUIRED: Status = Status(0x191);
}

impl Status {
    /// Makes a status of a type (3 bits) and a code.
    pub const fn new(sct: u8, sc: u8) -> Status {
        Status(((sct as u16 & 7) << 8) | sc as u16)
    }

    /// Reads the status field of a response: bits 1 to 15, above the phase bit.
    pub const fn from_field(field: u16) -> Status {
        Status(field >> 1)
    }

    /// Returns the status field of a response. Fabrics have no phase: bit 0 is 0.
    pub const fn field(self) -> u16 {
        self.0 << 1
    }

    /// Returns the status code type.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// Returns the status code.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Sets DNR: the host shall not retry.
    #[must_use]
    pub const fn do_not_retry(self) -> Status {
        Status(self.0 | DO_NOT_RETRY)
    }

    /// Whether the host shall not retry (DNR).
    pub const fn is_final(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }

    /// Whether type and code are equal. DNR is ignored.
    pub const fn is(self, other: Status) -> bool {
        self.0 & 0x07FF == other.0 & 0x07FF
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        self.is(Status::SUCCESS)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:x}:{:02x})", self.sct(), self.sc()),
            None => write!(f, "status {:x}:{:02x}", self.sct(), self.sc()),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}{}", if self.is_final() { ", final" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_what_the_field_says() {
        // Invalid Field, do not retry: as nvmet answers a log that it does not know.
        assert_eq!(Status::INVALID_FIELD.do_not_retry().field(), 0x8004);
        assert_eq!(Status::from_field(0x8004), Status::INVALID_FIELD.do_not_retry());
        assert_eq!(Status::CONNECT_INVALID_PARAMETERS.field(), 0x0304);
        for field in (0..=u16::MAX).step_by(2) {
            let status = Status::from_field(field);
            assert_eq!(status.field(), field);
            assert!(Status::new(status.sct(), status.sc()).is(status), "{status}");
        }
    }
}
