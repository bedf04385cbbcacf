//! The provider's verbs, with libibverbs' own C signatures and names.
//!
//! What it guarantees: each behaves as its man page says, `errno` and return values included. Control verbs are plain
//! functions here, and those that libibverbs reaches through `struct verbs_context` are in that table as well; the data
//! path (post, poll, arm) and the memory-window calls are reached through `ibv_context.ops`, by rdma-sys's inline functions. Nothing here accepts objects of another provider, nor does libibverbs accept ours, but
//! for `ibv_ack_cq_events` and `ibv_ack_async_event`, which work either way.
//!
//! # Safety
//! Of all of them: pointers are to live objects of this provider that the caller may use (the threading rules are in the
//! [crate's documentation](crate)), attribute pointers are readable or writable as the man page says, memory that is
//! registered stays mapped until it is deregistered, and work requests lead to valid lists.

use crate::errno;
use crate::events::{async_event, channel};
use crate::objects::{ah, context, cq, device, mcast, modify, mr, pd, qp, srq, thread_domain};
use rdma_sys::*;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// What is made in a context whose device is still there; null with `EIO` otherwise.
macro_rules! made_in {
    ($context:expr, $made:expr) => {
        if context::Context::from_raw($context).is_removed() { errno::null(libc::EIO) } else { $made }
    };
}

/// Defines each verb as a C function that calls its implementation. Every body is `unsafe`, on the module's contract.
macro_rules! verbs {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// See the [module](self).
            pub unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller keeps the module's contract, which is that of the function called.
                #[allow(unused_unsafe)]
                unsafe { $body }
            }
        )*
    };
}

