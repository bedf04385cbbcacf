//! Memory regions: memory that work requests and peers access by a key.
//!
//! Guarantees: after `ibv_dereg_mr(3)` returns, the device no longer reads or writes the memory, so
//! it may be unmapped. L_Key and R_Key are the same number. Nothing is pinned: the device uses the
//! process's own addresses, so pages fault in when touched. Every region is on demand, requested or
//! not.

use crate::key_table::{self, Grant};
use crate::objects::Object;
use crate::objects::guards::{Taken, quiesce};
use crate::objects::pd::Pd;
use rdma_sys::*;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// `ibv_mr` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Mr {
    raw: ibv_mr,
    /// The number of windows bound to it.
    pub(crate) windows: AtomicU32,
}

/// Access flags with an effect here, and flags that are only advice.
const ACCESS_KNOWN: u32 = key_table::LOCAL_WRITE
    | key_table::REMOTE_WRITE
    | key_table::REMOTE_READ
    | key_table::REMOTE_ATOMIC
    | key_table::MW_BIND
    | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0
    | ACCESS_OPTIONAL;
/// `IBV_ACCESS_ON_DEMAND`, which every region is; `IBV_ACCESS_HUGETLB`; and the optional range,
/// which begins with `IBV_ACCESS_RELAXED_ORDERING`.
const ACCESS_OPTIONAL: u32 =
    ibv_access_flags::IBV_ACCESS_ON_DEMAND.0 | ibv_access_flags::IBV_ACCESS_HUGETLB.0 | 0x3ff0_0000;

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Mr {
    type Raw = ibv_mr;
}

impl Mr {
    pub(crate) fn lkey(&self) -> u32 {
        self.raw.lkey
    }

    fn domain(&self) -> &Pd {
        // SAFETY: the domain counts the region and outlives it: `pd::retire` refuses while it has
        // regions.
        unsafe { Pd::from_raw(self.raw.pd) }
    }
}

/// `ibv_reg_mr(3)`; `iova` is the first byte's address in work requests, `None` for its own.
///
/// # Safety
/// The memory is readable (writable, if `access` says so) until [`retire`] has succeeded.
pub(crate) unsafe fn register(
    domain: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    access: c_uint,
) -> Result<*mut ibv_mr, c_int> {
    let grant = grant(domain.id, addr, length, iova, access).ok_or(libc::EINVAL)?;
    let key = key_table::reserve().ok_or(libc::ENOMEM)?;
    domain.adopt();
    let (context, pd) = (domain.context().as_ptr(), domain.as_ptr());
    let raw = ibv_mr { context, pd, addr, length, handle: key >> 8, lkey: key, rkey: key };
    let mr = Mr { raw, windows: AtomicU32::new(0) }.into_raw();
    key_table::set(key, &grant);
    Ok(mr)
}

/// The grant of such a region, or `None` if it is invalid. Remote write and atomics need local
/// write (kernel: `ib_check_mr_access`); with `ZERO_BASED` the first byte has address 0.
fn grant(pd: u32, addr: *mut c_void, length: usize, iova: Option<u64>, access: c_uint) -> Option<Grant> {
    let remote_changes = access & (key_table::REMOTE_WRITE | key_table::REMOTE_ATOMIC) != 0;
    if access & !ACCESS_KNOWN != 0 || (remote_changes && access & key_table::LOCAL_WRITE == 0) {
        return None;
    }
    (addr as usize).checked_add(length)?;
    let zero_based = access & ibv_access_flags::IBV_ACCESS_ZERO_BASED.0 != 0;
    let start = if zero_based { 0 } else { iova.unwrap_or(addr as u64) };
    start.checked_add(length as u64)?;
    let offset = (addr as u64).wrapping_sub(start);
    Some(Grant { pd, access: access & !ACCESS_OPTIONAL, start, len: length as u64, offset, qpn: 0, parent: 0 })
}

/// The changes of `ibv_rereg_mr(3)`; `None` keeps the value.
pub(crate) struct Changes<'a> {
    pub(crate) translation: Option<(*mut c_void, usize)>,
    pub(crate) domain: Option<&'a Pd>,
    pub(crate) access: Option<c_uint>,
}

/// `ibv_rereg_mr(3)`. On failure the region is as it was.
///
/// # Safety
/// No work request that uses the region is outstanding; for the changes, the contract of
/// [`register`].
pub(crate) unsafe fn reregister(mr: &mut Mr, changes: &Changes<'_>) -> Result<(), c_int> {
    // Relaxed: bound and unbound by work requests, none of which is outstanding by contract.
    if mr.windows.load(Ordering::Relaxed) != 0 {
        return Err(libc::EBUSY);
    }
    let key = mr.raw.lkey;
    // A registered region's key is set.
    let old = key_table::grant(key).ok_or(libc::EINVAL)?;
    let (addr, length) = changes.translation.unwrap_or((mr.raw.addr, mr.raw.length));
    let iova = if changes.translation.is_none() { Some(old.start) } else { None };
    let pd = changes.domain.map_or(old.pd, |domain| domain.id);
    let new = grant(pd, addr, length, iova, changes.access.unwrap_or(old.access)).ok_or(libc::EINVAL)?;
    withdraw(mr);
    if let Some(domain) = changes.domain {
        domain.adopt();
        mr.domain().release();
        mr.raw.pd = domain.as_ptr();
    }
    (mr.raw.addr, mr.raw.length) = (addr, length);
    key_table::set(key, &new);
    Ok(())
}

/// `ibv_dereg_mr(3)`, up to freeing it. `EBUSY` while a window is bound to it.
pub(crate) fn retire(mr: &Mr) -> Result<(), c_int> {
    // Acquire pairs with the Release in `mw`: the window is unbound.
    if mr.windows.load(Ordering::Acquire) != 0 {
        return Err(libc::EBUSY);
    }
    withdraw(mr);
    key_table::release(mr.raw.lkey);
    mr.domain().release();
    Ok(())
}

/// Makes the region's key grant nothing any more, also to threads that looked it up before.
fn withdraw(mr: &Mr) {
    let key = mr.raw.lkey;
    let grant = key_table::grant(key);
    key_table::clear(key);
    // Only receives with such a key have a capacity.
    if grant.is_some_and(|grant| grant.access & key_table::LOCAL_WRITE != 0) {
        mr.domain().distrust(key);
    }
    // After this, threads that looked the key up before are done with the memory.
    quiesce(Taken::Key(key));
}
