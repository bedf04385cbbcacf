//! The provider's verbs, with libibverbs' own C signatures and names.
//!
//! Guarantees: each behaves as its man page says, `errno` and return values included. Control verbs
//! are plain functions here. Control verbs that libibverbs reaches through `struct verbs_context`
//! are in that table as well. The data path (post, poll, arm) and the memory-window calls are
//! reached through `ibv_context.ops`, by rdma-sys's inline functions. No verb here accepts objects
//! of another provider, nor does libibverbs accept ours. Only `ibv_ack_cq_events` and
//! `ibv_ack_async_event` work either way.
//!
//! A program's pointers become references here: nearly everything below is safe code.
//!
//! # Safety
//! For all verbs: pointers are to live objects of this provider that the caller may use (the
//! threading rules are in the [crate's documentation](crate)), attribute pointers are readable or
//! writable as the man page says, memory that is registered stays mapped until it is deregistered,
//! and work requests lead to valid lists.

use crate::control::{self, create, modify};
use crate::data_path::carrier;
use crate::data_path::poll;
use crate::data_path::post_recv;
use crate::data_path::post_send;
use crate::errno;
use crate::events::acknowledged::Fields;
use crate::events::async_event;
use crate::mlx5dv;
use crate::mlx5dv::QpExtras;
use crate::objects::Object;
use crate::objects::ah;
use crate::objects::comp_channel::{self, Channel};
use crate::objects::context::{self, Context, present};
use crate::objects::cq::{self, Cq};
use crate::objects::device::{self, Device};
use crate::objects::mr::{self, Mr};
use crate::objects::mw;
use crate::objects::object;
use crate::objects::pd::{self, Pd, present_pd};
use crate::objects::qp::Qp;
use crate::objects::srq::{self, Srq};
use rdma_sys::*;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Takes an object out of use and frees it; or returns the `errno` of the refusal.
///
/// # Safety
/// The contract of [`Object::free`], where `retire` succeeds.
unsafe fn freed<T: Object>(raw: *mut T::Raw, retire: fn(&T) -> Result<(), c_int>) -> c_int {
    // SAFETY: by the contract above, `raw` is an object that is not freed yet.
    match retire(unsafe { T::from_raw(raw) }) {
        Ok(()) => {
            // SAFETY: `retire` has taken it out of use, and by the contract the program doesn't use
            // it either.
            unsafe { T::free(raw) };
            0
        }
        Err(code) => code,
    }
}

/// Writes a result, or returns its `errno`.
///
/// # Safety
/// `to` can be written.
unsafe fn written<T>(to: *mut T, value: Result<T, c_int>) -> c_int {
    // SAFETY: by the contract above, `to` can be written.
    code(value.map(|value| unsafe { to.write(value) }))
}

/// Like [`written`], for verbs that set `errno`.
///
/// # Safety
/// The contract of [`written`].
unsafe fn written_or_minus_one<T>(to: *mut T, value: Result<T, c_int>) -> c_int {
    // SAFETY: by the contract of `written`, `to` can be written.
    or_minus_one(unsafe { written(to, value) })
}

fn made<T>(made: Result<*mut T, c_int>) -> *mut T {
    made.unwrap_or_else(errno::null)
}

fn code(done: Result<(), c_int>) -> c_int {
    done.err().unwrap_or(0)
}

fn or_minus_one(code: c_int) -> c_int {
    if code == 0 { 0 } else { errno::minus_one(code) }
}

/// Sets the verbs that libibverbs and its inline functions reach through the context.
fn fill(verbs: &mut verbs_context) {
    verbs.query_port = Some(query_port_sized);
    verbs.query_device_ex = Some(query_device_sized);
    verbs.alloc_td = Some(ibv_alloc_td);
    verbs.dealloc_td = Some(ibv_dealloc_td);
    verbs.alloc_parent_domain = Some(ibv_alloc_parent_domain);
    let ops = &mut verbs.context.ops;
    ops.post_send = Some(post_send::post_send);
    ops.post_recv = Some(post_recv::post_recv);
    ops.post_srq_recv = Some(post_recv::post_srq_recv);
    ops.poll_cq = Some(poll::poll_cq);
    ops.req_notify_cq = Some(req_notify_cq);
    ops.alloc_mw = Some(alloc_mw);
    ops.bind_mw = Some(post_send::bind_mw);
    ops.dealloc_mw = Some(dealloc_mw);
}

