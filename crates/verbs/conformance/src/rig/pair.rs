//! Two queue pairs that talk to each other through the device's own port, the basis of most rows.

use super::Rig;
use super::access::Access;
use super::ah::Ah;
use super::attr::{Attr, AttrMask, State, Transport};
use super::channel::Channel;
use super::cq::Cq;
use super::errno::Refused;
use super::keys::QpExtras;
use super::mr::Mr;
use super::patience::Deadline;
use super::qp::{Cap, Qp, QpSpec};
use super::sge::Remote;
use super::srq::Srq;
use super::wr::{Op, Recv, Wr};
use crate::check::{During, Outcome, same, same_bytes};

/// The parameters of both sides. Of two devices, a side has the shared queue and the channel if
/// they are its device's.
#[derive(Clone, Copy)]
pub(crate) struct SideSpec<'a> {
    pub(crate) cap: Cap,
    pub(crate) sig_all: bool,
    pub(crate) cq_depth: u32,
    pub(crate) mr_bytes: usize,
    pub(crate) mr_access: Access,
    pub(crate) srq: Option<&'a Srq>,
    /// The channel of all four completion queues.
    pub(crate) channel: Option<&'a Channel>,
    /// The queue pairs' use of signature keys.
    pub(crate) extras: QpExtras,
}

impl Default for SideSpec<'_> {
    fn default() -> Self {
        SideSpec {
            cap: Cap::default(),
            sig_all: false,
            cq_depth: 64,
            mr_bytes: 16 << 10,
            mr_access: Access::ALL,
            srq: None,
            channel: None,
            extras: QpExtras::default(),
        }
    }
}

/// The parameters of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) rd_atomic: u8,
    pub(crate) dest_rd_atomic: u8,
    /// The first PSN that the queue pairs send; they expect [`Attr::PSN`].
    pub(crate) sq_psn: u32,
    /// Remote operations that the queue pairs permit.
    pub(crate) access: Access,
}

impl Default for Link {
    fn default() -> Link {
        Link {
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            rd_atomic: 4,
            dest_rd_atomic: 4,
            sq_psn: Attr::PSN,
            access: Access::ALL,
        }
    }
}

/// One end: a queue pair, a CQ for each of its queues, and registered memory.
pub(crate) struct Side {
    pub(crate) qp: Qp,
    pub(crate) scq: Cq,
    pub(crate) rcq: Cq,
    pub(crate) mr: Mr,
}

/// Two ends.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// The address of the own port, for UD.
    ah: Option<Ah>,
    link: Link,
}

/// Bytes in front of UD messages (ibv_post_recv(3)): space for a GRH.
pub(crate) const GRH_BYTES: usize = 40;

impl Rig {
    /// Two connected (or, for UD, mutually addressed) queue pairs in RTS, with a CQ and memory
    /// each.
    pub(crate) fn pair(&self, transport: Transport) -> Outcome<Pair> {
        self.pair_with(transport, SideSpec::default(), Link::default())
    }

    /// Like [`Rig::pair`], with these parameters.
    pub(crate) fn pair_with(&self, transport: Transport, spec: SideSpec<'_>, link: Link) -> Outcome<Pair> {
        Pair::connected(self, transport, spec, link)
    }

    /// Two queue pairs in RESET with a CQ and memory each.
    pub(crate) fn unconnected(&self, transport: Transport, spec: SideSpec<'_>) -> Outcome<Pair> {
        Pair::unconnected(self, transport, spec)
    }

    /// One queue pair in RESET with a CQ for each of its queues and memory.
    pub(crate) fn side(&self, transport: Transport, spec: SideSpec<'_>) -> Outcome<Side> {
        Side::create(self, transport, spec)
    }

    /// The device's refusal to create such a queue pair; `None` if it creates it.
    pub(crate) fn create_refused(&self, transport: Transport, spec: SideSpec<'_>) -> Outcome<Option<Refused>> {
        let cq = self.cq(spec.cq_depth)?;
        let SideSpec { srq, cap, sig_all, extras, .. } = spec;
        let spec = QpSpec { transport, send_cq: &cq, recv_cq: &cq, srq, cap, sig_all, extras };
        Ok(Qp::create(&self.pd, &spec).err())
    }
}

impl Pair {
    fn unconnected(rig: &Rig, transport: Transport, spec: SideSpec<'_>) -> Outcome<Pair> {
        let ah = if transport == Transport::Ud { Some(rig.ah()?) } else { None };
        let [a, b] = [Side::create(rig, transport, spec)?, Side::create(rig.far(), transport, spec)?];
        rig.paired.set(true);
        Ok(Pair { a, b, ah, link: Link::default() })
    }

    fn connected(rig: &Rig, transport: Transport, spec: SideSpec<'_>, link: Link) -> Outcome<Pair> {
        let pair = Pair { link, ..Pair::unconnected(rig, transport, spec)? };
        pair.connect()?;
        Ok(pair)
    }

    /// Brings both from RESET to RTS.
    pub(crate) fn connect(&self) -> Outcome {
        for (side, peer) in [(&self.a, &self.b), (&self.b, &self.a)] {
            side.to_init(&self.link).during("to INIT")?;
            side.to_rtr(peer.qp.number(), &self.link).during("to RTR")?;
        }
        self.a.to_rts(&self.link).during("to RTS")?;
        self.b.to_rts(&self.link).during("to RTS")
    }

    pub(crate) fn transport(&self) -> Transport {
        self.a.qp.transport()
    }

    /// Bytes in front of every received message.
    pub(crate) fn header(&self) -> usize {
        if self.transport() == Transport::Ud { GRH_BYTES } else { 0 }
    }

    /// A SEND from `a` to `b`, without data yet, and with an address if the transport needs one.
    pub(crate) fn send(&self, id: u64) -> Wr {
        self.addressed(Wr::send(id))
    }

