//! A QP's transitions between states. Each is checked against the state table before the device is
//! asked, so that a refusal names the attribute instead of only EINVAL.

use std::io;
use std::net::UdpSocket;

use rdma_sys::{ibv_qp_attr, ibv_qp_init_attr};
use verbline_softnic::qp_table::{self, Transport};

use crate::datagram::ah::AhSpec;
use crate::device::attr::PortAttr;
use crate::device::context::Context;
use crate::device::gid::Endpoint;
use crate::device::gid::Gid;
use crate::device::provider::{Provider, verb};
use crate::errno::VerbError;
use crate::qp::attr::{AttrMask, InitSpec, QpAttr, QpState, RtrSpec, RtsSpec};
use crate::qp::multicast::{self, Membership};
use crate::qp::{Local, QpError, QueuePair, fresh_psn};
use crate::wr::send::Destination;

impl QueuePair {
    /// RESET → INIT: from here on receives can be posted.
    pub fn to_init(&mut self, spec: &InitSpec) -> Result<(), QpError> {
        let context = self.context();
        let gid = context.query_gid(spec.port, spec.gid_index)?;
        let attr = QpAttr {
            state: QpState::Init,
            port: spec.port,
            pkey_index: spec.pkey_index,
            access: spec.access,
            qkey: spec.qkey,
            ..QpAttr::default()
        };
        let rest = match self.transport() {
            Transport::Ud => AttrMask::PKEY_INDEX | AttrMask::QKEY,
            Transport::Rc | Transport::Uc => AttrMask::PKEY_INDEX | AttrMask::ACCESS_FLAGS,
            Transport::RawPacket => AttrMask::NONE,
        };
        let begins_anew = self.state == QpState::Reset;
        self.modify(&attr, AttrMask::STATE | AttrMask::PORT | rest)?;
        self.local.gid_index = spec.gid_index;
        self.local.gid = gid;
        if begins_anew {
            // Packets and acknowledgements of the previous connection, still on the network, would
            // be taken for this one's if its PSN continued from there.
            self.local.psn = fresh_psn();
            self.local.peer = None;
        }
        Ok(())
    }

    /// INIT → RTR: from here on messages are received.
    pub fn to_rtr(&mut self, spec: &RtrSpec) -> Result<(), QpError> {
        let (transport, Some(remote)) = (self.transport(), spec.remote) else {
            return self.modify(&QpAttr::to_state(QpState::Rtr), AttrMask::STATE);
        };
        match transport {
            Transport::Rc | Transport::Uc => {}
            Transport::Ud => {
                return Err(self.attribute("a UD QP has no peer in RTR: use RtrSpec::datagram and set_destination"));
            }
            Transport::RawPacket => {
                return Err(
                    self.attribute("a RAW_PACKET QP has no peer: use RtrSpec::datagram; each frame says where it goes")
                );
            }
        }
        let attr = QpAttr {
            state: QpState::Rtr,
            path_mtu: spec.mtu,
            dest_qpn: remote.qpn,
            rq_psn: remote.psn,
            max_dest_rd_atomic: spec.max_dest_rd_atomic,
            min_rnr_timer: spec.min_rnr_timer,
            ah: AhSpec {
                port: self.local.port,
                gid_index: self.local.gid_index,
                gid: Some(remote.gid),
                lid: remote.lid,
                hop_limit: spec.hop_limit,
                traffic_class: spec.traffic_class,
                service_level: spec.service_level,
                flow_label: 0,
            },
            ..QpAttr::default()
        };
        let mut mask = AttrMask::STATE | AttrMask::AV | AttrMask::PATH_MTU | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
        if transport == Transport::Rc {
            mask |= AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
        }
        self.modify(&attr, mask)
    }

