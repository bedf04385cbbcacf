//! Declarations of mlx5dv.h that the software RNIC does not use, under their own names. `header`
//! compares all of them with the installed header.

#![allow(non_camel_case_types)]

use std::ffi::{c_int, c_void};

use rdma_sys::{ibv_ah, ibv_context, ibv_device, ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex, ibv_sge};
use verbline_softnic::mlx5dv::{
    mlx5dv_mkey, mlx5dv_mkey_conf_attr, mlx5dv_mkey_err, mlx5dv_mkey_init_attr, mlx5dv_mr_interleaved,
    mlx5dv_sig_block_attr,
};

/// `mlx5dv_context.comp_mask`.
pub(crate) mod context_mask {
    /// `MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD`.
    pub(crate) const SIGNATURE_OFFLOAD: u64 = 1 << 10;
}

/// `mlx5dv_qp_init_attr.comp_mask`.
pub(crate) mod qp_init_attr_mask {
    /// `MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS`.
    pub(crate) const QP_CREATE_FLAGS: u64 = 1 << 0;
    /// `MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS`.
    pub(crate) const SEND_OPS_FLAGS: u64 = 1 << 2;
}

/// `struct mlx5dv_sig_caps`: one bit per value of each field's enum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct mlx5dv_sig_caps {
    pub(crate) block_size: u64,
    pub(crate) block_prot: u32,
    pub(crate) t10dif_bg: u16,
    pub(crate) crc_type: u16,
}

/// `struct mlx5dv_context`, up to the capabilities of signatures. Later fields grow with rdma-core,
/// and the library writes only those requested by `comp_mask`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_context {
    pub(crate) version: u8,
    pub(crate) flags: u64,
    pub(crate) comp_mask: u64,
    pub(crate) cqe_comp_caps: [u32; 2],
    pub(crate) sw_parsing_caps: [u32; 2],
    pub(crate) striding_rq_caps: [u32; 5],
    pub(crate) tunnel_offloads_caps: u32,
    pub(crate) max_dynamic_bfregs: u32,
    pub(crate) max_clock_info_update_nsec: u64,
    pub(crate) flow_action_flags: u32,
    pub(crate) dc_odp_caps: u32,
    pub(crate) hca_core_clock: *mut c_void,
    pub(crate) num_lag_ports: u8,
    pub(crate) sig_caps: mlx5dv_sig_caps,
    /// Larger than the later fields of any rdma-core so far.
    pub(crate) rest: [u64; 64],
}

/// `struct mlx5dv_dc_init_attr`, which is unused.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct mlx5dv_dc_init_attr {
    pub(crate) dc_type: u32,
    pub(crate) dct_access_key: u64,
}

/// `struct mlx5dv_qp_init_attr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct mlx5dv_qp_init_attr {
    /// Bits of [`qp_init_attr_mask`].
    pub(crate) comp_mask: u64,
    pub(crate) create_flags: u32,
    pub(crate) dc_init_attr: mlx5dv_dc_init_attr,
    pub(crate) send_ops_flags: u64,
}

/// Functions of [`mlx5dv_qp_ex`].
pub(crate) mod wr {
    use super::*;

    pub(crate) type SetDcAddr = unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64);
    pub(crate) type MrInterleaved =
        unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut mlx5dv_mkey, u32, u32, u16, *mut mlx5dv_mr_interleaved);
    pub(crate) type MrList = unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut mlx5dv_mkey, u32, u16, *mut ibv_sge);
    /// Arguments: the key, the number of setters that follow, and other attributes.
    pub(crate) type MkeyConfigure =
        unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut mlx5dv_mkey, u8, *mut mlx5dv_mkey_conf_attr);
    pub(crate) type SetMkeyAccessFlags = unsafe extern "C" fn(*mut mlx5dv_qp_ex, u32);
    pub(crate) type SetMkeyLayoutList = unsafe extern "C" fn(*mut mlx5dv_qp_ex, u16, *const ibv_sge);
    /// Arguments: the number of rounds, the number of parts, and the parts.
    pub(crate) type SetMkeyLayoutInterleaved =
        unsafe extern "C" fn(*mut mlx5dv_qp_ex, u32, u16, *const mlx5dv_mr_interleaved);
    pub(crate) type SetMkeySigBlock = unsafe extern "C" fn(*mut mlx5dv_qp_ex, *const mlx5dv_sig_block_attr);
}

/// `struct mlx5dv_qp_ex`, up to signatures: a library may have more fields behind.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct mlx5dv_qp_ex {
    pub(crate) comp_mask: u64,
    pub(crate) wr_set_dc_addr: Option<wr::SetDcAddr>,
    pub(crate) wr_mr_interleaved: Option<wr::MrInterleaved>,
    pub(crate) wr_mr_list: Option<wr::MrList>,
    pub(crate) wr_mkey_configure: Option<wr::MkeyConfigure>,
    pub(crate) wr_set_mkey_access_flags: Option<wr::SetMkeyAccessFlags>,
    pub(crate) wr_set_mkey_layout_list: Option<wr::SetMkeyLayoutList>,
    pub(crate) wr_set_mkey_layout_interleaved: Option<wr::SetMkeyLayoutInterleaved>,
    pub(crate) wr_set_mkey_sig_block: Option<wr::SetMkeySigBlock>,
}

/// Functions that the library exports.
pub(crate) mod exported {
    use super::*;

    pub(crate) type IsSupported = unsafe extern "C" fn(*mut ibv_device) -> bool;
    pub(crate) type QueryDevice = unsafe extern "C" fn(*mut ibv_context, *mut mlx5dv_context) -> c_int;
    pub(crate) type CreateMkey = unsafe extern "C" fn(*mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey;
    pub(crate) type DestroyMkey = unsafe extern "C" fn(*mut mlx5dv_mkey) -> c_int;
    /// The last argument is the size of the error.
    pub(crate) type MkeyCheck = unsafe extern "C" fn(*mut mlx5dv_mkey, *mut mlx5dv_mkey_err, usize) -> c_int;
    pub(crate) type CreateQp =
        unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex, *mut mlx5dv_qp_init_attr) -> *mut ibv_qp;
    pub(crate) type QpExFromIbvQpEx = unsafe extern "C" fn(*mut ibv_qp_ex) -> *mut mlx5dv_qp_ex;
    /// Returns the number of cancelled work requests, or a negative `errno`.
    pub(crate) type QpCancelPostedSendWrs = unsafe extern "C" fn(*mut mlx5dv_qp_ex, u64) -> c_int;
}