verbs! {
    /// `ibv_get_device_list(3)`: soft0 and soft1, always.
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device { device::list(num_devices) }
    /// `ibv_free_device_list(3)`. Devices stay valid.
    fn ibv_free_device_list(list: *mut *mut ibv_device) { device::free_list(list) }
    /// `ibv_get_device_name(3)`.
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char { (&raw const (*device).name).cast() }
    /// `ibv_get_device_guid(3)`, in network order.
    fn ibv_get_device_guid(device: *mut ibv_device) -> __be64 { device::Device::from_raw(device).guid() }
    /// `ibv_get_device_index(3)`: -1, the kernel doesn't know it.
    fn ibv_get_device_index(_device: *mut ibv_device) -> c_int { -1 }
    /// `ibv_open_device(3)`.
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context { context::open(device) }
    /// `ibv_close_device(3)`. -1 with `EBUSY` while objects of it exist.
    fn ibv_close_device(context: *mut ibv_context) -> c_int { context::close(context) }
    /// `ibv_query_device(3)`.
    fn ibv_query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int {
        if context::Context::from_raw(context).is_removed() {
            return libc::EIO;
        }
        device_attr.write(context::Context::from_raw(context).device.attributes());
        0
    }
    /// `ibv_query_device_ex(3)`.
    fn ibv_query_device_ex(
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
    ) -> c_int {
        context::query_device_sized(context, input, attr, size_of::<ibv_device_attr_ex>())
    }
    /// `ibv_query_port(3)`. Fills all of `ibv_port_attr`.
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int {
        context::query_port(context, port_num, port_attr)
    }
    /// `ibv_query_gid(3)`: 0 is link-local, 1 is ::ffff:10.9.9.N.
    fn ibv_query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int {
        context::query_gid(context, port_num, index, gid)
    }
    /// `ibv_query_pkey(3)`: 0xffff at index 0.
    fn ibv_query_pkey(_context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut __be16) -> c_int {
        match device::pkey(port_num, index) {
            Ok(found) => {
                pkey.write(found);
                0
            }
            Err(failed) => failed,
        }
    }
    /// `ibv_get_pkey_index(3)`.
    fn ibv_get_pkey_index(_context: *mut ibv_context, port_num: u8, pkey: __be16) -> c_int {
        match device::pkey(port_num, 0) {
            Ok(found) if found == pkey => 0,
            _ => errno::minus_one(libc::EINVAL),
        }
    }
    /// `ibv_alloc_pd(3)`.
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd { made_in!(context, pd::alloc(context)) }
    /// `ibv_dealloc_pd(3)`.
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int { pd::dealloc(pd) }
    /// `ibv_alloc_td(3)`: posting takes no lock in any case, so that it changes nothing.
    fn ibv_alloc_td(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td {
        thread_domain::alloc(context, init_attr)
    }
    /// `ibv_dealloc_td(3)`. `EBUSY` while a parent domain refers to it.
    fn ibv_dealloc_td(td: *mut ibv_td) -> c_int { thread_domain::dealloc(td) }
    /// `ibv_alloc_parent_domain(3)`. Regions registered in it or in its domain serve both.
    fn ibv_alloc_parent_domain(
        context: *mut ibv_context,
        attr: *mut ibv_parent_domain_init_attr,
    ) -> *mut ibv_pd {
        pd::alloc_parent(context, attr)
    }
    /// `ibv_reg_mr(3)`. Nothing is pinned; `IBV_ACCESS_ON_DEMAND` is taken as said.
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
        made_in!((*pd).context, mr::register(pd, addr, length, None, access as c_uint))
    }
    /// `ibv_reg_mr_iova(3)`.
    fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut ibv_mr {
        made_in!((*pd).context, mr::register(pd, addr, length, Some(iova), access as c_uint))
    }
    /// `ibv_reg_mr_iova2`, which `ibv_reg_mr`'s macro calls when optional access flags are given.
    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr {
        made_in!((*pd).context, mr::register(pd, addr, length, Some(iova), access))
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
        mr::reregister(mr, flags, pd, addr, length, access)
    }
    /// `ibv_dereg_mr(3)`. `EBUSY` while a memory window is bound to it.
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int { mr::deregister(mr) }
    /// `ibv_create_comp_channel(3)`. `fd` is an eventfd.
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
        made_in!(context, channel::create(context))
    }
    /// `ibv_destroy_comp_channel(3)`.
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int { channel::destroy(channel) }
    /// `ibv_create_cq(3)`. `cqe` completions always fit; before an overrun there may be more.
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq {
        made_in!(context, cq::create(context, cqe, cq_context, channel, comp_vector))
    }
    /// `ibv_resize_cq(3)`. A queue never gets smaller. Called by the thread that polls.
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int { cq::resize(cq, cqe) }
    /// `ibv_destroy_cq(3)`. Waits for acknowledgements.
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int { cq::destroy(cq) }
    /// `ibv_get_cq_event(3)`. Blocks, unless the channel's `fd` is `O_NONBLOCK`.
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int {
        channel::next(channel, cq, cq_context)
    }
    /// `ibv_ack_cq_events(3)`.
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
        cq::Cq::from_raw(cq).comp_acks().acknowledge(nevents)
    }
    /// `ibv_create_srq(3)`.
    fn ibv_create_srq(pd: *mut ibv_pd, srq_init_attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
        made_in!((*pd).context, srq::create(pd, srq_init_attr))
    }
    /// `ibv_modify_srq(3)`: the limit; not the size.
    fn ibv_modify_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr, srq_attr_mask: c_int) -> c_int {
        srq::modify(srq, srq_attr, srq_attr_mask)
    }
    /// `ibv_query_srq(3)`.
    fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int { srq::query(srq, srq_attr) }
    /// `ibv_destroy_srq(3)`.
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int { srq::destroy(srq) }
    /// `ibv_create_qp(3)`: RC, UC or UD.
    fn ibv_create_qp(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
        made_in!((*pd).context, qp::create(pd, qp_init_attr))
    }
    /// `ibv_modify_qp(3)`. Why a mask is refused, [`qp_table::check`](crate::objects::qp_table::check) says.
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int {
        if context::Context::from_raw((*qp).context).is_removed() {
            return libc::EIO;
        }
        modify::modify(qp, attr, attr_mask)
    }
    /// `ibv_query_qp(3)`. Gives every attribute, whatever is asked for.
    fn ibv_query_qp(
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        _attr_mask: c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> c_int {
        qp::query(qp, attr, init_attr)
    }
    /// `ibv_destroy_qp(3)`. Its unpolled completions are dropped.
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int { qp::destroy(qp) }
    /// `ibv_create_ah(3)`.
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
        made_in!((*pd).context, ah::create(pd, attr))
    }
    /// `ibv_init_ah_from_wc(3)`.
    fn ibv_init_ah_from_wc(
        context: *mut ibv_context,
        port_num: u8,
        wc: *mut ibv_wc,
        grh: *mut ibv_grh,
        ah_attr: *mut ibv_ah_attr,
    ) -> c_int {
        ah::init_from_wc(context, port_num, wc, grh, ah_attr)
    }
    /// `ibv_create_ah_from_wc(3)`.
    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah {
        let mut attr = std::mem::MaybeUninit::uninit();
        if ah::init_from_wc((*pd).context, port_num, wc, grh, attr.as_mut_ptr()) != 0 {
            return std::ptr::null_mut();
        }
        ah::create(pd, attr.as_mut_ptr())
    }
    /// `ibv_destroy_ah(3)`.
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int { ah::destroy(ah) }
    /// `ibv_attach_mcast(3)`. The LID isn't looked at: groups are known by GID.
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
        if context::Context::from_raw((*qp).context).is_removed() {
            return libc::EIO;
        }
        mcast::attach(qp, gid)
    }
    /// `ibv_detach_mcast(3)`.
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int { mcast::detach(qp, gid) }
    /// `ibv_get_async_event(3)`. Blocks, unless the context's `async_fd` is `O_NONBLOCK`.
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
        async_event::next(context, event)
    }
    /// `ibv_ack_async_event(3)`.
    fn ibv_ack_async_event(event: *mut ibv_async_event) { async_event::acknowledge(event) }
}
