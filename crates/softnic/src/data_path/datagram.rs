//! Datagrams: UD messages to one queue pair or to a multicast group.
//!
//! Guarantees: a datagram arrives whole, behind 40 bytes of GRH, or not at all, and its sender
//! isn't told which. It is lost if nobody is attached, no receive is posted, or the Q_Key differs
//! (which the port counts). A receive that is too short or not writable completes with its error
//! and its queue pair goes to ERR. Every queue pair of a group gets a copy, the sender's own
//! included.

use crate::data_path::arrival::{self, Arrival};
use crate::data_path::carrier::{self, Outgoing};
use crate::data_path::completion;
use crate::data_path::errors::Errors;
use crate::data_path::message;
use crate::data_path::sge_list::{Sources, Targets, move_bytes};
use crate::objects::Object;
use crate::objects::ah::{Ah, Route};
use crate::objects::device::{Device, MTU_BYTES};
use crate::objects::fabric::{self, QPN_MASK, QPN_MULTICAST};
use crate::objects::guards::Pinned;
use crate::objects::mcast::Group;
use crate::objects::qp::Qp;
use crate::queues::ACCEPT_DATAGRAMS;
use crate::queues::pending::WrOutcome;
use crate::queues::wr::SendWr;
use rdma_sys::*;
use std::sync::atomic::Ordering;

/// The global route header that lies before each datagram.
const GRH_BYTES: u64 = 40;
const _: () = assert!(size_of::<ibv_grh>() == GRH_BYTES as usize);
/// `next_hdr` of a GRH: a base transport header follows (IB specification, vol. 1, 8.3).
const NEXT_HEADER_BTH: u8 = 0x1b;
/// Set in a Q_Key: "use the queue pair's own" (IB specification, vol. 1, 3.5.3).
const CONTROLLED_QKEY: u32 = 1 << 31;

/// Carries out a UD work request.
pub(crate) fn send(qp: &Qp, pinned: Pinned<'_>, wr: SendWr<'_>, bytes: u64, errors: &mut Errors) -> WrOutcome {
    // SAFETY: a datagram's arm of the union. Validation saw that there is a handle, and by
    // ibv_post_send(3), which the program kept (`SendWr::list`), it lives until the work request
    // has completed.
    let (ud, ah) = unsafe { (wr.wr.ud, Ah::from_raw(wr.wr.ud.ah)) };
    if ah.pd != qp.pd {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_QP_OP_ERR);
    }
    let mut source = Sources::new(pinned);
    if source.add_list(qp.pd, wr).is_err() {
        return WrOutcome::Failed(ibv_wc_status::IBV_WC_LOC_PROT_ERR);
    }
    // Relaxed: changed by the control path only.
    let own = qp.inbound.qkey.load(Ordering::Relaxed);
    let qkey = if ud.remote_qkey & CONTROLLED_QKEY != 0 { own } else { ud.remote_qkey };
    let (imm, flags) = arrival::extra(wr);
    let solicited = wr.is_solicited();
    // Another process may have the device's address as well.
    let is_within = matches!(ah.route, Route::Device(device) if fabric::is_here(device, ud.remote_qpn));
    if !is_within
        && ah.attr.is_global != 0
        && let Some(carrier) = carrier::of_datagrams(qp)
    {
        let mut payload = [0; MTU_BYTES as usize];
        let payload = &mut payload[..bytes as usize];
        let mut whole = Targets::new(pinned);
        whole.add_own(payload);
        move_bytes(&whole, &source, bytes);
        carrier.add_datagram(&Outgoing {
            from: qp.qpn,
            to: ud.remote_qpn & QPN_MASK,
            qkey,
            immediate: (flags & ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0).then(|| u32::from_be(imm)),
            solicited,
            // SAFETY: any sixteen bytes are a GID.
            gid: unsafe { ah.attr.grh.dgid.raw },
            source_gid: ah.source_gid,
            traffic_class: ah.attr.grh.traffic_class,
            payload,
        });
    }
    let grh = grh_of(ah, bytes);
    let grh_flag = if grh.is_some() { ibv_wc_flags::IBV_WC_GRH.0 } else { 0 };
    let datagram = Datagram {
        pinned,
        source: &source,
        bytes,
        qkey,
        grh,
        arrival: Arrival {
            opcode: completion::RECV,
            bytes: bytes + GRH_BYTES,
            imm,
            flags: flags | grh_flag,
            solicited,
        },
        from: u64::from(qp.qpn) | u64::from(ah.source_lid) << 32,
        is_of_network: false,
    };
    match ah.route {
        Route::Device(device) => {
            let target = fabric::lookup(pinned, ud.remote_qpn & QPN_MASK).filter(|target| target.is_datagram());
            if let Some(target) = target.filter(|target| std::ptr::eq(target.device(), device)) {
                // As on a network, the sender isn't told.
                let _ = datagram.deliver(target, errors);
            }
        }
        Route::Group(group) if ud.remote_qpn & QPN_MASK == QPN_MULTICAST => {
            group.members(pinned).for_each(|member| _ = datagram.deliver(member, errors));
        }
        Route::Group(_) | Route::Nowhere => {}
    }
    WrOutcome::Done(bytes)
}

