//! Memory regions: memory that work requests and peers may name by a key.
//!
//! What it guarantees: after `ibv_dereg_mr(3)` returns, nothing of the device reads or writes the memory any more, so it
//! may be unmapped. L_Key and R_Key are the same number. Nothing is pinned: the device reads and writes
//! by the process's own addresses, so that any page faults in when it is touched. Every region is on demand, asked for
//! or not.

use crate::errno;
use crate::objects::fabric;
use crate::objects::key_table::{self, Grant};
use crate::objects::pd::Pd;
use rdma_sys::*;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

/// `ibv_mr` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Mr {
    raw: ibv_mr,
    /// Windows bound to it.
    pub(crate) windows: AtomicU32,
}

/// Access flags that mean something here, and those that are only advice.
const ACCESS_KNOWN: u32 = key_table::LOCAL_WRITE
    | key_table::REMOTE_WRITE
    | key_table::REMOTE_READ
    | key_table::REMOTE_ATOMIC
    | key_table::MW_BIND
    | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0
    | ACCESS_OPTIONAL;
/// `IBV_ACCESS_ON_DEMAND`, as every region is; `IBV_ACCESS_HUGETLB`, and the optional range of which
/// `IBV_ACCESS_RELAXED_ORDERING` is the first.
const ACCESS_OPTIONAL: u32 =
    ibv_access_flags::IBV_ACCESS_ON_DEMAND.0 | ibv_access_flags::IBV_ACCESS_HUGETLB.0 | 0x3ff0_0000;

impl Mr {
    /// # Safety
    /// `mr` is registered.
    pub(crate) unsafe fn from_raw<'a>(mr: *mut ibv_mr) -> &'a Mr {
        // SAFETY: `raw` is first in a `Mr`.
        unsafe { &*mr.cast::<Mr>() }
    }

    pub(crate) fn lkey(&self) -> u32 {
        self.raw.lkey
    }
}

/// `ibv_reg_mr(3)`; `iova` is the address by which work requests name the first byte, `None` for its own.
///
/// # Safety
/// `pd` is allocated. The memory is readable (writable, if `access` says so) until it is deregistered.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's.
    let domain = unsafe { Pd::from_raw(pd) };
    let Some(grant) = grant(domain.id, addr, length, iova, access) else {
        return errno::null(libc::EINVAL);
    };
    let Some(key) = key_table::reserve() else {
        return errno::null(libc::ENOMEM);
    };
    domain.adopt();
    let context = domain.context().as_ptr();
    let raw = ibv_mr { context, pd, addr, length, handle: key >> 8, lkey: key, rkey: key };
    let mr = Box::into_raw(Box::new(Mr { raw, windows: AtomicU32::new(0) }));
    key_table::set(key, &grant);
    mr.cast()
}

/// What such a region grants, or `None` if it can't be one. Remote write and atomics need local write (kernel:
/// `ib_check_mr_access`); `ZERO_BASED` names the first byte 0.
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

/// `ibv_rereg_mr(3)`. On failure before any change the region is as it was (`IBV_REREG_MR_ERR_INPUT`).
///
/// # Safety
/// `mr` is registered, no work request that uses it is outstanding; for what changes, as [`register`].
pub(crate) unsafe fn reregister(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    use ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT;
    use ibv_rereg_mr_flags as flag;
    let flags = flags as u32;
    // SAFETY: the caller's; the fields are changed by this verb only.
    let this = unsafe { &mut *mr.cast::<Mr>() };
    let new_translation = flags & flag::IBV_REREG_MR_CHANGE_TRANSLATION.0 != 0;
    let new_pd = flags & flag::IBV_REREG_MR_CHANGE_PD.0 != 0;
    let new_access = flags & flag::IBV_REREG_MR_CHANGE_ACCESS.0 != 0;
    let refused = || {
        errno::minus_one(libc::EINVAL);
        IBV_REREG_MR_ERR_INPUT
    };
    if flags == 0 || flags & !flag::IBV_REREG_MR_FLAGS_SUPPORTED.0 != 0 || (new_pd && pd.is_null()) {
        return refused();
    }
    // Relaxed: bound and unbound by work requests that are, by contract, not outstanding.
    if this.windows.load(Ordering::Relaxed) != 0 {
        errno::minus_one(libc::EBUSY);
        return ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD;
    }
    let key = this.raw.lkey;
    // A registered region's key is set.
    let Some(old) = key_table::grant(key) else { return refused() };
    let (to_addr, to_length) = if new_translation { (addr, length) } else { (this.raw.addr, this.raw.length) };
    let to_pd = if new_pd { pd } else { this.raw.pd };
    let iova = (!new_translation).then_some(old.start);
    // SAFETY: the caller's.
    let to_domain = unsafe { Pd::from_raw(to_pd) };
    let to_access = if new_access { access as u32 } else { old.access };
    let Some(new) = grant(to_domain.id, to_addr, to_length, iova, to_access) else {
        return refused();
    };
    key_table::clear(key);
    fabric::quiesce();
    if new_pd {
        to_domain.adopt();
        // SAFETY: the region's old domain is alive: the region refers to it.
        unsafe { Pd::from_raw(this.raw.pd) }.release();
    }
    (this.raw.addr, this.raw.length, this.raw.pd) = (to_addr, to_length, to_pd);
    key_table::set(key, &new);
    0
}

/// `ibv_dereg_mr(3)`. `EBUSY` while a window is bound to it.
///
/// # Safety
/// `mr` is registered, and isn't used after success.
pub(crate) unsafe fn deregister(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Mr::from_raw(mr) };
    // Acquire pairs with the Release in `mw`: the window is unbound.
    if this.windows.load(Ordering::Acquire) != 0 {
        return libc::EBUSY;
    }
    key_table::clear(this.raw.lkey);
    // Whoever looked the key up before is done with the memory after this.
    fabric::quiesce();
    key_table::release(this.raw.lkey);
    // SAFETY: the caller's: the domain outlives the region, which refers to it.
    unsafe { Pd::from_raw(this.raw.pd) }.release();
    // SAFETY: the box that `register` made.
    drop(unsafe { Box::from_raw(mr.cast::<Mr>()) });
    0
}
