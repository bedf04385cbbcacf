//! Attributes of a queue pair to modify, with any mask.

use super::access::Access;
use super::port::{Gid, PORT, PortFacts};
use rdma_sys::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr};
pub(crate) use verbline_softnic::qp_table::{AttrMask, State, Transport};

/// `struct ibv_qp_attr` and its mask.
pub(crate) struct Attr {
    pub(super) raw: ibv_qp_attr,
    pub(crate) mask: AttrMask,
}

impl Clone for Attr {
    fn clone(&self) -> Attr {
        Attr { raw: copy(&self.raw), mask: self.mask }
    }
}

/// A copy; rdma-sys derives no `Clone` for the structure.
pub(super) fn copy(raw: &ibv_qp_attr) -> ibv_qp_attr {
    // SAFETY: integers and unions of integers: a copy of the bytes is a copy of the value.
    unsafe { std::ptr::read(raw) }
}

/// Every attribute has a valid value from the start; a setter changes one and adds it to the mask.
impl Attr {
    /// An empty mask; attributes added to it later have valid values for a queue pair on `port`
    /// that talks to this one on `far`.
    pub(crate) fn valid(port: &PortFacts, far: &PortFacts, peer_qpn: u32) -> Attr {
        // SAFETY: integers only, of which 0 is a value of each enumeration here but path_mtu's, set
        // below.
        let mut raw: ibv_qp_attr = unsafe { std::mem::zeroed() };
        raw.path_mtu = port.attr.active_mtu.min(far.attr.active_mtu);
        raw.qkey = Attr::QKEY;
        raw.rq_psn = Attr::PSN;
        raw.sq_psn = Attr::PSN;
        raw.dest_qp_num = peer_qpn;
        raw.qp_access_flags = Access::ALL.0;
        raw.ah_attr = ah_attr(port, &far.gid);
        raw.alt_ah_attr = raw.ah_attr;
        raw.alt_port_num = PORT;
        raw.alt_timeout = 14;
        raw.port_num = PORT;
        raw.max_rd_atomic = 4;
        raw.max_dest_rd_atomic = 4;
        raw.min_rnr_timer = 1;
        // 4.096 us << 14 is 67 ms; seven times is enough for a busy machine to answer.
        raw.timeout = 14;
        raw.retry_cnt = 7;
        raw.rnr_retry = 7;
        raw.rate_limit = 1000;
        raw.cap.max_send_wr = 8;
        raw.cap.max_recv_wr = 8;
        raw.cap.max_send_sge = 1;
        raw.cap.max_recv_sge = 1;
        Attr { raw, mask: AttrMask::NONE }
    }

    /// The Q_Key of every UD queue pair here, unless a row uses another.
    pub(crate) const QKEY: u32 = 0x1111_1111;
    /// The first PSN that every queue pair here sends and its peer expects, unless a row uses
    /// another.
    pub(crate) const PSN: u32 = 0x1234;

    /// Exactly this mask, whatever was set before.
    pub(crate) fn masked(mut self, mask: AttrMask) -> Attr {
        self.mask = mask;
        self
    }

    pub(crate) fn to(mut self, state: State) -> Attr {
        self.raw.qp_state = state.raw();
        self.and(AttrMask::STATE)
    }

    /// The number of a state, which need not exist.
    pub(crate) fn state_number(mut self, state: u32) -> Attr {
        self.raw.qp_state = state;
        self.and(AttrMask::STATE)
    }

    pub(crate) fn cur_state(mut self, state: State) -> Attr {
        self.raw.cur_qp_state = state.raw();
        self.and(AttrMask::CUR_STATE)
    }

    pub(crate) fn sqd_notify(mut self) -> Attr {
        self.raw.en_sqd_async_notify = 1;
        self.and(AttrMask::EN_SQD_ASYNC_NOTIFY)
    }

    /// Requests no event in SQD.
    pub(crate) fn sqd_silent(mut self) -> Attr {
        self.raw.en_sqd_async_notify = 0;
        self.and(AttrMask::EN_SQD_ASYNC_NOTIFY)
    }

    /// An attribute that only a query fills; no mask has it.
    pub(crate) fn sq_draining(mut self) -> Attr {
        self.raw.sq_draining = 1;
        self
    }

    pub(crate) fn access(mut self, access: Access) -> Attr {
        self.raw.qp_access_flags = access.0;
        self.and(AttrMask::ACCESS_FLAGS)
    }

    pub(crate) fn pkey_index(mut self, index: u16) -> Attr {
        self.raw.pkey_index = index;
        self.and(AttrMask::PKEY_INDEX)
    }