    /// RTR → RTS: from here on sends can be posted.
    pub fn to_rts(&mut self, spec: &RtsSpec) -> Result<(), QpError> {
        let attr = QpAttr {
            state: QpState::Rts,
            sq_psn: self.local.psn,
            timeout: spec.timeout,
            retry_cnt: spec.retry_cnt,
            rnr_retry: spec.rnr_retry,
            max_rd_atomic: spec.max_rd_atomic,
            rate_limit_kbit_per_s: spec.rate_limit_kbit_per_s,
            ..QpAttr::default()
        };
        let pace = if spec.rate_limit_kbit_per_s > 0 { AttrMask::RATE_LIMIT } else { AttrMask::NONE };
        let rest = match self.transport() {
            Transport::Rc => {
                let retries = AttrMask::TIMEOUT | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY;
                AttrMask::SQ_PSN | retries | AttrMask::MAX_QP_RD_ATOMIC
            }
            Transport::Uc | Transport::Ud => AttrMask::SQ_PSN,
            Transport::RawPacket => AttrMask::NONE,
        };
        self.modify(&attr, AttrMask::STATE | rest | pace)
    }

    /// Makes the next [`to_rts`](QueuePair::to_rts) begin with this PSN, which the peer has
    /// requested.
    pub(crate) fn send_from_psn(&mut self, psn: u32) {
        self.local.psn = psn & 0xff_ffff;
    }

    /// Any state but RESET → ERR: everything posted is flushed to the CQs.
    pub fn to_err(&mut self) -> Result<(), QpError> {
        self.step(QpState::Err)
    }

    /// Any state → RESET: the device forgets all posted work requests, without completions; packets
    /// return to their pools, and memory of one-sided work requests is dropped.
    pub fn to_reset(&mut self) -> Result<(), QpError> {
        self.step(QpState::Reset)
    }

    /// RTS → SQD: sends are held back. With `notify`, the device raises
    /// [`crate::event::AsyncEventKind::SqDrained`] when sends in progress are done.
    pub fn to_sqd(&mut self, notify: bool) -> Result<(), QpError> {
        let attr = QpAttr { en_sqd_async_notify: notify, ..QpAttr::to_state(QpState::Sqd) };
        self.modify(&attr, AttrMask::STATE | AttrMask::EN_SQD_ASYNC_NOTIFY)
    }

    /// SQD or SQE → RTS: sends go on.
    pub fn resume(&mut self) -> Result<(), QpError> {
        self.step(QpState::Rts)
    }

    /// Goes to ERR, with a marker behind the last send. Once all following completions have been
    /// handed back, nothing is outstanding ([`QueuePair::is_drained`]), including unsignaled sends.
    /// A QP on an SRQ gets a marker even without sends: it comes behind the QP's receives, of which
    /// the QP itself keeps no record. A UD QP without a destination gets no marker, because it has
    /// no unsignaled sends.
    pub fn start_drain(&mut self) -> Result<(), QpError> {
        if self.state == QpState::Reset {
            return Ok(());
        }
        self.to_err()?;
        if self.sends_outstanding() > 0 || self.uses_srq() {
            // SAFETY: the QP is live until drop, and `send` is its send queue.
            unsafe { self.send.post_marker(self.post_send) };
        }
        Ok(())
    }

    /// Whether nothing is outstanding.
    pub fn is_drained(&self) -> bool {
        self.sends_outstanding() == 0 && self.recvs_outstanding() == 0
    }

    /// Sets the attributes of the mask, in raw form, in one step (ibv_modify_qp(3)). Refused before
    /// the device is asked if the state table forbids it, with a message that names the missing or
    /// extra attributes; and if the device lacks a capability it needs ([`QpError::Lacking`]).
    /// Either all attributes change or none.
    ///
    /// With [`AttrMask::CUR_STATE`], `cur_state` replaces the state that this handle knows: for a
    /// QP that its device has moved to SQE or SQD. An empty mask modifies nothing, in every state.
    pub fn modify(&mut self, attr: &QpAttr, mask: AttrMask) -> Result<(), QpError> {
        let to = if mask.contains(AttrMask::STATE) { attr.state } else { self.state };
        self.modify_prepared(attr.to_raw(), mask, to)
    }

