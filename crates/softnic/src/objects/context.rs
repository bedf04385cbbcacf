//! An open device: the `ibv_context` that every object points to, with the data path's table of
//! operations.
//!
//! Guarantees: the allocation has `struct verbs_context`'s shape with `abi_compat` set, so that
//! libibverbs' and rdma-sys's inline functions find every extension they look for, or see that it
//! isn't there (libibverbs/verbs.h). The table grows at its front, downwards from `sz`, so that
//! `context` stays where callers of every version look for it.

use crate::copy::tuning;
use crate::events::async_event::{AsyncEvents, Kind};
use crate::objects::device::{self, Device};
use crate::objects::{Object, Users};
use rdma_sys::*;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

// `struct verbs_context` of libibverbs/verbs.h: `context` is its last field and `sz` "immediately
// before" it. The table "grows up": a field keeps its distance from `context`, by which
// `verbs_get_ctx_op` finds it.
const _: () = {
    assert!(offset_of!(verbs_context, context) + size_of::<ibv_context>() == size_of::<verbs_context>());
    assert!(offset_of!(verbs_context, sz) + size_of::<usize>() == offset_of!(verbs_context, context));
    assert!(offset_of!(verbs_context, context) - offset_of!(verbs_context, query_device_ex) == 104);
    assert!(offset_of!(verbs_context, context) - offset_of!(verbs_context, alloc_td) == 192);
    assert!(offset_of!(verbs_context, context) - offset_of!(verbs_context, query_port) == 320);
};
// `struct ibv_context`: inline functions compiled into callers read it, so it can't change. Its
// mutex is the C library's: 40 bytes on x86-64, 48 on aarch64.
const _: () = {
    assert!(offset_of!(ibv_context, device) == 0 && offset_of!(ibv_context, ops) == 8);
    assert!(offset_of!(ibv_context, abi_compat) == 280 + size_of::<libc::pthread_mutex_t>());
    assert!(size_of::<ibv_context>() == offset_of!(ibv_context, abi_compat) + size_of::<usize>());
};

/// See the [module](self).
#[repr(C)]
pub(crate) struct Context {
    verbs: verbs_context,
    pub(crate) device: &'static Device,
    pub(crate) events: AsyncEvents,
    /// The objects in it.
    pub(crate) users: Users,
    /// Whether its device was removed.
    removed: AtomicBool,
}

/// Every open context.
static OPEN: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Listed(*const Context);
// SAFETY: contexts are shared between threads by design, and taken from the list before they are
// freed.
unsafe impl Send for Listed {}

fn all() -> MutexGuard<'static, Vec<Listed>> {
    // Every change is one push or one removal: a panic leaves the list whole.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the device of that name from all contexts that have it open, runs `meanwhile`, and then
/// raises their events. Returns the number of contexts.
pub(crate) fn remove(name: &str, meanwhile: impl FnOnce()) -> usize {
    let open = all();
    // SAFETY: listed contexts are open, and closing one waits for the lock.
    let contexts = open.iter().map(|listed| unsafe { &*listed.0 });
    // Relaxed: a lone flag, here and below; its effect on queue pairs is under the control lock.
    let mine = |context: &&Context| context.device.name() == name && !context.removed.load(Ordering::Relaxed);
    let mine: Vec<_> = contexts.filter(mine).collect();
    mine.iter().for_each(|context| context.removed.store(true, Ordering::Relaxed));
    meanwhile();
    mine.iter().for_each(|context| context.events.raise_device(Kind::DeviceFatal));
    mine.len()
}

// SAFETY: `verbs` is the first field of a `repr(C)` struct, and has `context` at that offset.
unsafe impl Object for Context {
    type Raw = ibv_context;
    const RAW_AT_BYTES: usize = offset_of!(verbs_context, context);
}

impl Context {
    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        (&raw const self.verbs.context).cast_mut()
    }

    /// Whether its device was removed.
    pub(crate) fn is_removed(&self) -> bool {
        // Relaxed: see `remove`.
        self.removed.load(Ordering::Relaxed)
    }
}

/// `ibv_open_device(3)`. `fill` sets the verbs in the table.
pub(crate) fn open(device: &'static Device, fill: impl FnOnce(&mut verbs_context)) -> Result<*mut ibv_context, c_int> {
    tuning::choose();
    let events = AsyncEvents::new()?;
    // SAFETY: integers, pointers and optional functions, for all of which zero is a value (absent).
    let mut verbs: verbs_context = unsafe { std::mem::zeroed() };
    verbs.sz = size_of::<verbs_context>();
    fill(&mut verbs);
    let context = &mut verbs.context;
    context.device = device.as_ptr();
    context.cmd_fd = -1;
    context.async_fd = events.fd();
    context.num_comp_vectors = 1;
    context.abi_compat = usize::MAX as *mut _;
    let context =
        Context { verbs, device, events, users: Users::default(), removed: AtomicBool::new(false) }.into_raw();
    // SAFETY: the context's mutex, which nobody uses yet. rdma-sys's type is as large as libc's
    // (same header).
    unsafe { libc::pthread_mutex_init((&raw mut (*context).mutex).cast(), std::ptr::null()) };
    // SAFETY: made just above.
    all().push(Listed(unsafe { Context::from_raw(context) }));
    Ok(context)
}

/// `ibv_close_device(3)`, up to freeing it. Refuses with `EBUSY` while objects of it exist.
pub(crate) fn retire(context: &Context) -> Result<(), c_int> {
    context.users.gone()?;
    all().retain(|listed| !std::ptr::eq(listed.0, context));
    Ok(())
}

/// The context if its device is still there; `EIO` otherwise.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn present<'a>(context: *mut ibv_context) -> Result<&'a Context, c_int> {
    // SAFETY: by the contract above, `context` is open.
    let context = unsafe { Context::from_raw(context) };
    if context.is_removed() { Err(libc::EIO) } else { Ok(context) }
}

impl Context {
    /// `ibv_query_port(3)`.
    pub(crate) fn port(&self, port: u8) -> Result<ibv_port_attr, c_int> {
        match port {
            _ if self.is_removed() => Err(libc::EIO),
            device::PORT => Ok(self.device.port_attributes()),
            _ => Err(libc::EINVAL),
        }
    }

    /// `ibv_query_gid(3)`.
    pub(crate) fn gid(&self, port: u8, index: c_int) -> Result<ibv_gid, c_int> {
        let gid = usize::try_from(index).ok().filter(|_| port == device::PORT).and_then(|index| self.device.gid(index));
        gid.map(|raw| ibv_gid { raw }).ok_or(libc::EINVAL)
    }
}
