//! An open device: the `ibv_context` that every object points to, with the table through which the data path runs.
//!
//! What it guarantees: the allocation has `struct verbs_context`'s shape with `abi_compat` set, so that libibverbs' and
//! rdma-sys's inline functions find every extension they ask for, or learn that it isn't there (libibverbs/verbs.h).
//! The table grows at its front, downwards from `sz`, so that `context` stays where callers of every version look for it.

use crate::copy::tuning;
use crate::data_path::{poll, rq, sq};
use crate::errno;
use crate::events::async_event::{AsyncEvents, Kind};
use crate::objects::device::Device;
use crate::objects::{cq, device, mw, pd, srq, thread_domain};
use rdma_sys::*;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

// `struct verbs_context` of libibverbs/verbs.h: `context` is its last field and `sz` "immediately before" it; the table "grows
// up", so that a field keeps its distance from `context`, by which `verbs_get_ctx_op` finds it.
const _: () = {
    assert!(offset_of!(verbs_context, context) + size_of::<ibv_context>() == size_of::<verbs_context>());
    assert!(offset_of!(verbs_context, sz) + size_of::<usize>() == offset_of!(verbs_context, context));
    assert!(offset_of!(verbs_context, context) - offset_of!(verbs_context, query_device_ex) == 104);
    assert!(offset_of!(verbs_context, context) - offset_of!(verbs_context, alloc_td) == 192);
    assert!(offset_of!(verbs_context, context) - offset_of!(verbs_context, query_port) == 320);
};
// `struct ibv_context`, which inline functions that were compiled into callers read: it can't change.
const _: () = {
    assert!(offset_of!(ibv_context, device) == 0 && offset_of!(ibv_context, ops) == 8);
    assert!(offset_of!(ibv_context, abi_compat) == 320 && size_of::<ibv_context>() == 328);
};

/// See the [module](self).
#[repr(C)]
pub(crate) struct Context {
    verbs: verbs_context,
    pub(crate) device: &'static Device,
    pub(crate) events: AsyncEvents,
    /// Objects that exist in it.
    pub(crate) objects: AtomicU32,
    /// Its device was pulled out.
    removed: AtomicBool,
}

/// Every open context.
static OPEN: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Listed(*const Context);
// SAFETY: contexts are shared between threads by design, and taken from the list before they are freed.
unsafe impl Send for Listed {}

fn all() -> MutexGuard<'static, Vec<Listed>> {
    // Every change is one push or one removal: a panic leaves nothing half done.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the device of that name away from everybody who has it open, does `meanwhile`, and then tells them. Gives how many
/// there are.
pub(crate) fn remove(name: &str, meanwhile: impl FnOnce()) -> usize {
    let open = all();
    // SAFETY: what is listed is open, and closing it waits for the lock.
    let contexts = open.iter().map(|listed| unsafe { &*listed.0 });
    // Relaxed: a flag of its own, here and below; what it means for queue pairs is under the control lock.
    let mine = |context: &&Context| context.device.name() == name && !context.removed.load(Ordering::Relaxed);
    let mine: Vec<_> = contexts.filter(mine).collect();
    mine.iter().for_each(|context| context.removed.store(true, Ordering::Relaxed));
    meanwhile();
    mine.iter().for_each(|context| context.events.raise_device(Kind::DeviceFatal));
    mine.len()
}

