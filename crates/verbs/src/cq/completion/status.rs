//! Statuses and opcodes of completions, by the numbers of verbs.h; a number without a name is kept.

use std::fmt;

use rdma_sys::ibv_wc_opcode;

/// How a work request ended (`enum ibv_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Status(u32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status($value);)*

            fn text(self) -> Option<(&'static str, &'static str)> {
                match self {
                    $(Status::$name => Some((stringify!($name), $text)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Success.
    SUCCESS = 0, "done";
    /// The message does not fit the buffer, or is longer than the port carries.
    LOC_LEN_ERR = 1, "the message is longer than the posted buffer or than the port carries";
    /// The work request is not valid on this QP.
    LOC_QP_OP_ERR = 2, "the work request is not valid on this QP";
    /// Internal to the discontinued RD transport.
    LOC_EEC_OP_ERR = 3, "local end-to-end context error";
    /// The buffer is not registered, not on this PD, or without the access needed.
    LOC_PROT_ERR = 4, "the local buffer is not registered on this PD, or not for this access";
    /// Flushed: the QP went to ERR before the work request was done.
    WR_FLUSH_ERR = 5, "flushed, because the QP went to ERR";
    /// A memory window could not be bound.
    MW_BIND_ERR = 6, "the memory window could not be bound";
    /// The peer's answer violates the specification.
    BAD_RESP_ERR = 7, "the peer's answer was not a valid one";
    /// The receive buffer may not be written.
    LOC_ACCESS_ERR = 8, "the receive buffer may not be written";
    /// The peer found the request invalid.
    REM_INV_REQ_ERR = 9, "the peer found the request invalid (too long, or not enabled there)";
    /// The peer's memory may not be accessed in this way.
    REM_ACCESS_ERR = 10, "the peer's R_Key, range or access flags do not allow it";
    /// The peer could not carry out the request.
    REM_OP_ERR = 11, "the peer could not carry it out";
    /// No answer after all retries.
    RETRY_EXC_ERR = 12, "no answer after all retries: the peer is gone, or not in RTR";
    /// The peer had no receive posted, after all RNR retries.
    RNR_RETRY_EXC_ERR = 13, "the peer had no receive posted, after all RNR retries";
    /// Internal to the discontinued RD transport.
    LOC_RDD_VIOL_ERR = 14, "local RDD violation";
    /// Internal to the discontinued RD transport.
    REM_INV_RD_REQ_ERR = 15, "remote invalid RD request";
    /// The peer aborted.
    REM_ABORT_ERR = 16, "the peer aborted it";
    /// Internal to the discontinued RD transport.
    INV_EECN_ERR = 17, "invalid end-to-end context number";
    /// Internal to the discontinued RD transport.
    INV_EEC_STATE_ERR = 18, "invalid end-to-end context state";
    /// The device failed.
    FATAL_ERR = 19, "the device failed";
    /// The answer took too long.
    RESP_TIMEOUT_ERR = 20, "the answer took too long";
    /// An error that the device does not explain.
    GENERAL_ERR = 21, "an error that the device does not explain";
}

impl Status {
    /// The status with this number in verbs.h.
    #[inline]
    pub fn from_raw(raw: u32) -> Status {
        Status(raw)
    }

    /// Its name in verbs.h without `IBV_WC_`, or `UNKNOWN`.
    pub fn name(self) -> &'static str {
        self.text().map_or("UNKNOWN", |(name, _)| name)
    }

    /// The number in verbs.h.
    pub fn raw(self) -> u32 {
        self.0
    }

    /// Whether the work request succeeded.
    pub fn is_success(self) -> bool {
        self == Status::SUCCESS
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some((name, text)) => write!(f, "IBV_WC_{name} ({text})"),
            None => write!(f, "completion status {} (unknown to verbs.h)", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "Status({})", self.0),
        }
    }
}

/// The operation that a completion is for (`enum ibv_wc_opcode`). Valid only when the status is
/// success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// A send, with or without immediate data or invalidation.
    Send,
    /// An RDMA WRITE.
    RdmaWrite,
    /// An RDMA READ.
    RdmaRead,
    /// A compare-and-swap.
    CompSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A memory window bound.
    BindMw,
    /// A local key invalidated.
    LocalInv,
    /// A message received.
    Recv,
    /// An RDMA WRITE with immediate data arrived: the data is in the written memory, not in the
    /// receive buffer.
    RecvRdmaWithImm,
    /// A value that this crate does not name.
    Unknown(u32),
}

impl WcOpcode {
    pub(super) fn from_raw(raw: u32) -> WcOpcode {
        match raw {
            ibv_wc_opcode::IBV_WC_SEND => WcOpcode::Send,
            ibv_wc_opcode::IBV_WC_RDMA_WRITE => WcOpcode::RdmaWrite,
            ibv_wc_opcode::IBV_WC_RDMA_READ => WcOpcode::RdmaRead,
            ibv_wc_opcode::IBV_WC_COMP_SWAP => WcOpcode::CompSwap,
            ibv_wc_opcode::IBV_WC_FETCH_ADD => WcOpcode::FetchAdd,
            ibv_wc_opcode::IBV_WC_BIND_MW => WcOpcode::BindMw,
            ibv_wc_opcode::IBV_WC_LOCAL_INV => WcOpcode::LocalInv,
            ibv_wc_opcode::IBV_WC_RECV => WcOpcode::Recv,
            ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvRdmaWithImm,
            other => WcOpcode::Unknown(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_numbers_are_kept() {
        assert_eq!(Status(99).to_string(), "completion status 99 (unknown to verbs.h)");
        assert_eq!(WcOpcode::from_raw(200), WcOpcode::Unknown(200));
        assert!(!Status(99).is_success());
    }

    #[test]
    fn a_status_says_its_name_and_what_it_means() {
        assert_eq!(Status(5).to_string(), "IBV_WC_WR_FLUSH_ERR (flushed, because the QP went to ERR)");
        assert_eq!(format!("{:?}", Status(12)), "RETRY_EXC_ERR");
    }
}
