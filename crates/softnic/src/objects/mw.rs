//! Memory windows: R_Keys for a part of a region, which come and go without a system call.
//!
//! What it guarantees: a window grants no more than its region; binding, invalidating and deallocating it take effect on
//! every later access. An access that was let in before may still be under way on another thread when an invalidation
//! completes: it stays inside the region, which can't be deregistered while a window is bound to it.
//!
//! Type 1 windows are bound by `ibv_bind_mw(3)` and get a new R_Key each time; type 2 windows (2B) by a work request,
//! with an R_Key whose low 8 bits the caller chooses, and are tied to that queue pair. Either way the handle (`ibv_mw.rkey`) says
//! which key the bind replaces: a handle whose key is not the one in force is stale, and its bind is refused, as devices do that
//! carry both keys in the work request. So who binds by a work request writes the new key into the handle, and who learns that a
//! bind failed puts the old one back (`ibv_bind_mw(3)`, notes).

use crate::data_path::execute::Outcome;
use crate::data_path::sq;
use crate::errno;
use crate::objects::fabric;
use crate::objects::key_table::{self, Grant, WINDOW};
use crate::objects::mr::Mr;
use crate::objects::pd::Pd;
use crate::objects::qp::Qp;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// `ibv_mw` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Mw {
    raw: UnsafeCell<ibv_mw>,
    pd: u32,
    /// The key in force, or the last one.
    key: AtomicU32,
    /// The region that it is bound to, or null.
    region: AtomicPtr<Mr>,
}

/// In `send_flags` of a bind that was kept for later: `invalidated_rkey` is what the handle said when it was posted. No flag of
/// libibverbs is up there; one who sets it all the same says so of the key, which is compared and no more.
const HANDLE_KEPT: u32 = 1 << 31;

const REMOTE_RIGHTS: u32 = key_table::REMOTE_WRITE | key_table::REMOTE_READ | key_table::REMOTE_ATOMIC;

/// `ibv_alloc_mw(3)`.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw {
    if kind != ibv_mw_type::IBV_MW_TYPE_1 && kind != ibv_mw_type::IBV_MW_TYPE_2 {
        return errno::null(libc::EINVAL);
    }
    // SAFETY: by the verb's contract.
    let domain = unsafe { Pd::from_raw(pd) };
    let Some(key) = key_table::reserve() else { return errno::null(libc::ENOMEM) };
    domain.adopt();
    let raw = ibv_mw { context: domain.context().as_ptr(), pd, rkey: key, handle: key >> 8, type_: kind };
    let mw = Mw {
        raw: UnsafeCell::new(raw),
        pd: domain.id,
        key: AtomicU32::new(key),
        region: AtomicPtr::new(std::ptr::null_mut()),
    };
    windows::insert(key, Box::into_raw(Box::new(mw))).cast()
}

/// `ibv_dealloc_mw(3)`.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: by the verb's contract.
    let this = unsafe { &*mw.cast::<Mw>() };
    unbind(this);
    // Relaxed: nobody else uses the window any more, by contract.
    let key = this.key.load(Ordering::Relaxed);
    windows::remove(key);
    fabric::quiesce();
    key_table::release(key);
    // SAFETY: the domain outlives the window, which refers to it; the box is `alloc_mw`'s.
    unsafe {
        Pd::from_raw((*this.raw.get()).pd).release();
        drop(Box::from_raw(mw.cast::<Mw>()));
    }
    0
}

