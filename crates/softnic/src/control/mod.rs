//! Verbs that change a queue pair as a whole. They need the data path to flush it, to stop it, or
//! to start a peer.

pub(crate) mod create;
pub(crate) mod modify;

use crate::data_path::carrier;
use crate::objects::mcast;
use crate::objects::qp::Qp;
use std::ffi::c_int;

/// `ibv_attach_mcast(3)`: within this process, and, if the device has a carrier, for messages of
/// others to the group.
pub(crate) fn attach(qp: &Qp, gid: &[u8; 16]) -> Result<(), c_int> {
    let is_first = mcast::attach(qp, gid)?;
    let Some(carrier) = carrier::of_datagrams(qp).filter(|_| is_first) else { return Ok(()) };
    carrier.join(gid).inspect_err(|_| {
        // It was attached just above.
        let _ = mcast::detach(qp, gid);
    })
}

/// `ibv_detach_mcast(3)`.
pub(crate) fn detach(qp: &Qp, gid: &[u8; 16]) -> Result<(), c_int> {
    mcast::detach(qp, gid)?;
    if let Some(carrier) = carrier::of_datagrams(qp) {
        carrier.leave(gid);
    }
    Ok(())
}
