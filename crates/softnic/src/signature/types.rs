//! The structs and numbers of `mlx5dv.h` that signature offload needs, under their own names.

use rdma_sys::ibv_pd;

/// `mlx5dv_mkey_init_attr.create_flags`.
pub mod mkey_init_attr_flags {
    /// `MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT`: a must.
    pub const INDIRECT: u32 = 1 << 0;
    /// `MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE`.
    pub const BLOCK_SIGNATURE: u32 = 1 << 1;
    /// `MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE`.
    pub const REMOTE_INVALIDATE: u32 = 1 << 4;
}

/// `mlx5dv_qp_init_attr.create_flags`.
pub mod qp_create_flags {
    /// `MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE`: no effect, since nothing is ever scattered there.
    pub const DISABLE_SCATTER_TO_CQE: u32 = 1 << 3;
    /// `MLX5DV_QP_CREATE_SIG_PIPELINING`.
    pub const SIG_PIPELINING: u32 = 1 << 6;
}

/// `mlx5dv_qp_init_attr.send_ops_flags`.
pub mod send_ops_flags {
    /// `MLX5DV_QP_EX_WITH_MKEY_CONFIGURE`.
    pub const MKEY_CONFIGURE: u64 = 1 << 2;
}

/// `mlx5dv_mkey_conf_attr.conf_flags`.
pub mod mkey_conf_flags {
    /// `MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR`.
    pub const RESET_SIG_ATTR: u32 = 1 << 0;
}

/// `mlx5dv_sig_block_domain.sig_type`.
pub mod sig_type {
    /// `MLX5DV_SIG_TYPE_T10DIF`.
    pub const T10DIF: u32 = 0;
    /// `MLX5DV_SIG_TYPE_CRC`.
    pub const CRC: u32 = 1;
}

/// `mlx5dv_sig_t10dif.bg_type`.
pub mod t10dif_bg_type {
    /// `MLX5DV_SIG_T10DIF_CRC`.
    pub const CRC: u32 = 0;
    /// `MLX5DV_SIG_T10DIF_CSUM`.
    pub const CSUM: u32 = 1;
}

/// `mlx5dv_sig_t10dif.flags`.
pub mod t10dif_flags {
    /// `MLX5DV_SIG_T10DIF_FLAG_REF_REMAP`.
    pub const REF_REMAP: u16 = 1 << 0;
    /// `MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE`.
    pub const APP_ESCAPE: u16 = 1 << 1;
    /// `MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE`.
    pub const APP_REF_ESCAPE: u16 = 1 << 2;
}

/// `mlx5dv_sig_crc.type`.
pub mod crc_type {
    /// `MLX5DV_SIG_CRC_TYPE_CRC32`.
    pub const CRC32: u32 = 0;
    /// `MLX5DV_SIG_CRC_TYPE_CRC32C`.
    pub const CRC32C: u32 = 1;
    /// `MLX5DV_SIG_CRC_TYPE_CRC64_XP10`.
    pub const CRC64_XP10: u32 = 2;
}

/// `mlx5dv_sig_block_domain.block_size`.
pub mod block_size {
    /// `MLX5DV_BLOCK_SIZE_512`.
    pub const B512: u32 = 0;
    /// `MLX5DV_BLOCK_SIZE_520`.
    pub const B520: u32 = 1;
    /// `MLX5DV_BLOCK_SIZE_4048`.
    pub const B4048: u32 = 2;
    /// `MLX5DV_BLOCK_SIZE_4096`.
    pub const B4096: u32 = 3;
    /// `MLX5DV_BLOCK_SIZE_4160`.
    pub const B4160: u32 = 4;
}

/// `mlx5dv_sig_block_attr.flags`.
pub mod sig_block_attr_flags {
    /// `MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK`.
    pub const COPY_MASK: u32 = 1 << 0;
}

/// `mlx5dv_mkey_err.err_type`.
pub mod mkey_err_type {
    /// `MLX5DV_MKEY_NO_ERR`.
    pub const NO_ERR: u32 = 0;
    /// `MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD`.
    pub const BAD_GUARD: u32 = 1;
    /// `MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG`.
    pub const BAD_REFTAG: u32 = 2;
    /// `MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG`.
    pub const BAD_APPTAG: u32 = 3;
}