/// `ibv_bind_mw(3)`, type 1: carried out as a work request of its own; `mw->rkey` is the new key when this returns.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: by the verb's contract.
    let (bind, window) = unsafe { (&*bind, &*mw.cast::<Mw>()) };
    // SAFETY: written at creation only.
    if unsafe { (*window.raw.get()).type_ } != ibv_mw_type::IBV_MW_TYPE_1 {
        return libc::EINVAL;
    }
    // SAFETY: as above; the handle's fields are the program's, which is in this call.
    let old = unsafe { (*window.raw.get()).rkey };
    let new = old & !0xff | u32::from((old as u8).wrapping_add(1));
    // SAFETY: numbers, pointers and unions of them, for which zero is a value.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    (wr.wr_id, wr.send_flags, wr.opcode) = (bind.wr_id, bind.send_flags, ibv_wr_opcode::IBV_WR_BIND_MW);
    wr.bind_mw_tso_union = bind_mw_tso_union_t { bind_mw: bind_mw_t { mw, rkey: new, bind_info: bind.bind_info } };
    let mut bad = std::ptr::null_mut();
    // SAFETY: by the verb's contract, which is post_send's.
    let code = unsafe { sq::post_send(qp, &raw mut wr, &raw mut bad) };
    if code == 0 {
        // SAFETY: read by the user only, after this returns.
        unsafe { (*window.raw.get()).rkey = new };
    }
    code
}

/// Notes in the copy of a work request that has to wait which key its handle had, if it is a bind: the program may change the
/// handle as soon as the post has returned.
///
/// # Safety
/// `kept` passed validation, and the post that keeps it has not returned.
pub(crate) unsafe fn keep_handle(kept: &mut ibv_send_wr) {
    if kept.opcode == ibv_wr_opcode::IBV_WR_BIND_MW {
        // SAFETY: a bind's arm of the union; the caller's.
        kept.imm_data_invalidated_rkey_union.invalidated_rkey = unsafe { (*kept.bind_mw_tso_union.bind_mw.mw).rkey };
        kept.send_flags |= HANDLE_KEPT;
    }
}

/// The key that the handle of a bind had when it was posted.
///
/// # Safety
/// A bind, and one that was kept or whose post has not returned; the window is alive.
unsafe fn handle(wr: &ibv_send_wr) -> u32 {
    // SAFETY: both arms of the one union are a number, the other's is a bind's; the caller's.
    unsafe {
        match wr.send_flags & HANDLE_KEPT {
            0 => (*wr.bind_mw_tso_union.bind_mw.mw).rkey,
            _ => wr.imm_data_invalidated_rkey_union.invalidated_rkey,
        }
    }
}

/// Carries out `IBV_WR_BIND_MW`, of both types. Of length 0 it unbinds a window of type 1.
///
/// # Safety
/// As [`crate::data_path::execute::execute`]; the window and the region are alive.
pub(crate) unsafe fn bind(qp: &Qp, wr: &ibv_send_wr) -> Outcome {
    // SAFETY: a bind's arm of the union; the caller's.
    let (bind, window) = unsafe {
        let bind = wr.bind_mw_tso_union.bind_mw;
        (bind, &*bind.mw.cast::<Mw>())
    };
    // SAFETY: written at creation only.
    let is_type_2 = unsafe { (*window.raw.get()).type_ } == ibv_mw_type::IBV_MW_TYPE_2;
    let info = bind.bind_info;
    let refused = Outcome::Failed(ibv_wc_status::IBV_WC_MW_BIND_ERR);
    // Relaxed: one thread at a time binds a window.
    let current = window.key.load(Ordering::Relaxed);
    // SAFETY: the caller's.
    let is_stale = unsafe { handle(wr) } != current;
    if window.pd != qp.pd || is_stale || bind.rkey >> 8 != current >> 8 {
        return refused;
    }
    // A type 2 window is bound only while it is unbound, and unbound by invalidating it; a type 1 window changes over.
    if is_type_2 && (info.length == 0 || !window.region.load(Ordering::Relaxed).is_null()) {
        return refused;
    }
    if info.length == 0 {
        unbind(window);
        // Relaxed: as above.
        window.key.store(bind.rkey, Ordering::Relaxed);
        return Outcome::Done(0);
    }
    // SAFETY: the caller's.
    let region = unsafe { Mr::from_raw(info.mr) };
    let Some(grant) = grant(qp, is_type_2, region, &info) else { return refused };
    unbind(window);
    // Release, both: pairs with the Acquire in `mr::deregister`, and with the swap in `unbind`.
    region.windows.fetch_add(1, Ordering::Release);
    window.region.store(info.mr.cast(), Ordering::Release);
    // Relaxed: as above.
    window.key.store(bind.rkey, Ordering::Relaxed);
    key_table::set(bind.rkey, &grant);
    Outcome::Done(0)
}

