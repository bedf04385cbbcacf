//! Results of `ibv_query_qp(3)`, comparable.

use super::attr::State;
use rdma_sys::{ibv_ah_attr, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr};
use std::fmt;

/// `struct ibv_qp_attr` as queried.
pub(crate) struct Queried {
    raw: ibv_qp_attr,
    pub(crate) sig_all: bool,
}

impl Queried {
    pub(super) fn new(raw: ibv_qp_attr, init: &ibv_qp_init_attr) -> Queried {
        Queried { raw, sig_all: init.sq_sig_all != 0 }
    }

    /// The state; `None` for a number without a state.
    pub(crate) fn state(&self) -> Option<State> {
        State::from_raw(self.raw.qp_state)
    }

    pub(crate) fn sq_draining(&self) -> bool {
        self.raw.sq_draining != 0
    }

    pub(crate) fn cap(&self) -> ibv_qp_cap {
        self.raw.cap
    }

    /// The value of an attribute, by its name in `struct ibv_qp_attr`.
    pub(crate) fn field(&self, name: &str) -> u64 {
        let found = self.fields().into_iter().find(|(field, _)| *field == name);
        found.unwrap_or_else(|| panic!("no attribute {name}")).1
    }

    /// Every attribute that a program can set, with the fields of the primary path.
    fn fields(&self) -> Vec<(&'static str, u64)> {
        let raw = &self.raw;
        let ah = &raw.ah_attr;
        // SAFETY: the call that filled them initialised all sixteen bytes, or they are zero.
        let dgid = |ah: &ibv_ah_attr| unsafe { ah.grh.dgid.raw };
        let tail = |ah: &ibv_ah_attr| u64::from_be_bytes(dgid(ah)[8..].try_into().expect("eight bytes"));
        vec![
            ("qp_state", raw.qp_state.into()),
            ("path_mtu", raw.path_mtu.into()),
            ("path_mig_state", raw.path_mig_state.into()),
            ("qkey", raw.qkey.into()),
            ("rq_psn", raw.rq_psn.into()),
            ("sq_psn", raw.sq_psn.into()),
            ("dest_qp_num", raw.dest_qp_num.into()),
            ("qp_access_flags", raw.qp_access_flags.into()),
            ("cap.max_send_wr", raw.cap.max_send_wr.into()),
            ("cap.max_recv_wr", raw.cap.max_recv_wr.into()),
            ("cap.max_send_sge", raw.cap.max_send_sge.into()),
            ("cap.max_recv_sge", raw.cap.max_recv_sge.into()),
            ("cap.max_inline_data", raw.cap.max_inline_data.into()),
            ("ah_attr.is_global", ah.is_global.into()),
            ("ah_attr.grh.dgid (low half)", tail(ah)),
            ("ah_attr.grh.sgid_index", ah.grh.sgid_index.into()),
            ("ah_attr.port_num", ah.port_num.into()),
            ("pkey_index", raw.pkey_index.into()),
            ("max_rd_atomic", raw.max_rd_atomic.into()),
            ("max_dest_rd_atomic", raw.max_dest_rd_atomic.into()),
            ("min_rnr_timer", raw.min_rnr_timer.into()),
            ("port_num", raw.port_num.into()),
            ("timeout", raw.timeout.into()),
            ("retry_cnt", raw.retry_cnt.into()),
            ("rnr_retry", raw.rnr_retry.into()),
            ("ah_attr.grh.hop_limit", ah.grh.hop_limit.into()),
            ("alt_ah_attr.grh.dgid (low half)", tail(&raw.alt_ah_attr)),
            ("alt_ah_attr.grh.hop_limit", raw.alt_ah_attr.grh.hop_limit.into()),
            ("alt_pkey_index", raw.alt_pkey_index.into()),
            ("alt_port_num", raw.alt_port_num.into()),
            ("alt_timeout", raw.alt_timeout.into()),
        ]
    }

    /// The differences in `later`; empty if there are none.
    pub(crate) fn changes(&self, later: &Queried) -> Vec<Change> {
        let pairs = self.fields().into_iter().zip(later.fields());
        pairs.filter(|(old, new)| old != new).map(|((name, old), (_, new))| Change { name, old, new }).collect()
    }
}

/// An attribute that differs in another query.
#[derive(PartialEq, Eq)]
pub(crate) struct Change {
    name: &'static str,
    old: u64,
    new: u64,
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.name, self.old, self.new)
    }
}