/// `struct mlx5dv_mkey_init_attr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_mkey_init_attr {
    /// The key's protection domain.
    pub pd: *mut ibv_pd,
    /// [`mkey_init_attr_flags`].
    pub create_flags: u32,
    /// The most entries of its layouts.
    pub max_entries: u16,
}

/// `struct mlx5dv_mkey`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_mkey {
    /// For work requests.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
}

/// `struct mlx5dv_mkey_err`, with the only arm that its union has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct mlx5dv_mkey_err {
    /// [`mkey_err_type`].
    pub err_type: u32,
    /// The faulty block, and its faulty part.
    pub sig: mlx5dv_sig_err,
}

/// `struct mlx5dv_sig_err`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct mlx5dv_sig_err {
    /// The calculated value.
    pub actual_value: u64,
    /// The value in the field.
    pub expected_value: u64,
    /// The block's start in the transfer, in bytes.
    pub offset: u64,
}

/// `struct mlx5dv_mr_interleaved`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct mlx5dv_mr_interleaved {
    /// The start address.
    pub addr: u64,
    /// Bytes used per round.
    pub bytes_count: u32,
    /// Bytes skipped behind them.
    pub bytes_skip: u32,
    /// The region's key.
    pub lkey: u32,
}

/// `struct mlx5dv_sig_t10dif`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct mlx5dv_sig_t10dif {
    /// [`t10dif_bg_type`].
    pub bg_type: u32,
    /// The guard's seed: 0 or 0xffff.
    pub bg: u16,
    /// Application tag.
    pub app_tag: u16,
    /// Reference tag of the first block.
    pub ref_tag: u32,
    /// [`t10dif_flags`].
    pub flags: u16,
}

/// `struct mlx5dv_sig_crc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct mlx5dv_sig_crc {
    /// [`crc_type`].
    pub type_: u32,
    /// 0, or all ones in the width of the guard.
    pub seed: u64,
}

/// `struct mlx5dv_sig_block_domain.sig`.
#[derive(Clone, Copy)]
#[repr(C)]
pub union mlx5dv_sig {
    /// For [`sig_type::T10DIF`].
    pub dif: *const mlx5dv_sig_t10dif,
    /// For [`sig_type::CRC`].
    pub crc: *const mlx5dv_sig_crc,
}

/// `struct mlx5dv_sig_block_domain`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct mlx5dv_sig_block_domain {
    /// [`sig_type`].
    pub sig_type: u32,
    /// Selected by the type.
    pub sig: mlx5dv_sig,
    /// [`block_size`].
    pub block_size: u32,
    /// 0.
    pub comp_mask: u64,
}

/// `struct mlx5dv_sig_block_attr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct mlx5dv_sig_block_attr {
    /// Null if memory has none.
    pub mem: *const mlx5dv_sig_block_domain,
    /// Null if the wire has none.
    pub wire: *const mlx5dv_sig_block_domain,
    /// [`sig_block_attr_flags`].
    pub flags: u32,
    /// One bit per byte of the field.
    pub check_mask: u8,
    /// Likewise, if the flag is set.
    pub copy_mask: u8,
    /// 0.
    pub comp_mask: u64,
}

/// `struct mlx5dv_mkey_conf_attr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct mlx5dv_mkey_conf_attr {
    /// [`mkey_conf_flags`].
    pub conf_flags: u32,
    /// 0.
    pub comp_mask: u64,
}

/// Attributes of `mlx5dv_create_qp` beside those of `ibv_create_qp(3)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpExtras {
    /// [`qp_create_flags`].
    pub create_flags: u32,
    /// [`send_ops_flags`].
    pub send_ops_flags: u64,
}

// The layouts of mlx5dv.h on 64-bit machines; verbline-verbs (`mlx5/header.rs`) checks them against
// the header.
const _: () = {
    assert!(size_of::<mlx5dv_mkey_init_attr>() == 16 && size_of::<mlx5dv_mkey>() == 8);
    assert!(size_of::<mlx5dv_mkey_err>() == 32 && size_of::<mlx5dv_mr_interleaved>() == 24);
    assert!(size_of::<mlx5dv_sig_t10dif>() == 16 && size_of::<mlx5dv_sig_crc>() == 16);
    assert!(size_of::<mlx5dv_sig_block_domain>() == 32 && size_of::<mlx5dv_sig_block_attr>() == 32);
    assert!(size_of::<mlx5dv_mkey_conf_attr>() == 16);
};
