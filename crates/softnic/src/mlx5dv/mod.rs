//! Signature offload under mlx5dv's names: indirect keys, block signatures, pipelining
//! (`mlx5dv_wr_mkey_configure(3)` and its neighbours).
//!
//! Guarantees: each function behaves as its man page says. Where the pages leave it open:
//!
//! - `addr` and `length` of an element that names a key with a block signature count data, without
//!   protection information. A *peer's* access by the R_Key counts bytes on the wire. Either must
//!   be whole blocks of both domains.
//! - The reference tag counts from the key's first block, not from the transfer's.
//! - A guard alone (CRC) lies lowest byte first, T10-DIF's fields highest first. CRC64_XP10 has
//!   NVMe's polynomial. The final complement is the catalogue's for every seed.
//! - A block that escapes is not checked at all.
//! - A faulty block is moved like a good one; the first fault of a transfer is kept.
//! - A fault of a peer's access is recorded at once. A fault of a work request is recorded when its
//!   completion queue is polled; until then it takes one place there.
//! - Once `mlx5dv_mkey_check(3)` has taken a key's error, the key is refused until it is configured
//!   again.
//! - Entries of a layout name regions. Datagrams and atomics don't go through such keys.

#![allow(non_camel_case_types)]

mod builder;

pub use crate::signature::types::*;
pub use builder::MkeyConfigureWr;

use crate::control::create;
use crate::data_path::signature::cancel;
use crate::errno;
use crate::objects::Object;
use crate::objects::object;
use crate::objects::pd::present_pd;
use crate::objects::qp::{Parts, Qp, SignatureOffload};
use crate::signature::configuration;
use crate::signature::mkey::{self, Mkey};
use rdma_sys::*;
use std::ffi::c_int;

/// `mlx5dv_create_mkey(3)`. `max_entries` is granted as asked.
///
/// # Safety
/// Like the `provider`: the protection domain is live, and `attr` can be read.
pub unsafe fn mlx5dv_create_mkey(attr: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey {
    // SAFETY: attributes that can be read, and a live domain, as the program guarantees.
    let (attr, pd) = unsafe { (&*attr, present_pd((*attr).pd)) };
    let known = mkey_init_attr_flags::INDIRECT
        | mkey_init_attr_flags::BLOCK_SIGNATURE
        | mkey_init_attr_flags::REMOTE_INVALIDATE;
    let made = pd.and_then(|pd| match attr.create_flags {
        flags if flags & mkey_init_attr_flags::INDIRECT == 0 => Err(libc::EINVAL),
        flags if flags & !known != 0 => Err(libc::EOPNOTSUPP),
        flags => mkey::create(pd, flags, attr.max_entries),
    });
    made.unwrap_or_else(errno::null)
}

/// `mlx5dv_destroy_mkey(3)`.
///
/// # Safety
/// The key is live, no work request that names it is outstanding, and it isn't used again.
pub unsafe fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int {
    // SAFETY: the contract; `retire` waits until no peer's access uses it.
    unsafe {
        mkey::retire(Mkey::from_raw(mkey));
        Mkey::free(mkey);
    }
    0
}

/// `mlx5dv_mkey_check(3)`.
///
/// # Safety
/// The key is live, and `err_info` can be written.
pub unsafe fn mlx5dv_mkey_check(mkey: *mut mlx5dv_mkey, err_info: *mut mlx5dv_mkey_err) -> c_int {
    // SAFETY: the program guarantees that the key is live.
    match unsafe { Mkey::from_raw(mkey) }.check() {
        Ok(info) => {
            // SAFETY: the program guarantees that it can be written.
            unsafe { err_info.write(info) };
            0
        }
        Err(code) => code,
    }
}

/// `mlx5dv_create_qp(3)`, with the attributes that matter here. `EOPNOTSUPP` for flags that the
/// device lacks, or on a queue pair that isn't RC.
///
/// # Safety
/// Like `provider::ibv_create_qp`.
pub unsafe fn mlx5dv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr, extras: QpExtras) -> *mut ibv_qp {
    // SAFETY: the contract: `init` may be read and written, and points to live objects, or to none.
    let (domain, init, send_cq, recv_cq, srq) = unsafe {
        let init = &mut *init;
        let objects = (object(init.send_cq), object(init.recv_cq), object(init.srq));
        (present_pd(pd), init, objects.0, objects.1, objects.2)
    };
    let made = domain.and_then(|domain| {
        let offload = offload(extras, init.cap.max_inline_data)?;
        let (Some(send_cq), Some(recv_cq)) = (send_cq, recv_cq) else { return Err(libc::EINVAL) };
        create::create(Parts { domain, send_cq, recv_cq, srq }, init, offload)
    });
    made.unwrap_or_else(errno::null)
}

/// `None` if no offload is requested; `EOPNOTSUPP` for flags that the device lacks.
fn offload(extras: QpExtras, max_inline_data: u32) -> Result<Option<SignatureOffload>, c_int> {
    if extras == QpExtras::default() {
        return Ok(None);
    }
    let known = qp_create_flags::DISABLE_SCATTER_TO_CQE | qp_create_flags::SIG_PIPELINING;
    if extras.create_flags & !known != 0 || extras.send_ops_flags & !send_ops_flags::MKEY_CONFIGURE != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let configures_keys = extras.send_ops_flags & send_ops_flags::MKEY_CONFIGURE != 0;
    Ok(Some(SignatureOffload {
        configures_keys,
        stops_at_faults: extras.create_flags & qp_create_flags::SIG_PIPELINING != 0,
        configuration_bytes: if configures_keys { configuration::bytes_max(max_inline_data) } else { 0 },
    }))
}

/// `mlx5dv_qp_cancel_posted_send_wrs(3)`: returns the number of cancelled work requests, or a
/// negative `errno`.
///
/// # Safety
/// The queue pair is live.
pub unsafe fn mlx5dv_qp_cancel_posted_send_wrs(qp: *mut ibv_qp, wr_id: u64) -> c_int {
    // SAFETY: the program guarantees that the queue pair is live.
    match cancel::cancel(unsafe { Qp::from_raw(qp) }, wr_id) {
        Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
        Err(code) => -code,
    }
}