impl Context {
    /// # Safety
    /// `context` is one that [`open`] gave and [`close`] has not taken back.
    pub(crate) unsafe fn from_raw<'a>(context: *mut ibv_context) -> &'a Context {
        // SAFETY: `verbs` is first in a `Context`, and `context` is in it at the asserted offset.
        unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast::<Context>() }
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        (&raw const self.verbs.context).cast_mut()
    }

    /// Whether its device was pulled out.
    pub(crate) fn is_removed(&self) -> bool {
        // Relaxed: see `remove`.
        self.removed.load(Ordering::Relaxed)
    }

    /// An object was made in it.
    pub(crate) fn adopt(&self) {
        // Relaxed: a count; `close` is called after, by contract.
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// An object is gone.
    pub(crate) fn release(&self) {
        // Relaxed: as in `adopt`.
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `ibv_open_device(3)`.
///
/// # Safety
/// `device` is one of the list's.
pub(crate) unsafe fn open(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller's.
    let device = unsafe { Device::from_raw(device) };
    tuning::choose();
    let events = match AsyncEvents::new() {
        Ok(events) => events,
        Err(code) => return errno::null(code),
    };
    // SAFETY: integers, pointers and optional functions, for all of which zero is a value (absent).
    let mut verbs: verbs_context = unsafe { std::mem::zeroed() };
    verbs.sz = size_of::<verbs_context>();
    verbs.query_port = Some(query_port_sized);
    verbs.query_device_ex = Some(query_device_sized);
    verbs.alloc_td = Some(thread_domain::alloc);
    verbs.dealloc_td = Some(thread_domain::dealloc);
    verbs.alloc_parent_domain = Some(pd::alloc_parent);
    let context = &mut verbs.context;
    context.device = device.as_ptr();
    context.cmd_fd = -1;
    context.async_fd = events.fd();
    context.num_comp_vectors = 1;
    context.abi_compat = usize::MAX as *mut _;
    let ops = &mut context.ops;
    ops.post_send = Some(sq::post_send);
    ops.post_recv = Some(rq::post_recv);
    ops.post_srq_recv = Some(srq::post_srq_recv);
    ops.poll_cq = Some(poll::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.alloc_mw = Some(mw::alloc_mw);
    ops.bind_mw = Some(mw::bind_mw);
    ops.dealloc_mw = Some(mw::dealloc_mw);
    let context =
        Box::new(Context { verbs, device, events, objects: AtomicU32::new(0), removed: AtomicBool::new(false) });
    // SAFETY: the context's mutex, which nobody uses yet. rdma-sys's type is as large as libc's (same header).
    unsafe {
        let mutex = (&raw const context.verbs.context.mutex).cast_mut().cast::<libc::pthread_mutex_t>();
        libc::pthread_mutex_init(mutex, std::ptr::null());
    }
    let context = Box::leak(context);
    all().push(Listed(context));
    context.as_ptr()
}

/// `ibv_close_device(3)`. Refuses with `EBUSY` while objects of it exist.
///
/// # Safety
/// `context` is open, and isn't used after success.
pub(crate) unsafe fn close(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller's.
    let this = unsafe { Context::from_raw(context) };
    // Relaxed: see `adopt`.
    if this.objects.load(Ordering::Relaxed) != 0 {
        return errno::minus_one(libc::EBUSY);
    }
    all().retain(|listed| !std::ptr::eq(listed.0, this));
    // SAFETY: the box that `open` leaked; no object refers to it any more.
    drop(unsafe { Box::from_raw(std::ptr::from_ref(this).cast_mut()) });
    0
}

/// `ibv_query_port(3)`.
///
/// # Safety
/// `context` is open, `attr` is writable.
pub(crate) unsafe fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
    // SAFETY: the caller's.
    if unsafe { Context::from_raw(context) }.is_removed() {
        return libc::EIO;
    }
    if port != device::PORT {
        return libc::EINVAL;
    }
    // SAFETY: the caller's.
    unsafe { attr.write(Context::from_raw(context).device.port_attributes()) };
    0
}

/// `verbs_context.query_port`: as above, for a caller whose struct may be another version's.
unsafe extern "C" fn query_port_sized(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    attr_bytes: usize,
) -> c_int {
    if port != device::PORT {
        return libc::EINVAL;
    }
    // SAFETY: by libibverbs' contract the context is open and `attr` has `attr_bytes` bytes.
    unsafe {
        let from = Context::from_raw(context).device.port_attributes();
        attr.cast::<u8>().write_bytes(0, attr_bytes);
        let common = attr_bytes.min(size_of::<ibv_port_attr>());
        std::ptr::copy_nonoverlapping((&raw const from).cast::<u8>(), attr.cast::<u8>(), common);
    }
    0
}

/// `verbs_context.query_device_ex`: `ibv_query_device_ex(3)`, for a caller whose struct may be another version's.
///
/// # Safety
/// `context` is open, `input` is null or readable, `attr` has `attr_bytes` writable bytes.
pub(crate) unsafe extern "C" fn query_device_sized(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_bytes: usize,
) -> c_int {
    // SAFETY: the caller's.
    let asks_more = unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0);
    if asks_more || attr_bytes < size_of::<ibv_device_attr>() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's.
    unsafe {
        let from = Context::from_raw(context).device.extended_attributes();
        attr.cast::<u8>().write_bytes(0, attr_bytes);
        let common = attr_bytes.min(size_of::<ibv_device_attr_ex>());
        std::ptr::copy_nonoverlapping((&raw const from).cast::<u8>(), attr.cast::<u8>(), common);
    }
    0
}

/// `ibv_query_gid(3)`.
///
/// # Safety
/// `context` is open, `gid` is writable.
pub(crate) unsafe fn query_gid(context: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
    // SAFETY: the caller's.
    let device = unsafe { Context::from_raw(context) }.device;
    let found = usize::try_from(index).ok().and_then(|index| device.gid(index));
    match found {
        Some(raw) if port == device::PORT => {
            // SAFETY: the caller's.
            unsafe { gid.write(ibv_gid { raw }) };
            0
        }
        _ => errno::minus_one(libc::EINVAL),
    }
}
