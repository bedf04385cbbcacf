//! Multicast groups: the UD queue pairs that get a copy of each datagram to a group's GID.
//!
//! Guarantees: a datagram goes to every queue pair that was attached before the send began, the
//! sender's own included. A sender takes no lock: a group's members are an immutable list that
//! attaching replaces. Groups are kept for the life of the process, as are their addresses.

use crate::objects::device::MCAST_ATTACH_MAX;
use crate::objects::fabric;
use crate::objects::guards::{Pinned, Taken, quiesce};
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A list of members, which is replaced and never changed.
pub(crate) struct Members(Vec<*const Qp>);

/// A group.
pub(crate) struct Group {
    members: AtomicPtr<Members>,
}

impl Group {
    /// The queue pairs that get a copy.
    pub(crate) fn members<'p>(&self, _pinned: Pinned<'p>) -> impl Iterator<Item = &'p Qp> + use<'p> {
        // Acquire pairs with the Release in `replace`: the list is filled.
        let members = self.members.load(Ordering::Acquire);
        // SAFETY: the list and its members are freed only after they were taken out and `quiesce`
        // has waited for `'p` to end (`replace`; an attached queue pair isn't destroyed).
        unsafe { (*members).0.iter().map(|qp| &**qp) }
    }

    /// Under the control lock: a copy of the current members.
    fn current(&self) -> Vec<*const Qp> {
        // Relaxed: changed only under the control lock.
        // SAFETY: as in `members`; `attach` and `detach` hold the lock, so the list stays.
        unsafe { (*self.members.load(Ordering::Relaxed)).0.clone() }
    }

    /// Under the control lock: sets a new list of members. The old one is freed once nobody reads
    /// it.
    fn replace(&self, members: Vec<*const Qp>) {
        // AcqRel: pairs with the Acquire in `members`.
        let old = self.members.swap(Box::into_raw(Box::new(Members(members))), Ordering::AcqRel);
        quiesce(Taken::Other);
        // SAFETY: unreachable since the swap, and every thread that was inside before has left.
        drop(unsafe { Box::from_raw(old) });
    }
}

/// Whether a GID names a group: ff00::/8, or an IPv4 multicast address mapped (kernel:
/// `rdma_is_multicast_addr`).
pub(crate) fn is_multicast(gid: &[u8; 16]) -> bool {
    let mapped = gid[..10].iter().all(|byte| *byte == 0) && gid[10..12] == [0xff, 0xff];
    gid[0] == 0xff || (mapped && gid[12] & 0xf0 == 0xe0)
}

/// The group of that GID, created on demand.
pub(crate) fn group(gid: &[u8; 16]) -> &'static Group {
    static GROUPS: OnceLock<Mutex<HashMap<[u8; 16], &'static Group>>> = OnceLock::new();
    let mut groups = GROUPS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    groups.entry(*gid).or_insert_with(|| {
        let members = Box::into_raw(Box::new(Members(Vec::new())));
        Box::leak(Box::new(Group { members: AtomicPtr::new(members) }))
    })
}

/// `ibv_attach_mcast(3)`. Attaching twice is attaching once: returns whether it was the first time.
/// `EINVAL` unless it is a UD queue pair and a group's GID.
pub(crate) fn attach(qp: &Qp, gid: &[u8; 16]) -> Result<bool, c_int> {
    let group = group_for(qp, gid)?;
    let _control = fabric::control();
    let mut members = group.current();
    if members.iter().any(|member| std::ptr::eq(*member, qp)) {
        return Ok(false);
    }
    if members.len() >= MCAST_ATTACH_MAX {
        return Err(libc::ENOMEM);
    }
    members.push(qp);
    group.replace(members);
    // Relaxed: under the control lock.
    qp.mcast_groups.fetch_add(1, Ordering::Relaxed);
    Ok(true)
}

/// `ibv_detach_mcast(3)`. `EINVAL` if it isn't attached there.
pub(crate) fn detach(qp: &Qp, gid: &[u8; 16]) -> Result<(), c_int> {
    let group = group_for(qp, gid)?;
    let _control = fabric::control();
    let mut members = group.current();
    let before = members.len();
    members.retain(|member| !std::ptr::eq(*member, qp));
    if members.len() == before {
        return Err(libc::EINVAL);
    }
    group.replace(members);
    // Relaxed: under the control lock.
    qp.mcast_groups.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

fn group_for(qp: &Qp, gid: &[u8; 16]) -> Result<&'static Group, c_int> {
    if qp.transport == Transport::Ud && is_multicast(gid) { Ok(group(gid)) } else { Err(libc::EINVAL) }
}