    /// Like [`QueuePair::modify`], with attributes filled in by rdma_cm.
    pub(crate) fn modify_prepared(
        &mut self,
        mut attr: ibv_qp_attr,
        mask: AttrMask,
        to: QpState,
    ) -> Result<(), QpError> {
        if mask.is_empty() {
            // The kernel's table has no transition from RTR to RTR, or from SQE to SQE, and
            // refuses.
            return Ok(());
        }
        // Attributes beyond the table that the device claims to take are the device's to judge.
        let offered = self.check_offered(&attr, mask)?;
        let assumed = match mask.contains(AttrMask::CUR_STATE) {
            true => QpState::from_raw(attr.cur_qp_state),
            false => Some(self.state),
        };
        let from = assumed.ok_or_else(|| self.attribute("cur_state is no state of a QP"))?;
        let goal = if mask.contains(AttrMask::STATE) { to } else { from };
        qp_table::check(self.transport(), from, goal, mask.without(offered)).map_err(|refusal| {
            QpError::Transition { qpn: self.qpn(), device: self.keep().pd.context.name.clone(), refusal }
        })?;
        let port = match mask.contains(AttrMask::PORT) {
            true => Some(self.context().query_port(attr.port_num)?),
            false => None,
        };
        let provider = self.keep().pd.provider();
        // SAFETY: the QP is live; the attributes are read during the call.
        let ret = unsafe { verb!(provider, ibv_modify_qp(self.raw.as_ptr(), &raw mut attr, mask.0.cast_signed())) };
        VerbError::check("ibv_modify_qp", ret, || format!("{}, {} → {to} with {mask}", self.describe(), self.state))?;
        self.learn(&attr, mask, port.as_ref());
        self.set_state(to);
        if to == QpState::Reset {
            self.reclaim();
            // The key of its window is unknown if a marker was posted and not carried out.
            self.keep_mut().marker = None;
        }
        Ok(())
    }

    /// The state as this handle last set or queried it. A device moves to ERR or SQE on its own;
    /// [`QueuePair::query`] tells.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// The device's attributes of the QP (ibv_query_qp(3)); the state is recorded.
    pub fn query(&mut self, mask: AttrMask) -> Result<QpAttr, QpError> {
        // SAFETY: both are integers and pointers: all zeros is a value.
        let (mut attr, mut init) = unsafe { (std::mem::zeroed(), std::mem::zeroed::<ibv_qp_init_attr>()) };
        let mask = mask | AttrMask::STATE;
        let provider = self.keep().pd.provider();
        // SAFETY: the QP is live; both may be written by the call.
        let ret = unsafe {
            verb!(provider, ibv_query_qp(self.raw.as_ptr(), &raw mut attr, mask.0.cast_signed(), &raw mut init))
        };
        VerbError::check("ibv_query_qp", ret, || self.describe())?;
        let attr = QpAttr::from_raw(&attr);
        self.set_state(attr.state);
        Ok(attr)
    }