/// The path back to the sender of a received datagram; `grh` points to the start of its buffer.
///
/// # Safety
/// `context` is open; `grh` can be read, at any alignment, if `wc` has `IBV_WC_GRH`.
unsafe fn ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: &ibv_wc,
    grh: *mut ibv_grh,
) -> Result<ibv_ah_attr, c_int> {
    let has_grh = wc.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 != 0;
    // SAFETY: by the contract above, `context` is open, and there is a GRH where `wc` says so.
    let (context, grh) = unsafe { (Context::from_raw(context), has_grh.then(|| grh.read_unaligned())) };
    ah::from_wc(context.device, port, wc, grh)
}

/// Writes as much of `from` as fits into the caller's struct, which may be another version's, and
/// zeros behind it.
///
/// # Safety
/// `to` has `bytes` writable bytes.
unsafe fn write_sized<T>(to: *mut T, bytes: usize, from: &T) {
    // SAFETY: the contract; reads no more bytes than `from` has.
    unsafe {
        to.cast::<u8>().write_bytes(0, bytes);
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(from).cast::<u8>(), to.cast(), bytes.min(size_of::<T>()));
    }
}

/// Defines each verb as a C function. Every body is `unsafe`, on the module's contract.
macro_rules! verbs {
    ($vis:vis, $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// See the [module](self).
            $vis unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the module's contract, which its documentation demands of programs.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*
    };
}

verbs! { pub(super),
    /// `verbs_context.query_port`: `ibv_query_port(3)`, for a caller whose struct may be of another
    /// version.
    fn query_port_sized(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, attr_bytes: usize) -> c_int {
        if port != device::PORT {
            return libc::EINVAL;
        }
        write_sized(attr, attr_bytes, &Context::from_raw(context).device.port_attributes());
        0
    }
    /// `verbs_context.query_device_ex`: `ibv_query_device_ex(3)`, for a caller whose struct may be
    /// of another version.
    fn query_device_sized(
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
        attr_bytes: usize,
    ) -> c_int {
        if input.as_ref().is_some_and(|input| input.comp_mask != 0) || attr_bytes < size_of::<ibv_device_attr>() {
            return libc::EINVAL;
        }
        write_sized(attr, attr_bytes, &Context::from_raw(context).device.extended_attributes());
        0
    }
    /// `ibv_req_notify_cq(3)`. Called by the thread that polls.
    fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
        let cq = Cq::from_raw(cq);
        cq.poller().arm(solicited_only != 0);
        carrier::owner_armed(cq);
        0
    }
    /// `ibv_alloc_mw(3)`.
    fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type::Type) -> *mut ibv_mw { made(mw::alloc(Pd::from_raw(pd), kind)) }
    /// `ibv_dealloc_mw(3)`.
    fn dealloc_mw(mw: *mut ibv_mw) -> c_int { freed(mw, mw::retire) }
}

