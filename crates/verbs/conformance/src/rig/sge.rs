//! Names of memory in work requests, local and remote.

use rdma_sys::ibv_sge;

/// `struct ibv_sge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

impl Sge {
    pub(super) fn raw(self) -> ibv_sge {
        ibv_sge { addr: self.addr, length: self.length, lkey: self.lkey }
    }

    pub(crate) fn with_lkey(self, lkey: u32) -> Sge {
        Sge { lkey, ..self }
    }

    pub(crate) fn with_length(self, length: u32) -> Sge {
        Sge { length, ..self }
    }
}

/// The target of a one-sided operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

impl Remote {
    pub(crate) fn with_rkey(self, rkey: u32) -> Remote {
        Remote { rkey, ..self }
    }
}
