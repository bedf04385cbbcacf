//! Memory windows: an R_Key for a part of a region, given and taken by work requests.
//!
//! What it guarantees: a window grants no more than its region; invalidating and deallocating it
//! take effect on every later access. An access that was let in before may still be under way on
//! another thread when an invalidation completes: it stays inside the region, which can't be
//! deregistered while a window is bound to it.
//!
//! Work requests of several queue pairs, and of peers, may bind and invalidate one window at a
//! time: all that changes what it is bound to is under its lock, and looks there at what it
//! changes.

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

/// What a window is bound to. It changes together with the key table's entry.
#[derive(Debug)]
pub(crate) struct Binding {
    /// The key in force, or the last one.
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

    /// To bind it, or to invalidate it.
    pub(crate) fn binding(&self) -> Held<'_, Binding> {
        self.binding.lock()
    }

    /// Where its grants say that it is.
    pub(crate) fn address(&self) -> u64 {
        std::ptr::from_ref(self) as u64
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
}

impl Binding {
    /// The key in force, or the last one.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.region.is_some()
    }

    /// It is bound: from now on `key` stands for `grant`, which `region` covers.
    pub(crate) fn bind(&mut self, region: &Mr, key: u32, grant: &Grant) {
        self.unbind(key);
        // Release pairs with the Acquire in `mr::retire`.
        region.windows.fetch_add(1, Ordering::Release);
        self.region = Some(NonNull::from(region));
        key_table::set(key, grant);
    }

    /// Takes it off its region, if it is on one. Its next key is `key`.
    pub(crate) fn unbind(&mut self, key: u32) {
        key_table::clear(std::mem::replace(&mut self.key, key));
        if let Some(region) = self.region.take() {
            // SAFETY: `mr::retire` refuses while a window is on the region, which this one is until
            // it is counted off here. Release pairs with the Acquire in `mr::retire`.
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
    // A thread that looked the window up by its key before is done with it after this.
    quiesce(Taken::Other);
    key_table::release(key);
    // SAFETY: the domain outlives the window, which it counts: `pd::retire` refuses while there are
    // any.
    unsafe { Pd::from_raw((*mw.raw.get()).pd) }.release();
    Ok(())
}

/// Takes the window that stands for `grant` by `key` off its region. False if it does no more:
/// it was invalidated, or bound anew, since that was looked up.
pub(crate) fn invalidate(_pinned: Pinned<'_>, key: u32, grant: &Grant) -> bool {
    debug_assert!(grant.access & WINDOW != 0);
    // SAFETY: a window's grant says where it is (`bind::grant`); the thread that frees it clears
    // its key and waits for all who are pinned (`retire`).
    let window = unsafe { &*(grant.offset as *const Mw) };
    let mut binding = window.binding();
    let stands = key_table::grant(key).as_ref() == Some(grant);
    if stands {
        binding.unbind(key);
    }
    stands
}