    pub(crate) fn port(mut self, port: u8) -> Attr {
        self.raw.port_num = port;
        self.and(AttrMask::PORT)
    }

    pub(crate) fn qkey(mut self, qkey: u32) -> Attr {
        self.raw.qkey = qkey;
        self.and(AttrMask::QKEY)
    }

    pub(crate) fn path_mtu(mut self, mtu: u32) -> Attr {
        self.raw.path_mtu = mtu;
        self.and(AttrMask::PATH_MTU)
    }

    pub(crate) fn dest_qpn(mut self, qpn: u32) -> Attr {
        self.raw.dest_qp_num = qpn;
        self.and(AttrMask::DEST_QPN)
    }

    pub(crate) fn timeout(mut self, exponent: u8) -> Attr {
        self.raw.timeout = exponent;
        self.and(AttrMask::TIMEOUT)
    }

    pub(crate) fn retry_cnt(mut self, count: u8) -> Attr {
        self.raw.retry_cnt = count;
        self.and(AttrMask::RETRY_CNT)
    }

    pub(crate) fn rnr_retry(mut self, count: u8) -> Attr {
        self.raw.rnr_retry = count;
        self.and(AttrMask::RNR_RETRY)
    }

    pub(crate) fn min_rnr_timer(mut self, code: u8) -> Attr {
        self.raw.min_rnr_timer = code;
        self.and(AttrMask::MIN_RNR_TIMER)
    }

    pub(crate) fn rq_psn(mut self, psn: u32) -> Attr {
        self.raw.rq_psn = psn;
        self.and(AttrMask::RQ_PSN)
    }

    pub(crate) fn sq_psn(mut self, psn: u32) -> Attr {
        self.raw.sq_psn = psn;
        self.and(AttrMask::SQ_PSN)
    }

    pub(crate) fn rd_atomic(mut self, count: u8) -> Attr {
        self.raw.max_rd_atomic = count;
        self.and(AttrMask::MAX_QP_RD_ATOMIC)
    }

    pub(crate) fn dest_rd_atomic(mut self, count: u8) -> Attr {
        self.raw.max_dest_rd_atomic = count;
        self.and(AttrMask::MAX_DEST_RD_ATOMIC)
    }

    pub(crate) fn send_wr(mut self, count: u32) -> Attr {
        self.raw.cap.max_send_wr = count;
        self.and(AttrMask::CAP)
    }

    /// The primary path without a GRH.
    pub(crate) fn without_grh(mut self) -> Attr {
        self.raw.ah_attr.is_global = 0;
        self.and(AttrMask::AV)
    }

    /// An alternate path by LID.
    pub(crate) fn alternate_without_grh(mut self) -> Attr {
        self.raw.alt_ah_attr.is_global = 0;
        self.and(AttrMask::ALT_PATH)
    }

    /// An alternate path that differs from the primary one in this time-out and this hop limit.
    pub(crate) fn alternate(mut self, timeout: u8, hop_limit: u8) -> Attr {
        (self.raw.alt_timeout, self.raw.alt_ah_attr.grh.hop_limit) = (timeout, hop_limit);
        self.and(AttrMask::ALT_PATH)
    }

    /// `enum ibv_mig_state`.
    pub(crate) fn migration(mut self, state: u32) -> Attr {
        self.raw.path_mig_state = state;
        self.and(AttrMask::PATH_MIG_STATE)
    }

    /// The primary path, by an entry of the GID table that need not exist.
    pub(crate) fn gid_index(mut self, index: u8) -> Attr {
        self.raw.ah_attr.grh.sgid_index = index;
        self.and(AttrMask::AV)
    }

    /// The primary path, by another port than the own one.
    pub(crate) fn path_port(mut self, port: u8) -> Attr {
        self.raw.ah_attr.port_num = port;
        self.and(AttrMask::AV)
    }

    /// Adds an attribute with its current value: see [`Attr::valid`].
    pub(crate) fn with(self, bit: AttrMask) -> Attr {
        self.and(bit)
    }

    fn and(mut self, bit: AttrMask) -> Attr {
        self.mask |= bit;
        self
    }
}

/// An address vector from `port` to `gid`, with a GRH, and with a LID on ports that have LIDs.
pub(super) fn ah_attr(port: &PortFacts, gid: &Gid) -> ibv_ah_attr {
    let grh = ibv_global_route {
        dgid: ibv_gid { raw: gid.0 },
        flow_label: 0,
        sgid_index: port.gid_index,
        hop_limit: 64,
        traffic_class: 0,
    };
    ibv_ah_attr { grh, dlid: port.attr.lid, sl: 0, src_path_bits: 0, static_rate: 0, is_global: 1, port_num: PORT }
}
