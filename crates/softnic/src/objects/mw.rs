//! Memory windows: R_Keys for a part of a region, which come and go without a system call. Work
//! requests bind and invalidate them: `data_path::bind`.
//!
//! What it guarantees: a window grants no more than its region; invalidating and deallocating it
//! take effect on every later access. An access that was let in before may still be under way on
//! another thread when an invalidation completes: it stays inside the region, which can't be
//! deregistered while a window is bound to it.

use crate::objects::Object;
use crate::objects::guards::quiesce;
use crate::objects::key_table::{self, Grant};
use crate::objects::mr::Mr;
use crate::objects::pd::Pd;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// `ibv_mw` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Mw {
    raw: UnsafeCell<ibv_mw>,
    pub(crate) pd: u32,
    kind: ibv_mw_type::Type,
    /// The key in force, or the last one.
    key: AtomicU32,
    /// The region that it is bound to, or null.
    region: AtomicPtr<Mr>,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Mw {
    type Raw = ibv_mw;
}

impl Mw {
    pub(crate) fn is_type_2(&self) -> bool {
        self.kind == ibv_mw_type::IBV_MW_TYPE_2
    }

    /// The key in force, or the last one.
    pub(crate) fn key(&self) -> u32 {
        // Relaxed: one thread at a time binds a window.
        self.key.load(Ordering::Relaxed)
    }

    pub(crate) fn is_bound(&self) -> bool {
        // Relaxed: as above.
        !self.region.load(Ordering::Relaxed).is_null()
    }

    /// The key that the program's handle says, which the program may write between two calls
    /// (ibv_bind_mw(3)).
    pub(crate) fn handle_key(&self) -> u32 {
        // SAFETY: by that page the program doesn't write the handle during a call, in which this
        // one is.
        unsafe { (*self.raw.get()).rkey }
    }

    /// Tells the program the key.
    pub(crate) fn set_handle_key(&self, key: u32) {
        // SAFETY: by ibv_bind_mw(3) the program doesn't write the handle during a call.
        unsafe { (*self.raw.get()).rkey = key };
    }

    /// It is bound: from now on `key` stands for `grant`, which `region` covers.
    pub(crate) fn bind(&self, region: &Mr, key: u32, grant: &Grant) {
        self.unbind();
        // Release, both: pairs with the Acquire in `mr::retire`, and with the swap in `unbind`.
        region.windows.fetch_add(1, Ordering::Release);
        self.region.store(std::ptr::from_ref(region).cast_mut(), Ordering::Release);
        self.set_key(key);
        key_table::set(key, grant);
    }

    pub(crate) fn set_key(&self, key: u32) {
        // Relaxed: one thread at a time binds a window.
        self.key.store(key, Ordering::Relaxed);
    }

    /// Takes it off its region, if it is on one.
    pub(crate) fn unbind(&self) {
        // One thread at a time binds a window; invalidations by peers settle it with the swap
        // below.
        key_table::clear(self.key());
        // AcqRel: of several that unbind, one lets the region go.
        let region = self.region.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: `mr::retire` refuses while a window is on the region, which this one is until it
        // is counted off below.
        if let Some(region) = unsafe { region.as_ref() } {
            // Release pairs with the Acquire in `mr::retire`.
            region.windows.fetch_sub(1, Ordering::Release);
        }
    }
}

/// `ibv_alloc_mw(3)`.
pub(crate) fn alloc(domain: &Pd, kind: ibv_mw_type::Type) -> Result<*mut ibv_mw, c_int> {
    if kind != ibv_mw_type::IBV_MW_TYPE_1 && kind != ibv_mw_type::IBV_MW_TYPE_2 {
        return Err(libc::EINVAL);
    }
    let key = key_table::reserve().ok_or(libc::ENOMEM)?;
    domain.adopt();
    let context = domain.context().as_ptr();
    let raw = UnsafeCell::new(ibv_mw { context, pd: domain.as_ptr(), rkey: key, handle: key >> 8, type_: kind });
    let region = AtomicPtr::new(std::ptr::null_mut());
    let mw = Mw { raw, pd: domain.id, kind, key: AtomicU32::new(key), region }.into_raw();
    windows::insert(key, mw.cast());
    Ok(mw)
}

/// `ibv_dealloc_mw(3)`, up to freeing it.
pub(crate) fn retire(mw: &Mw) -> Result<(), c_int> {
    mw.unbind();
    windows::remove(mw.key());
    quiesce();
    key_table::release(mw.key());
    // SAFETY: the domain outlives the window, which it counts: `pd::retire` refuses while there are
    // any.
    unsafe { Pd::from_raw((*mw.raw.get()).pd) }.release();
    Ok(())
}

/// Takes the window of that key off its region. False if there is none.
pub(crate) fn unbind(key: u32) -> bool {
    windows::with(key, Mw::unbind)
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

    pub(super) fn insert(key: u32, mw: *mut Mw) {
        all().insert(key >> 8, Window(mw));
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
