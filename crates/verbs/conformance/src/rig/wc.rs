//! Work completions, as plain values.

use rdma_sys::{ibv_wc, ibv_wc_flags, ibv_wc_opcode as op, ibv_wc_status as status};
use std::fmt;

/// `struct ibv_wc`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wc {
    pub(crate) id: u64,
    pub(crate) status: Status,
    /// `enum ibv_wc_opcode`; undefined after a failure.
    pub(crate) opcode: u32,
    pub(crate) bytes: u32,
    /// Immediate data in host order, if any.
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated_rkey: Option<u32>,
    pub(crate) qpn: u32,
    pub(crate) src_qpn: u32,
    pub(crate) has_grh: bool,
    pub(crate) slid: u16,
}

impl Wc {
    pub(super) fn from_raw(raw: &ibv_wc) -> Wc {
        let has = |flag: ibv_wc_flags| raw.wc_flags & flag.0 != 0;
        // SAFETY: both members of the union are 32 bits of the same place, of which every pattern
        // is a value.
        let word = unsafe { raw.imm_data_invalidated_rkey_union.imm_data };
        Wc {
            id: raw.wr_id,
            status: Status(raw.status),
            opcode: raw.opcode,
            bytes: raw.byte_len,
            imm: has(ibv_wc_flags::IBV_WC_WITH_IMM).then(|| u32::from_be(word)),
            invalidated_rkey: has(ibv_wc_flags::IBV_WC_WITH_INV).then_some(word),
            qpn: raw.qp_num,
            src_qpn: raw.src_qp,
            has_grh: has(ibv_wc_flags::IBV_WC_GRH),
            slid: raw.slid,
        }
    }

    pub(crate) fn ok(&self) -> bool {
        self.status == Status::SUCCESS
    }
}

impl fmt::Debug for Wc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{id {}, {:?}", self.id, self.status)?;
        if self.ok() {
            write!(f, ", opcode {}, {} bytes", self.opcode, self.bytes)?;
        }
        write!(f, "}}")
    }
}

/// `enum ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

macro_rules! statuses {
    ($($name:ident = $raw:ident;)*) => {
        impl Status {
            $(pub(crate) const $name: Status = Status(status::$raw);)*
            const NAMES: &[(Status, &str)] = &[$((Status::$name, stringify!($name)),)*];
        }
    };
}

statuses! {
    SUCCESS = IBV_WC_SUCCESS;
    LOC_LEN_ERR = IBV_WC_LOC_LEN_ERR;
    LOC_QP_OP_ERR = IBV_WC_LOC_QP_OP_ERR;
    LOC_PROT_ERR = IBV_WC_LOC_PROT_ERR;
    WR_FLUSH_ERR = IBV_WC_WR_FLUSH_ERR;
    MW_BIND_ERR = IBV_WC_MW_BIND_ERR;
    BAD_RESP_ERR = IBV_WC_BAD_RESP_ERR;
    LOC_ACCESS_ERR = IBV_WC_LOC_ACCESS_ERR;
    REM_INV_REQ_ERR = IBV_WC_REM_INV_REQ_ERR;
    REM_ACCESS_ERR = IBV_WC_REM_ACCESS_ERR;
    REM_OP_ERR = IBV_WC_REM_OP_ERR;
    RETRY_EXC_ERR = IBV_WC_RETRY_EXC_ERR;
    RNR_RETRY_EXC_ERR = IBV_WC_RNR_RETRY_EXC_ERR;
    FATAL_ERR = IBV_WC_FATAL_ERR;
    GENERAL_ERR = IBV_WC_GENERAL_ERR;
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Status::NAMES.iter().find(|(status, _)| status == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "status {}", self.0),
        }
    }
}

/// `enum ibv_wc_opcode` of send queue completions.
pub(crate) struct SendOp;

impl SendOp {
    pub(crate) const SEND: u32 = op::IBV_WC_SEND;
    pub(crate) const RDMA_WRITE: u32 = op::IBV_WC_RDMA_WRITE;
    pub(crate) const RDMA_READ: u32 = op::IBV_WC_RDMA_READ;
    pub(crate) const COMP_SWAP: u32 = op::IBV_WC_COMP_SWAP;
    pub(crate) const FETCH_ADD: u32 = op::IBV_WC_FETCH_ADD;
    pub(crate) const BIND_MW: u32 = op::IBV_WC_BIND_MW;
    pub(crate) const LOCAL_INV: u32 = op::IBV_WC_LOCAL_INV;
    pub(crate) const DRIVER1: u32 = op::IBV_WC_DRIVER1;
}

/// `enum ibv_wc_opcode` of receive queue completions.
pub(crate) struct RecvOp;

impl RecvOp {
    pub(crate) const RECV: u32 = op::IBV_WC_RECV;
    pub(crate) const RDMA_WITH_IMM: u32 = op::IBV_WC_RECV_RDMA_WITH_IMM;
}
