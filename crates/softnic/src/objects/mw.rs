//! Memory windows: an R_Key for a part of a region, granted and revoked by work requests.
//!
//! Guarantees: a window grants no more than its region. Invalidating and deallocating it take
//! effect on every later access. An earlier access may still be in progress on another thread when
//! an invalidation completes: it stays inside the region, which can't be deregistered while a
//! window is bound to it.
//!
//! Work requests of several queue pairs, and of peers, may bind and invalidate one window at the
//! same time: every change of its binding is under its lock, and first looks at the binding there.

use crate::key_table::{self, Grant, WINDOW};
use crate::objects::Object;
use crate::objects::guards::{Pinned, Taken, quiesce};
use crate::objects::mr::Mr;
use crate::objects::pd::Pd;
use rdma_sys::*;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use verbline_sync::lock::{Held, SpinLock};

/// `ibv_mw` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Mw {
    raw: UnsafeCell<ibv_mw>,
    pub(crate) pd: u32,
    kind: ibv_mw_type::Type,
    binding: SpinLock<Binding>,
}

/// A window's binding. It changes together with the key table's entry.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The current key, or the last one.
    key: u32,
    region: Option<NonNull<Mr>>,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Mw {
    type Raw = ibv_mw;
}

impl Mw {
    pub(crate) fn is_type_2(&self) -> bool {
        self.kind == ibv_mw_type::IBV_MW_TYPE_2
    }

    /// Locks the binding, to bind the window or to invalidate it.
    pub(crate) fn binding(&self) -> Held<'_, Binding> {
        self.binding.lock()
    }

    /// The window's address, for `Grant::offset`.
    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self) as u64
    }

    /// The key in the program's handle, which the program may write between two calls
    /// (ibv_bind_mw(3)).
    pub(crate) fn handle_key(&self) -> u32 {
        // SAFETY: by that page the program doesn't write the handle during a call, and this is in
        // one.
        unsafe { (*self.raw.get()).rkey }
    }

    /// Writes the key to the program's handle.
    pub(crate) fn set_handle_key(&self, key: u32) {
        // SAFETY: by ibv_bind_mw(3) the program doesn't write the handle during a call.
        unsafe { (*self.raw.get()).rkey = key };
    }
}

impl Binding {
    /// The current key, or the last one.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.region.is_some()
    }

    /// Binds the window: `key` stands for `grant` from now on; `region` covers it.
    pub(crate) fn bind(&mut self, region: &Mr, key: u32, grant: &Grant) {
        self.unbind(key);
        // Release pairs with the Acquire in `mr::retire`.
        region.windows.fetch_add(1, Ordering::Release);
        self.region = Some(NonNull::from(region));
        key_table::set(key, grant);
    }

    /// Unbinds the window from its region, if it is bound. Its next key is `key`.
    pub(crate) fn unbind(&mut self, key: u32) {
        key_table::clear(std::mem::replace(&mut self.key, key));
        if let Some(region) = self.region.take() {
            // SAFETY: `mr::retire` refuses while a window is bound to the region, and this one is
            // counted until here. Release pairs with the Acquire in `mr::retire`.
            unsafe { region.as_ref() }.windows.fetch_sub(1, Ordering::Release);
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
    let binding = SpinLock::new(Binding { key, region: None });
    Ok(Mw { raw, pd: domain.id, kind, binding }.into_raw())
}

/// `ibv_dealloc_mw(3)`, up to freeing it.
pub(crate) fn retire(mw: &Mw) -> Result<(), c_int> {
    let mut binding = mw.binding();
    let key = binding.key();
    binding.unbind(key);
    drop(binding);
    // After this, threads that looked the window up by its key are done with it.
    quiesce(Taken::Other);
    key_table::release(key);
    // SAFETY: the domain counts the window and outlives it: `pd::retire` refuses while it has
    // windows.
    unsafe { Pd::from_raw((*mw.raw.get()).pd) }.release();
    Ok(())
}

/// Unbinds the window that has `grant` by `key`. Returns false if it no longer has: it was
/// invalidated, or bound anew, since the lookup.
pub(crate) fn invalidate(_pinned: Pinned<'_>, key: u32, grant: &Grant) -> bool {
    debug_assert!(grant.access & WINDOW != 0);
    // SAFETY: a window's grant has its address (`bind::grant`); the thread that frees it clears its
    // key and waits for all pinned threads (`retire`).
    let window = unsafe { &*(grant.offset as *const Mw) };
    let mut binding = window.binding();
    let stands = key_table::grant(key).as_ref() == Some(grant);
    if stands {
        binding.unbind(key);
    }
    stands
}