/// The destination of a datagram from another process.
pub(crate) enum Receiver {
    /// The queue pair of that number.
    QueuePair(u32),
    /// The members of a group.
    Group(&'static Group),
}

/// A datagram from another process.
pub(crate) struct Incoming<'a> {
    pub(crate) to: Receiver,
    /// The sender's number.
    pub(crate) from: u32,
    pub(crate) qkey: u32,
    /// Host order.
    pub(crate) immediate: Option<u32>,
    pub(crate) solicited: bool,
    /// The bytes before its message in a receive.
    pub(crate) header: [u8; GRH_BYTES as usize],
    pub(crate) payload: &'a [u8],
}

/// Why a datagram from another process reached no queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreached {
    /// There is none.
    NoQueuePair,
    /// It doesn't receive yet, or any longer.
    NotReady,
}

/// Delivers a datagram to a queue pair of the device, or to the members of a group.
pub(crate) fn arrive(
    device: &Device,
    pinned: Pinned<'_>,
    came: &Incoming<'_>,
    errors: &mut Errors,
) -> Result<(), Unreached> {
    let mut source = Sources::new(pinned);
    source.add_own(came.payload);
    let bytes = came.payload.len() as u64;
    let (imm, flags) = came.immediate.map_or((0, 0), |imm| (imm.to_be(), ibv_wc_flags::IBV_WC_WITH_IMM.0));
    let datagram = Datagram {
        pinned,
        source: &source,
        bytes,
        qkey: came.qkey,
        grh: Some(came.header),
        arrival: Arrival {
            opcode: completion::RECV,
            bytes: bytes + GRH_BYTES,
            imm,
            flags: flags | ibv_wc_flags::IBV_WC_GRH.0,
            solicited: came.solicited,
        },
        from: came.from.into(),
        is_of_network: true,
    };
    let is_of_device = |target: &&Qp| std::ptr::eq(target.device(), device);
    match came.to {
        Receiver::QueuePair(qpn) => {
            let target = fabric::lookup(pinned, qpn).filter(|target| target.is_datagram()).filter(is_of_device);
            datagram.deliver(target.ok_or(Unreached::NoQueuePair)?, errors)
        }
        Receiver::Group(group) => {
            // It has reached the group if it has reached a member.
            let mut reached = Err(Unreached::NoQueuePair);
            for member in group.members(pinned).filter(is_of_device) {
                let delivered = datagram.deliver(member, errors);
                reached = reached.or(delivered);
            }
            reached
        }
    }
}

/// A datagram in flight.
struct Datagram<'a> {
    pinned: Pinned<'a>,
    source: &'a Sources<'a>,
    bytes: u64,
    qkey: u32,
    /// The GRH before it. Without a global address the 40 bytes are undefined, and left alone.
    grh: Option<[u8; GRH_BYTES as usize]>,
    arrival: Arrival,
    /// The sender's number and LID.
    from: u64,
    /// Whether it came by the network, where anybody may have sent it.
    is_of_network: bool,
}

