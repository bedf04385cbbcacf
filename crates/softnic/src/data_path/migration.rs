//! Automatic path migration (`IBV_DEVICE_AUTO_PATH_MIG`): connections switch to their alternate
//! path when the primary one fails.
//!
//! Guarantees: a connection migrates when both of its ends are armed, both ends together, and once.
//! Then both are in MIGRATED, have no alternate path until they are given another, and have raised
//! `IBV_EVENT_PATH_MIG`. If several threads want to migrate an end, the lock of its attributes
//! decides.

use crate::events::async_event::Kind;
use crate::objects::device;
use crate::objects::fabric;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::queues::accept_from;
use rdma_sys::ibv_mig_state::{IBV_MIG_ARMED, IBV_MIG_MIGRATED, IBV_MIG_REARM};
use rdma_sys::{ibv_ah_attr, ibv_qp_attr};
use std::sync::atomic::Ordering;

/// The value that the peer's `Inbound::accept` has if this path leads to it.
pub(crate) fn expected_by(qp: &Qp, path: &ibv_ah_attr) -> u32 {
    // SAFETY: any sixteen bytes are a GID.
    let gid = unsafe { path.grh.dgid.raw };
    let device = if path.is_global != 0 { device::by_gid(&gid) } else { device::by_lid(path.dlid) };
    // For an address that nobody has, a value that matches no queue pair.
    let device = device.map_or(device::DEVICES, |device| device.index);
    accept_from(qp.qpn, device)
}

/// Control path: whether these attributes name an alternate path.
pub(crate) fn has_alternate(attributes: &ibv_qp_attr) -> bool {
    attributes.alt_port_num != 0
}

/// Control path: the queue pair asks to be armed, and becomes armed if its peer asks too.
pub(crate) fn arm(qp: &Qp, pinned: Pinned<'_>) {
    let Some(peer) = peer(qp, pinned) else { return };
    let asks = |end: &Qp| end.attributes().0.path_mig_state != IBV_MIG_MIGRATED;
    if asks(qp) && asks(peer) {
        for end in [qp, peer] {
            let mut attributes = end.attributes();
            if attributes.0.path_mig_state == IBV_MIG_REARM {
                attributes.0.path_mig_state = IBV_MIG_ARMED;
            }
        }
    }
}

/// Switches both ends to their alternate paths. Returns false if they are not armed, or if the
/// alternate path leads elsewhere, which raises an event.
#[cold]
pub(crate) fn migrate(qp: &Qp, pinned: Pinned<'_>) -> bool {
    let Some(peer) = peer(qp, pinned) else { return false };
    let leads_to_peer = {
        let attributes = qp.attributes();
        if attributes.0.path_mig_state != IBV_MIG_ARMED {
            return false;
        }
        expected_by(qp, &attributes.0.alt_ah_attr) == accept_from(qp.qpn, peer.device().index)
    };
    if !leads_to_peer {
        qp.context().events.raise(qp, Kind::PathMigErr);
        return false;
    }
    let is_done = take_alternate(qp);
    if is_done {
        take_alternate(peer);
    }
    is_done
}

/// The queue pair that this one is connected to, if that is connected back.
fn peer<'p>(qp: &Qp, pinned: Pinned<'p>) -> Option<&'p Qp> {
    let connected = |peer: &&Qp| peer.transport == qp.transport && peer.sq.destination() == qp.qpn;
    fabric::lookup(pinned, qp.sq.destination()).filter(connected)
}

/// Switches one end. Returns false if it is not armed.
fn take_alternate(qp: &Qp) -> bool {
    {
        let mut attributes = qp.attributes();
        let known = &mut attributes.0;
        if known.path_mig_state != IBV_MIG_ARMED {
            return false;
        }
        known.path_mig_state = IBV_MIG_MIGRATED;
        known.ah_attr = known.alt_ah_attr;
        (known.port_num, known.pkey_index, known.timeout) =
            (known.alt_port_num, known.alt_pkey_index, known.alt_timeout);
        (known.alt_port_num, known.alt_pkey_index, known.alt_timeout) = (0, 0, 0);
        // Relaxed: a lone number.
        qp.sq.timeout.store(u32::from(known.timeout), Ordering::Relaxed);
        qp.sq.reroute(expected_by(qp, &known.ah_attr));
    }
    qp.context().events.raise(qp, Kind::PathMig);
    true
}