    /// Gives a work request of `a` its destination, if the transport needs one.
    pub(crate) fn addressed(&self, wr: Wr) -> Wr {
        match &self.ah {
            Some(ah) => wr.to(ah, self.b.qp.number(), Attr::QKEY),
            None => wr,
        }
    }

    /// A work request of `a` with this opcode and 8 bytes of its memory, aimed at the start of
    /// `b`'s.
    pub(crate) fn any(&self, id: u64, op: Op) -> Wr {
        let remote = self.b.mr.remote(0);
        let wr = match op {
            Op::Send => Wr::send(id),
            Op::SendImm => Wr::send(id).imm(7),
            Op::SendInv => Wr::send(id).invalidate(remote.rkey),
            Op::Write => Wr::write(id, remote),
            Op::WriteImm => Wr::write(id, remote).imm(7),
            Op::Read => Wr::read(id, remote),
            Op::CmpSwap => Wr::cmp_swap(id, remote, 0, 1),
            Op::FetchAdd => Wr::fetch_add(id, remote, 1),
            Op::LocalInv | Op::BindMw | Op::Nonsense => Wr::send(id).op(op),
        };
        self.addressed(wr).sge(self.a.mr.sge(0..8))
    }

    /// The address and key for `a` to reach byte `offset` of `b`'s memory.
    pub(crate) fn remote(&self, offset: usize) -> Remote {
        self.b.mr.remote(offset)
    }

    /// Checks that a completed RDMA WRITE has arrived at byte `offset` of `b`'s memory. Over UC a
    /// completion only means that the message has left, so this waits for the bytes.
    pub(crate) fn is_written(&self, offset: usize, want: &[u8]) -> Outcome {
        let there = || self.b.mr.take(offset, want.len());
        let mut deadline = Deadline::new("what a UC RDMA WRITE brings");
        while self.transport() == Transport::Uc && there() != want {
            deadline.pause(|| format!("there is {:?}", there().escape_ascii().to_string()))?;
        }
        same_bytes("written", &there(), want)
    }

    /// Sends a message from `a` to `b`, which must arrive whole: the pair works.
    pub(crate) fn exchange(&self) -> Outcome {
        const TEXT: &[u8] = b"still alive";
        self.a.mr.put(0, TEXT);
        self.b.recv(0xe0)?;
        self.a.qp.send(self.send(0xe1).sge(self.a.mr.sge(0..TEXT.len())))?;
        same("the send's wr_id", self.a.scq.wait_ok().during("a plain send")?.id, 0xe1)?;
        same("the receive's wr_id", self.b.rcq.wait_ok().during("a plain receive")?.id, 0xe0)?;
        same_bytes("what arrived", &self.b.mr.take(self.header(), TEXT.len()), TEXT)
    }
}

impl Side {
    fn create(rig: &Rig, transport: Transport, spec: SideSpec<'_>) -> Outcome<Side> {
        let channel = spec.channel.filter(|channel| rig.context().uses(channel.context()));
        let srq = spec.srq.filter(|srq| rig.context().uses(srq.context()));
        let cq = || match channel {
            Some(channel) => rig.cq_on(channel, spec.cq_depth),
            None => rig.cq(spec.cq_depth),
        };
        let (scq, rcq, mr) = (cq()?, cq()?, rig.mr_with(spec.mr_bytes, spec.mr_access)?);
        let SideSpec { cap, sig_all, extras, .. } = spec;
        let qp_spec = QpSpec { transport, send_cq: &scq, recv_cq: &rcq, srq, cap, sig_all, extras };
        Ok(Side { qp: Qp::create(rig.pd(), &qp_spec)?, scq, rcq, mr })
    }

    /// Posts a receive of all of its memory.
    pub(crate) fn recv(&self, id: u64) -> Outcome {
        Ok(self.qp.recv(Recv::new(id).sge(self.mr.all()))?)
    }

    pub(crate) fn to_init(&self, link: &Link) -> Outcome {
        let attr = self.qp.attr(0).to(State::Init).port(1).pkey_index(0);
        let attr = match self.qp.transport() {
            Transport::Rc | Transport::Uc => attr.access(link.access),
            Transport::Ud => attr.qkey(Attr::QKEY),
            Transport::RawPacket => self.qp.attr(0).to(State::Init).port(1),
        };
        Ok(self.qp.modify(&attr)?)
    }

    pub(crate) fn to_rtr(&self, peer_qpn: u32, link: &Link) -> Outcome {
        let attr = self.qp.attr(peer_qpn).to(State::Rtr);
        const CONNECT: AttrMask = AttrMask::AV.with(AttrMask::PATH_MTU).with(AttrMask::DEST_QPN).with(AttrMask::RQ_PSN);
        let attr = match self.qp.transport() {
            Transport::Rc => attr.with(CONNECT).dest_rd_atomic(link.dest_rd_atomic).min_rnr_timer(link.min_rnr_timer),
            Transport::Uc => attr.with(CONNECT),
            Transport::Ud | Transport::RawPacket => attr,
        };
        Ok(self.qp.modify(&attr)?)
    }

    pub(crate) fn to_rts(&self, link: &Link) -> Outcome {
        let attr = self.qp.attr(0).to(State::Rts).sq_psn(link.sq_psn);
        let attr = match self.qp.transport() {
            Transport::Rc => {
                attr.timeout(link.timeout).retry_cnt(link.retry_cnt).rnr_retry(link.rnr_retry).rd_atomic(link.rd_atomic)
            }
            Transport::Uc | Transport::Ud => attr,
            Transport::RawPacket => self.qp.attr(0).to(State::Rts),
        };
        Ok(self.qp.modify(&attr)?)
    }
}