/// What the window would grant; `None` if the region doesn't cover it or wasn't registered for binding.
fn grant(qp: &Qp, is_type_2: bool, region: &Mr, info: &ibv_mw_bind_info) -> Option<Grant> {
    let parent = key_table::grant(region.lkey())?;
    let rights = info.mw_access_flags;
    let changes = rights & (key_table::REMOTE_WRITE | key_table::REMOTE_ATOMIC) != 0;
    let inside = info.addr.wrapping_sub(parent.start) <= parent.len
        && info.length <= parent.len - info.addr.wrapping_sub(parent.start);
    let allowed = parent.pd == qp.pd
        && parent.access & key_table::MW_BIND != 0
        && rights & !REMOTE_RIGHTS == 0
        && (!changes || parent.access & key_table::LOCAL_WRITE != 0)
        && inside;
    allowed.then_some(Grant {
        pd: qp.pd,
        access: rights | WINDOW,
        start: info.addr,
        len: info.length,
        offset: 0,
        qpn: if is_type_2 { qp.qpn } else { 0 },
        parent: region.lkey(),
    })
}

/// Takes it off its region, if it is on one.
fn unbind(window: &Mw) {
    // Relaxed: one thread at a time binds a window; invalidations by peers settle it with the swap below.
    key_table::clear(window.key.load(Ordering::Relaxed));
    // AcqRel: of several that unbind, one lets the region go.
    let region = window.region.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: a region isn't deregistered while a window is on it.
    if let Some(region) = unsafe { region.as_ref() } {
        // Release pairs with the Acquire in `mr::deregister`.
        region.windows.fetch_sub(1, Ordering::Release);
    }
}

/// Carries out `IBV_WR_LOCAL_INV`.
pub(crate) fn invalidate_locally(qp: &Qp, wr: &ibv_send_wr) -> Outcome {
    // SAFETY: both arms of the union are a number.
    let rkey = unsafe { wr.imm_data_invalidated_rkey_union.invalidated_rkey };
    if invalidate(qp, rkey) { Outcome::Done(0) } else { Outcome::Failed(ibv_wc_status::IBV_WC_MW_BIND_ERR) }
}

/// Invalidates a type 2 window that is bound to `qp`. False if the key isn't one.
pub(crate) fn invalidate(qp: &Qp, rkey: u32) -> bool {
    let Some(grant) = key_table::grant(rkey) else { return false };
    if grant.access & WINDOW == 0 || grant.qpn != qp.qpn || grant.pd != qp.pd {
        return false;
    }
    windows::with(rkey, unbind)
}

/// The windows, by the index in their keys: a peer names one by its key only.
mod windows {
    use super::Mw;
    use std::collections::HashMap;
    use std::sync::{Mutex, OnceLock, PoisonError};

    struct Window(*mut Mw);
    // SAFETY: followed under the lock only, and taken out before it is freed.
    unsafe impl Send for Window {}

    fn all() -> std::sync::MutexGuard<'static, HashMap<u32, Window>> {
        static ALL: OnceLock<Mutex<HashMap<u32, Window>>> = OnceLock::new();
        ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(key: u32, mw: *mut Mw) -> *mut Mw {
        all().insert(key >> 8, Window(mw));
        mw
    }

    pub(super) fn remove(key: u32) {
        all().remove(&(key >> 8));
    }

    /// Calls `f` on the window of `key`. False if there is none.
    pub(super) fn with(key: u32, f: impl FnOnce(&Mw)) -> bool {
        let windows = all();
        // SAFETY: in the table, so alive until `remove`, which needs the lock that we hold.
        windows.get(&(key >> 8)).map(|window| f(unsafe { &*window.0 })).is_some()
    }
}
