//! Work requests, as plain values that need not be valid.

use super::ah::Ah;
use super::mw::{Mw, Window};
use super::sge::{Remote, Sge};
use rdma_sys::{ibv_send_flags as flag, ibv_wr_opcode as op};

/// `enum ibv_wr_opcode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Write = op::IBV_WR_RDMA_WRITE as isize,
    WriteImm = op::IBV_WR_RDMA_WRITE_WITH_IMM as isize,
    Send = op::IBV_WR_SEND as isize,
    SendImm = op::IBV_WR_SEND_WITH_IMM as isize,
    Read = op::IBV_WR_RDMA_READ as isize,
    CmpSwap = op::IBV_WR_ATOMIC_CMP_AND_SWP as isize,
    FetchAdd = op::IBV_WR_ATOMIC_FETCH_AND_ADD as isize,
    LocalInv = op::IBV_WR_LOCAL_INV as isize,
    BindMw = op::IBV_WR_BIND_MW as isize,
    SendInv = op::IBV_WR_SEND_WITH_INV as isize,
    /// No opcode at all.
    Nonsense = 200,
}

/// The operation's parameters beside local memory.
#[derive(Clone)]
pub(super) enum Target {
    None,
    Rdma(Remote),
    Atomic { remote: Remote, compare_add: u64, swap: u64 },
    Ud { ah: Ah, qpn: u32, qkey: u32 },
    Bind { mw: Mw, rkey: u32, window: Window },
}

/// `struct ibv_send_wr`, signaled by default.
#[derive(Clone)]
pub(crate) struct Wr {
    pub(super) id: u64,
    pub(super) op: Op,
    pub(super) flags: u32,
    pub(super) sges: Vec<Sge>,
    /// `imm_data` in the structure's byte order, or the key to invalidate.
    pub(super) word: u32,
    pub(super) target: Target,
}

impl Wr {
    fn new(id: u64, op: Op, target: Target) -> Wr {
        Wr { id, op, flags: flag::IBV_SEND_SIGNALED.0, sges: Vec::new(), word: 0, target }
    }

    pub(crate) fn send(id: u64) -> Wr {
        Wr::new(id, Op::Send, Target::None)
    }

    pub(crate) fn write(id: u64, remote: Remote) -> Wr {
        Wr::new(id, Op::Write, Target::Rdma(remote))
    }

    pub(crate) fn read(id: u64, remote: Remote) -> Wr {
        Wr::new(id, Op::Read, Target::Rdma(remote))
    }

    pub(crate) fn cmp_swap(id: u64, remote: Remote, compare: u64, swap: u64) -> Wr {
        Wr::new(id, Op::CmpSwap, Target::Atomic { remote, compare_add: compare, swap })
    }

    pub(crate) fn fetch_add(id: u64, remote: Remote, add: u64) -> Wr {
        Wr::new(id, Op::FetchAdd, Target::Atomic { remote, compare_add: add, swap: 0 })
    }

    pub(crate) fn local_inv(id: u64, rkey: u32) -> Wr {
        Wr { word: rkey, ..Wr::new(id, Op::LocalInv, Target::None) }
    }

    /// Binds a type 2 window, whose key is `rkey` from then on.
    pub(crate) fn bind(id: u64, mw: &Mw, rkey: u32, window: &Window) -> Wr {
        Wr::new(id, Op::BindMw, Target::Bind { mw: mw.clone(), rkey, window: window.clone() })
    }

    /// Makes a SEND or RDMA WRITE carry immediate data, in host order here.
    pub(crate) fn imm(mut self, imm: u32) -> Wr {
        self.op = match self.op {
            Op::Send => Op::SendImm,
            Op::Write => Op::WriteImm,
            other => other,
        };
        self.word = imm.to_be();
        self
    }

    /// Makes a SEND invalidate the peer's `rkey`.
    pub(crate) fn invalidate(self, rkey: u32) -> Wr {
        Wr { op: Op::SendInv, word: rkey, ..self }
    }

    /// Sets any opcode, whatever the other fields.
    pub(crate) fn op(self, op: Op) -> Wr {
        Wr { op, ..self }
    }

    /// Sets the receiver of a UD send.
    pub(crate) fn to(self, ah: &Ah, qpn: u32, qkey: u32) -> Wr {
        Wr { target: Target::Ud { ah: ah.clone(), qpn, qkey }, ..self }
    }

    /// Adds a scatter/gather entry.
    pub(crate) fn sge(mut self, sge: Sge) -> Wr {
        self.sges.push(sge);
        self
    }

    pub(crate) fn unsignaled(mut self) -> Wr {
        self.flags &= !flag::IBV_SEND_SIGNALED.0;
        self
    }

    pub(crate) fn solicited(mut self) -> Wr {
        self.flags |= flag::IBV_SEND_SOLICITED.0;
        self
    }

    pub(crate) fn fenced(mut self) -> Wr {
        self.flags |= flag::IBV_SEND_FENCE.0;
        self
    }

    pub(crate) fn inline(mut self) -> Wr {
        self.flags |= flag::IBV_SEND_INLINE.0;
        self
    }

    pub(super) fn is_inline(&self) -> bool {
        self.flags & flag::IBV_SEND_INLINE.0 != 0
    }
}

/// `struct ibv_recv_wr`.
#[derive(Clone, Debug)]
pub(crate) struct Recv {
    pub(super) id: u64,
    pub(super) sges: Vec<Sge>,
}

impl Recv {
    pub(crate) fn new(id: u64) -> Recv {
        Recv { id, sges: Vec::new() }
    }

    /// Adds a scatter/gather entry.
    pub(crate) fn sge(mut self, sge: Sge) -> Recv {
        self.sges.push(sge);
        self
    }
}