impl Datagram<'_> {
    /// Delivers it to one queue pair, if that is ready. One with another key, or without a place,
    /// is counted here.
    fn deliver(&self, target: &Qp, errors: &mut Errors) -> Result<(), Unreached> {
        // Acquire pairs with the Release in `modify`: the target is ready before it accepts.
        if target.inbound.accept.load(Ordering::Acquire) & ACCEPT_DATAGRAMS == 0 {
            return Err(Unreached::NotReady);
        }
        // Relaxed, both: the control path's number, and a statistic.
        if target.inbound.qkey.load(Ordering::Relaxed) != self.qkey {
            target.device().qkey_violations.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        // Several senders at a time: each must get another receive. Receives complete in the order
        // in which they were posted, so the lock is held until this one has completed.
        let _lock = target.rq.lock.lock();
        // A datagram from the network that is longer than the receive is dropped (IB specification,
        // vol. 1, 9.9.3: a fault of class D), since it could be a stranger's. The receive stays for
        // the next.
        let least = if self.is_of_network { GRH_BYTES + self.bytes } else { 0 };
        let Some(index) = take(target, least) else {
            target.count_out_of_buffer();
            return Ok(());
        };
        // SAFETY: `held` returns nothing.
        let placed = unsafe { message::place(target, self.pinned, index, self.source, GRH_BYTES, self.bytes, || None) };
        let (status, arrival) = match placed {
            Ok(()) => {
                self.write_grh(target, index);
                (completion::SUCCESS, self.arrival)
            }
            Err(fault) => {
                errors.fail(target);
                (fault.local, Arrival { bytes: 0, flags: 0, ..self.arrival })
            }
        };
        if arrival::complete_receive(target, index, arrival, status, [self.from, 0]).is_err() {
            errors.fail_fatally(target);
        }
        Ok(())
    }

    /// Fills the first 40 bytes of the receive, whose length was checked.
    fn write_grh(&self, target: &Qp, index: u64) {
        let Some(grh) = &self.grh else { return };
        let (mut front, mut source) = (Targets::new(self.pinned), Sources::new(self.pinned));
        source.add_own(grh);
        if front.add_wqe(target.receives_pd(), target.receive(index), 0, GRH_BYTES).is_ok() {
            move_bytes(&front, &source, GRH_BYTES);
        }
    }
}

/// The GRH of a datagram that goes by an address handle, if that has a global address.
fn grh_of(ah: &Ah, bytes: u64) -> Option<[u8; GRH_BYTES as usize]> {
    let to = &ah.attr.grh;
    let flow = u32::from(to.traffic_class) << 20 | (to.flow_label & 0xf_ffff);
    // SAFETY: any sixteen bytes are a GID.
    let gid = unsafe { to.dgid.raw };
    (ah.attr.is_global != 0).then(|| grh(bytes, ah.source_gid, gid, flow, to.hop_limit))
}

fn grh(bytes: u64, sgid: [u8; 16], dgid: [u8; 16], flow: u32, hop_limit: u8) -> [u8; GRH_BYTES as usize] {
    let grh = ibv_grh {
        version_tclass_flow: (6 << 28 | flow).to_be(),
        paylen: (bytes as u16).to_be(),
        next_hdr: NEXT_HEADER_BTH,
        hop_limit,
        sgid: ibv_gid { raw: sgid },
        dgid: ibv_gid { raw: dgid },
    };
    // SAFETY: forty bytes without padding (asserted above).
    unsafe { std::mem::transmute::<ibv_grh, [u8; GRH_BYTES as usize]>(grh) }
}

/// Takes a receive of a datagram queue pair, whose lock is held, if the next receive has room for
/// `least` bytes.
fn take(target: &Qp, least: u64) -> Option<u64> {
    match target.srq() {
        Some(srq) => srq.take_if(target.qpn, |wqe| least == 0 || wqe.bytes() >= least),
        None => {
            if least > 0 {
                target.rq.known().next().filter(|index| target.receive(*index).bytes() >= least)?;
            }
            target.rq.take()
        }
    }
}
