//! Memory windows: an R_Key for a part of a [`PeerMr`](crate::rdma::PeerMr), granted and revoked by
//! work requests (ibv_bind_mw(3)).
//!
//! A window keeps its bound memory registered and mapped, and a bind in progress keeps the window.
//! A failed bind leaves the window as it was. The device goes by the handle's key, which the post
//! changed, so the next bind first restores it (ibv_bind_mw(3), notes).

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::{ibv_mw, ibv_mw_bind_info, ibv_mw_type};

use crate::cq::completion::Status;
use crate::errno::VerbError;
use crate::memory::mr::Access;
use crate::memory::pd::PdInner;
use crate::memory::pd::ProtectionDomain;
use crate::memory::peer::{PeerSlice, Remote};

/// The owner of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// The PD: the peer may use any QP of it; every bind gives a new key.
    Type1,
    /// The QP that bound the window (2B); work requests of either side can invalidate the key.
    Type2,
}

/// A memory window. Deallocated when the window and all its binds are gone.
#[derive(Debug)]
pub struct MemoryWindow {
    pub(crate) inner: Arc<WindowInner>,
    kind: WindowKind,
    /// The memory of the last posted bind, as peers address it.
    remote: Option<Remote>,
    /// The key of the last bind to memory, even if the window was unbound since.
    last_rkey: u32,
    /// Binds posted so far.
    binds: u64,
}

#[derive(Debug)]
pub(crate) struct WindowInner {
    pub(crate) pd: Arc<PdInner>,
    raw: NonNull<ibv_mw>,
    bound: Mutex<Bound>,
}

#[derive(Debug, Default)]
struct Bound {
    /// The memory that peers reach through the window, once the last posted bind is done.
    memory: Option<PeerSlice>,
    /// The earliest failed bind, and the key it was to replace, which is still in force. Binds
    /// posted behind it fail too.
    failed: Option<(u64, u32)>,
    /// Failures of binds before this number have been handled.
    settled: u64,
    /// Set when a bind's outcome is unknown: the QP was reset or dropped before its completion was
    /// handed back.
    doubt: Option<Doubt>,
}

/// The state of the window if the binds with unknown outcome were not carried out.
#[derive(Debug)]
struct Doubt {
    /// The key in force. If the next bind is refused with one of the two keys, the other is right.
    in_force: u32,
    /// Memory that the window may still be bound to. Kept until another bind is known to be done,
    /// or the window is gone.
    memory: Vec<PeerSlice>,
}

/// A posted bind, until its completion. Keeps the window and its previous memory.
#[derive(Debug)]
pub(crate) struct PostedBind {
    window: Arc<WindowInner>,
    number: u64,
    before: Option<PeerSlice>,
    replaces: u32,
    is_done: bool,
}

impl ProtectionDomain {
    /// Allocates a memory window, bound to nothing.
    pub fn alloc_mw(&self, kind: WindowKind) -> Result<MemoryWindow, VerbError> {
        let pd = &self.inner;
        let raw_kind = match kind {
            WindowKind::Type1 => ibv_mw_type::IBV_MW_TYPE_1,
            WindowKind::Type2 => ibv_mw_type::IBV_MW_TYPE_2,
        };
        // SAFETY: the PD is alive; the window keeps it.
        let raw = unsafe { rdma_sys::ibv_alloc_mw(pd.as_ptr(), raw_kind) };
        let raw = raw
            .and_then(NonNull::new)
            .ok_or_else(|| VerbError::last("ibv_alloc_mw", || format!("{kind:?} on {}", pd.describe())))?;
        // SAFETY: the window was just allocated.
        let last_rkey = unsafe { (*raw.as_ptr()).rkey };
        let inner = WindowInner { pd: pd.clone(), raw, bound: Mutex::default() };
        Ok(MemoryWindow { inner: Arc::new(inner), kind, remote: None, last_rkey, binds: 0 })
    }
}

impl PostedBind {
    /// Handles the bind's completion.
    pub(crate) fn done(mut self, status: Status) {
        self.is_done = true;
        // Dropped after the window's lock is released.
        let before = self.before.take();
        let mut bound = self.window.bound();
        if status == Status::SUCCESS {
            let doubt = bound.doubt.take();
            drop(bound);
            return drop((before, doubt));
        }
        let earlier = bound.failed.is_none_or(|(number, _)| self.number < number);
        if self.number >= bound.settled && earlier {
            let mut in_force = self.replaces;
            if let Some(doubt) = &mut bound.doubt {
                std::mem::swap(&mut in_force, &mut doubt.in_force);
            }
            bound.failed = Some((self.number, in_force));
            let replaced = std::mem::replace(&mut bound.memory, before);
            // Like `before`: its deregistration may wait, so it is dropped without the lock.
            drop(bound);
            drop(replaced);
        }
    }
}

