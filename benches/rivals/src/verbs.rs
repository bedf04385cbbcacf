//! Passes the software RNIC's control verbs to the C program.

use std::ffi::{c_int, c_void};

use rdma_sys::*;
use verbline_softnic::provider;

/// The `struct provider` of verbs.c.
#[repr(C)]
struct Provider {
    get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device,
    open_device: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context,
    alloc_pd: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd,
    reg_mr: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
    create_cq: unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq,
    create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
}

unsafe extern "C" {
    fn post_and_poll(provider: *const Provider, lists: u64, burst: c_int) -> c_int;
}

/// Sends `lists` lists of `burst` messages, receives them and posts their receives again, in one
/// thread.
pub fn run(lists: u64, burst: u32) {
    let table = Provider {
        get_device_list: provider::ibv_get_device_list,
        open_device: provider::ibv_open_device,
        alloc_pd: provider::ibv_alloc_pd,
        reg_mr: provider::ibv_reg_mr,
        create_cq: provider::ibv_create_cq,
        create_qp: provider::ibv_create_qp,
        modify_qp: provider::ibv_modify_qp,
        query_port: provider::ibv_query_port,
    };
    // SAFETY: the table has the layout and the signatures of verbs.c, and outlives the call; the
    // program keeps the contract of `provider` as any verbs program does: one thread, live objects,
    // registered memory that is never freed.
    let failed = unsafe { post_and_poll(&raw const table, lists, burst as c_int) };
    assert_eq!(failed, 0, "a burst of 1 to 32");
}