    /// The QP's address for a peer. Complete from INIT on, with another PSN each time that the QP
    /// comes to INIT from RESET.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            qpn: self.qpn(),
            psn: self.local.psn,
            gid: self.local.gid,
            lid: self.local.lid,
            qkey: self.local.qkey,
        }
    }

    /// The receiver of its sends: the peer on RC and UC, known from RTR on; the default destination
    /// on UD.
    pub fn peer(&self) -> Option<Endpoint> {
        let to = || self.send.destinations.first().map(Destination::endpoint);
        self.local.peer.or_else(to)
    }

    /// Joins a multicast group (ibv_attach_mcast(3)); UD only. On RoCE v2 the network interface
    /// joins the IP group too, as with rdma_join_multicast(3): possible from INIT on, when the QP
    /// knows its interface.
    pub fn attach_mcast(&mut self, group: Gid, lid: u16) -> Result<(), QpError> {
        match self.keep().pd.provider() {
            // There is no network interface under it.
            Provider::Soft => self.attach_joining(group, lid, |_, _| Ok(None)),
            Provider::Kernel => {
                let (context, Local { port, gid_index, .. }) = (self.context(), self.local);
                let entry = || context.query_gid_entry(port, gid_index);
                self.attach_joining(group, lid, |local, group| multicast::join(local, group, entry))
            }
        }
    }

    /// `join` joins the IP side, on the interface of the QP's GID. It comes first: a QP in a group
    /// then receives all messages of the group.
    pub(super) fn attach_joining(
        &mut self,
        group: Gid,
        lid: u16,
        join: impl FnOnce(Gid, Gid) -> io::Result<Option<UdpSocket>>,
    ) -> Result<(), QpError> {
        self.check_transport(Transport::Ud)?;
        let is_member = self.keep().groups.iter().any(|joined| joined.is(group, lid));
        let interface = if is_member { None } else { self.join_interface(group, join)? };
        let raw = group.to_raw();
        let provider = self.keep().pd.provider();
        // SAFETY: the QP is live; the GID is read during the call.
        let ret = unsafe { verb!(provider, ibv_attach_mcast(self.raw.as_ptr(), &raw const raw, lid)) };
        VerbError::check("ibv_attach_mcast", ret, || format!("{} to {group}", self.describe()))?;
        if !is_member {
            self.keep_mut().groups.push(Membership { group, lid, _interface: interface });
        }
        Ok(())
    }

    fn join_interface(
        &self,
        group: Gid,
        join: impl FnOnce(Gid, Gid) -> io::Result<Option<UdpSocket>>,
    ) -> Result<Option<UdpSocket>, QpError> {
        let local = self.local.gid;
        join(local, group).map_err(|error| QpError::Multicast {
            qpn: self.qpn(),
            device: self.keep().pd.context.name.clone(),
            local,
            group,
            source: std::sync::Arc::new(error),
        })
    }

    /// Leaves a multicast group (ibv_detach_mcast(3)).
    pub fn detach_mcast(&mut self, group: Gid, lid: u16) -> Result<(), QpError> {
        self.check_transport(Transport::Ud)?;
        let raw = group.to_raw();
        let provider = self.keep().pd.provider();
        // SAFETY: the QP is live; the GID is read during the call.
        let ret = unsafe { verb!(provider, ibv_detach_mcast(self.raw.as_ptr(), &raw const raw, lid)) };
        VerbError::check("ibv_detach_mcast", ret, || format!("{} from {group}", self.describe()))?;
        self.keep_mut().groups.retain(|joined| !joined.is(group, lid));
        Ok(())
    }

    /// A QP with groups cannot be destroyed (ibv_destroy_qp(3)).
    pub(crate) fn detach_all(&mut self) {
        while let Some(&Membership { group, lid, .. }) = self.keep().groups.last() {
            if let Err(error) = self.detach_mcast(group, lid) {
                tracing::warn!(%error, "leaving a multicast group");
                self.keep_mut().groups.pop();
            }
        }
    }

    fn step(&mut self, state: QpState) -> Result<(), QpError> {
        self.modify(&QpAttr::to_state(state), AttrMask::STATE)
    }

    /// Records the attributes that a successful step set and that are needed later.
    fn learn(&mut self, attr: &ibv_qp_attr, mask: AttrMask, port: Option<&PortAttr>) {
        if let Some(port) = port {
            self.local.port = attr.port_num;
            self.local.lid = port.lid;
            let max_message_bytes = match self.transport() {
                Transport::Ud => port.active_mtu.bytes(),
                // A frame's limit is the network interface's own MTU, which is none of the values
                // here.
                Transport::Rc | Transport::Uc | Transport::RawPacket => port.max_message_bytes,
            };
            self.send.set_max_message_bytes(max_message_bytes);
        }
        if mask.contains(AttrMask::QKEY) {
            self.local.qkey = attr.qkey;
        }
        if mask.contains(AttrMask::SQ_PSN) {
            self.local.psn = attr.sq_psn;
        }
        if mask.contains(AttrMask::DEST_QPN) {
            let AhSpec { gid, lid, .. } = AhSpec::from_raw(&attr.ah_attr);
            let gid = gid.unwrap_or_default();
            self.local.peer = Some(Endpoint { qpn: attr.dest_qp_num, psn: attr.rq_psn, gid, lid, qkey: 0 });
        }
    }

    pub(crate) fn context(&self) -> Context {
        Context { inner: self.keep().pd.context.clone() }
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} QP {:#x} on {}", self.transport(), self.qpn(), self.keep().pd.context.name)
    }

    pub(crate) fn attribute(&self, what: &str) -> QpError {
        QpError::Attribute { qpn: self.qpn(), device: self.keep().pd.context.name.clone(), what: what.to_owned() }
    }
}
