//! The provider's verbs, with libibverbs' own C signatures.
//!
//! Control verbs are plain functions here; the data path (post, poll, arm, memory windows) is reached through
//! `ibv_context.ops` by rdma-sys's inline functions. Skeleton: every verb refuses with `ENOSYS` until its object lands.
#![allow(clippy::missing_safety_doc, unused_variables, missing_docs)]

use rdma_sys::*;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

fn refuse<T>(value: T) -> T {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    value
}

macro_rules! verbs {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty = $fail:expr)?;)*) => {
        $(pub unsafe extern "C" fn $name($($arg: $ty),*) $(-> $ret)? { $(refuse::<$ret>($fail))? })*
    };
}

verbs! {
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device = null_mut();
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char = null_mut();
    fn ibv_get_device_guid(device: *mut ibv_device) -> __be64 = 0;
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int = -1;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context = null_mut();
    fn ibv_close_device(context: *mut ibv_context) -> c_int = -1;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int = libc::ENOSYS;
    fn ibv_query_port(context: *mut ibv_context, port_num: u8, attr: *mut ibv_port_attr) -> c_int = libc::ENOSYS;
    fn ibv_query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int = -1;
    fn ibv_query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut __be16) -> c_int = -1;
    fn ibv_get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: __be16) -> c_int = -1;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd = null_mut();
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int = libc::ENOSYS;
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr = null_mut();
    fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr = null_mut();
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr = null_mut();
    fn ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> c_int = ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int = libc::ENOSYS;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel = null_mut();
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int = libc::ENOSYS;
    fn ibv_create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq = null_mut();
    fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int = libc::ENOSYS;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int = libc::ENOSYS;
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int = -1;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
    fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq = null_mut();
    fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int = libc::ENOSYS;
    fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int = libc::ENOSYS;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int = libc::ENOSYS;
    fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp = null_mut();
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int = libc::ENOSYS;
    fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int = libc::ENOSYS;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int = libc::ENOSYS;
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah = null_mut();
    fn ibv_init_ah_from_wc(context: *mut ibv_context, port_num: u8, wc: *mut ibv_wc, grh: *mut ibv_grh, attr: *mut ibv_ah_attr) -> c_int = -1;
    fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah = null_mut();
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int = libc::ENOSYS;
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int = libc::ENOSYS;
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int = libc::ENOSYS;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int = -1;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
}