verbs! { pub,
    /// `ibv_get_device_list(3)`: soft0 and soft1, always.
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
        if !num_devices.is_null() {
            *num_devices = device::DEVICES as c_int;
        }
        device::list()
    }
    /// `ibv_free_device_list(3)`. Devices stay valid.
    fn ibv_free_device_list(list: *mut *mut ibv_device) { device::free_list(list) }
    /// `ibv_get_device_name(3)`.
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char { (&raw const (*device).name).cast() }
    /// `ibv_get_device_guid(3)`, in network order.
    fn ibv_get_device_guid(device: *mut ibv_device) -> __be64 { Device::from_raw(device).guid() }
    /// `ibv_get_device_index(3)`: -1, since the kernel doesn't know the device.
    fn ibv_get_device_index(_device: *mut ibv_device) -> c_int { -1 }
    /// `ibv_open_device(3)`.
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
        made(context::open(Device::from_raw(device), fill))
    }
    /// `ibv_close_device(3)`. -1 with `EBUSY` while objects of it exist.
    fn ibv_close_device(context: *mut ibv_context) -> c_int {
        or_minus_one(freed(context, context::retire))
    }
    /// `ibv_query_device(3)`.
    fn ibv_query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int {
        written(device_attr, present(context).map(|context| context.device.attributes()))
    }
    /// `ibv_query_device_ex(3)`.
    fn ibv_query_device_ex(
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
    ) -> c_int {
        query_device_sized(context, input, attr, size_of::<ibv_device_attr_ex>())
    }
    /// `ibv_query_port(3)`. Fills all of `ibv_port_attr`.
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int {
        written(port_attr, Context::from_raw(context).port(port_num))
    }
    /// `ibv_query_gid(3)`: 0 is link-local, 1 is ::ffff:10.9.9.N.
    fn ibv_query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
        written_or_minus_one(gid, Context::from_raw(context).gid(port_num, index))
    }
    /// `ibv_query_pkey(3)`: 0xffff at index 0.
    fn ibv_query_pkey(_context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut __be16) -> c_int {
        written_or_minus_one(pkey, device::pkey(port_num, index))
    }
    /// `ibv_get_pkey_index(3)`.
    fn ibv_get_pkey_index(_context: *mut ibv_context, port_num: u8, pkey: __be16) -> c_int {
        let known = device::pkey(port_num, 0).is_ok_and(|found| found == pkey);
        or_minus_one(if known { 0 } else { libc::EINVAL })
    }
    /// `ibv_alloc_pd(3)`.
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd { made(present(context).and_then(pd::alloc)) }
    /// `ibv_dealloc_pd(3)`.
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int { freed(pd, pd::retire) }
    /// `ibv_alloc_td(3)`: changes nothing, since posting never takes a lock.
    fn ibv_alloc_td(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td {
        if (*init_attr).comp_mask != 0 {
            return errno::null(libc::EOPNOTSUPP);
        }
        pd::alloc_td(Context::from_raw(context))
    }
    /// `ibv_dealloc_td(3)`. `EBUSY` while a parent domain refers to it.
    fn ibv_dealloc_td(td: *mut ibv_td) -> c_int { freed(td, pd::retire_td) }
    /// `ibv_alloc_parent_domain(3)`. Regions registered in it or in its domain serve both.
    fn ibv_alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd {
        let attr = &*attr;
        // Allocators of the caller's own are not supported.
        if attr.comp_mask != 0 {
            return errno::null(libc::EOPNOTSUPP);
        }
        if attr.pd.is_null() {
            return errno::null(libc::EINVAL);
        }
        let td = object(attr.td);
        pd::alloc_parent(Context::from_raw(context), Pd::from_raw(attr.pd), td)
    }
    /// `ibv_reg_mr(3)`. Nothing is pinned; `IBV_ACCESS_ON_DEMAND` is accepted.
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
        made(present_pd(pd).and_then(|pd| mr::register(pd, addr, length, None, access as c_uint)))
    }
    /// `ibv_reg_mr_iova(3)`.
    fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr {
        ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint)
    }
    /// `ibv_reg_mr_iova2`, which `ibv_reg_mr`'s macro calls when optional access flags are given.
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr {
        made(present_pd(pd).and_then(|pd| mr::register(pd, addr, length, Some(iova), access)))
    }
    /// `ibv_rereg_mr(3)`. The keys stay the same.
    fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: c_int,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int {
        use ibv_rereg_mr_err_code::{IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_INPUT};
        use ibv_rereg_mr_flags as flag;
        let has = |bit: ibv_rereg_mr_flags| flags as u32 & bit.0 != 0;
        let unknown = flags as u32 & !flag::IBV_REREG_MR_FLAGS_SUPPORTED.0 != 0;
        if flags == 0 || unknown || (has(flag::IBV_REREG_MR_CHANGE_PD) && pd.is_null()) {
            errno::minus_one(libc::EINVAL);
            return IBV_REREG_MR_ERR_INPUT;
        }
        let changes = mr::Changes {
            translation: has(flag::IBV_REREG_MR_CHANGE_TRANSLATION).then_some((addr, length)),
            domain: if has(flag::IBV_REREG_MR_CHANGE_PD) { object(pd) } else { None },
            access: has(flag::IBV_REREG_MR_CHANGE_ACCESS).then_some(access as c_uint),
        };
        match mr::reregister(&mut *mr.cast::<Mr>(), &changes) {
            Ok(()) => 0,
            Err(code) => {
                errno::minus_one(code);
                if code == libc::EBUSY { IBV_REREG_MR_ERR_CMD } else { IBV_REREG_MR_ERR_INPUT }
            }
        }
    }
    /// `ibv_dereg_mr(3)`. `EBUSY` while a memory window is bound to it.
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int { freed(mr, mr::retire) }
    /// `ibv_create_comp_channel(3)`. `fd` is an eventfd.
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
        made(present(context).and_then(comp_channel::create))
    }
    /// `ibv_destroy_comp_channel(3)`.
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int { freed(channel, comp_channel::retire) }
    /// `ibv_create_cq(3)`. `cqe` completions always fit; before an overrun there may be more.
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq {
        let channel = object(channel);
        made(present(context).and_then(|context| cq::create(context, cqe, cq_context, channel, comp_vector)))
    }
    /// `ibv_resize_cq(3)`. A queue never gets smaller. Called by the thread that polls.
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int { code(Cq::from_raw(cq).poller().resize(cqe)) }
    /// `ibv_destroy_cq(3)`. Waits for acknowledgements.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int { freed(cq, cq::retire) }
    /// `ibv_get_cq_event(3)`. Blocks, unless the channel's `fd` is `O_NONBLOCK`.
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int {
        let ready = Channel::from_raw(channel).next();
        if let Ok(ready) = ready {
            *cq_context = (*ready).cq_context;
        }
        written_or_minus_one(cq, ready)
    }
    /// `ibv_ack_cq_events(3)`.
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) { Fields::notifications(cq).acknowledge(nevents) }
    /// `ibv_create_srq(3)`.
    fn ibv_create_srq(pd: *mut ibv_pd, srq_init_attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
        made(present_pd(pd).and_then(|pd| srq::create(pd, &mut *srq_init_attr)))
    }
    /// `ibv_modify_srq(3)`: the limit only, not the size.
    fn ibv_modify_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr, srq_attr_mask: c_int) -> c_int {
        code(srq::modify(Srq::from_raw(srq), &*srq_attr, srq_attr_mask))
    }
    /// `ibv_query_srq(3)`.
    fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int {
        written(srq_attr, Ok(srq::query(Srq::from_raw(srq))))
    }
    /// `ibv_destroy_srq(3)`.
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int { freed(srq, srq::retire) }
    /// `ibv_create_qp(3)`: RC, UC or UD.
    fn ibv_create_qp(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
        mlx5dv::mlx5dv_create_qp(pd, qp_init_attr, QpExtras::default())
    }
    /// `ibv_modify_qp(3)`. [`qp_table::check`](crate::qp_table::check) tells why a mask is refused.
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int {
        code(present((*qp).context).and_then(|_| modify::modify(Qp::from_raw(qp), &*attr, attr_mask)))
    }
    /// `ibv_query_qp(3)`. Returns every attribute, whatever the mask.
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        _attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int {
        let (now, init) = create::query(Qp::from_raw(qp));
        init_attr.write(init);
        written(attr, Ok(now))
    }
    /// `ibv_destroy_qp(3)`. Its unpolled completions are dropped.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int { freed(qp, create::retire) }
    /// `ibv_create_ah(3)`.
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
        made(present_pd(pd).and_then(|pd| ah::create(pd, &*attr)))
    }
    /// `ibv_init_ah_from_wc(3)`.
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port_num: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        ah_attr: *mut ibv_ah_attr,
    ) -> c_int {
        written_or_minus_one(ah_attr, ah_from_wc(context, port_num, &*wc, grh))
    }
    /// `ibv_create_ah_from_wc(3)`.
    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah {
        let attr = ah_from_wc((*pd).context, port_num, &*wc, grh);
        made(attr.and_then(|attr| ah::create(Pd::from_raw(pd), &attr)))
    }
    /// `ibv_destroy_ah(3)`.
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int { freed(ah, ah::retire) }
    /// `ibv_attach_mcast(3)`. The LID is ignored: groups are known by GID.
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
        code(present((*qp).context).and_then(|_| control::attach(Qp::from_raw(qp), &(*gid).raw)))
    }
    /// `ibv_detach_mcast(3)`.
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
        code(control::detach(Qp::from_raw(qp), &(*gid).raw))
    }
    /// `ibv_get_async_event(3)`. Blocks, unless the context's `async_fd` is `O_NONBLOCK`.
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
        match Context::from_raw(context).events.next() {
            Ok((element, kind)) => {
                (&raw mut (*event).element).write(element);
                // Written as an integer, its type in C.
                (&raw mut (*event).event_type).cast::<c_uint>().write(kind);
                0
            }
            Err(code) => errno::minus_one(code),
        }
    }
    /// `ibv_ack_async_event(3)`.
    fn ibv_ack_async_event(event: *mut ibv_async_event) {
        // Read as an integer, since every value of that is valid.
        let kind = (&raw const (*event).event_type).cast::<c_uint>().read();
        async_event::acknowledge((&raw const (*event).element).read(), kind)
    }
}