impl Drop for PostedBind {
    /// The outcome of the bind stays unknown: either key may be in force.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut bound = self.window.bound();
        match &mut bound.doubt {
            // Later binds are just as uncertain: if this one was not carried out, they replace a
            // key that was never in force.
            Some(doubt) => doubt.memory.extend(self.before.take()),
            None => {
                let memory = self.before.take().into_iter().collect();
                bound.doubt = Some(Doubt { in_force: self.replaces, memory });
            }
        }
    }
}

// SAFETY: the window is bound through its one handle; `bound` is behind a mutex.
unsafe impl Send for WindowInner {}
// SAFETY: a bind takes `&mut` of the one handle, and `bound` is behind a mutex.
unsafe impl Sync for WindowInner {}

impl MemoryWindow {
    /// Whether it belongs to its PD (type 1) or to the QP that bound it (type 2).
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// The address and key for a peer, valid once the completion of the last bind has come; `None`
    /// before any bind, or after an unbind.
    pub fn remote(&self) -> Option<Remote> {
        self.remote
    }

    /// The key that the next bind of a type 2 window gives: only the low 8 bits differ, which count
    /// up and wrap.
    pub(crate) fn next_rkey(&self) -> u32 {
        (self.last_rkey & !0xff) | (self.last_rkey.wrapping_add(1) & 0xff)
    }

    /// Prepares a bind. Returns the key that the bind replaces, which the handle has.
    pub(crate) fn settle(&mut self) -> u32 {
        let mut bound = self.inner.bound();
        // SAFETY: the window is alive, `&mut self` is its only user, and no post of it is under
        // way.
        let rkey = unsafe { &raw mut (*self.inner.as_ptr()).rkey };
        if let Some((_, in_force)) = bound.failed.take() {
            // Binds posted behind the failed one fail with it; their completions come later.
            bound.settled = self.binds;
            // SAFETY: the window is alive, and `&mut self` is its only user.
            unsafe { rkey.write(in_force) };
        }
        // SAFETY: the window is alive, and `&mut self` is its only user.
        unsafe { rkey.read() }
    }

    /// Records a posted bind to `slice`, which replaces the key from [`MemoryWindow::settle`].
    pub(crate) fn posted(&mut self, slice: PeerSlice, replaces: u32) -> PostedBind {
        let rkey = match self.kind {
            // SAFETY: the window is alive; ibv_bind_mw, which writes the field, has returned.
            WindowKind::Type1 => unsafe { (*self.inner.as_ptr()).rkey },
            WindowKind::Type2 => {
                let rkey = self.next_rkey();
                // SAFETY: the window is alive, and `&mut self` is its only user. For type 2 the
                // program maintains the field: the kernel's provider reads from it the key that the
                // next bind replaces.
                unsafe { (*self.inner.as_ptr()).rkey = rkey };
                rkey
            }
        };
        self.last_rkey = rkey;
        let bound = !slice.is_empty();
        self.remote = bound.then(|| Remote { addr: slice.addr(), rkey });
        let before = std::mem::replace(&mut self.inner.bound().memory, bound.then_some(slice));
        self.binds += 1;
        PostedBind { window: self.inner.clone(), number: self.binds - 1, before, replaces, is_done: false }
    }
}

/// The description of a bind's memory for the device.
pub(crate) fn bind_info(slice: &PeerSlice, access: Access) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: slice.mr_ptr(),
        addr: slice.addr(),
        length: slice.len_bytes(),
        mw_access_flags: access.bits(),
    }
}

impl WindowInner {
    pub(crate) fn as_ptr(&self) -> *mut ibv_mw {
        self.raw.as_ptr()
    }

    fn bound(&self) -> MutexGuard<'_, Bound> {
        // A panic while the lock is held leaves no inconsistent state.
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WindowInner {
    fn drop(&mut self) {
        // SAFETY: allocated on the same context; binds in progress hold the Arc of this one.
        // Deallocated once, before `bound` drops its memory.
        let ret = unsafe { rdma_sys::ibv_dealloc_mw(self.as_ptr()) };
        if let Some(errno) = self.pd.context.undestroyed(ret) {
            tracing::warn!(pd = %self.pd.describe(), %errno, "the memory window would not go");
        }
    }
}
