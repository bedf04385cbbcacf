//! The implementation of signature offload on a device: the software RNIC, or libmlx5 for its
//! cards. Both are called by mlx5dv's names.

use std::ffi::c_int;
use std::fmt;

use rdma_sys::{ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr};
use verbline_softnic::mlx5dv::{self as soft, QpExtras, mlx5dv_mkey, mlx5dv_mkey_err, mlx5dv_mkey_init_attr};

use crate::device::provider::Provider;
use crate::mlx5::card::Card;
use crate::mlx5::functions::Functions;

/// The implementation.
#[derive(Clone, Copy)]
pub(crate) enum Offload {
    Soft,
    Mlx5(Card),
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Offload::Soft => "Soft",
            Offload::Mlx5(_) => "Mlx5",
        })
    }
}

impl Offload {
    /// The implementation for this device, or the reason why there is none.
    ///
    /// # Safety
    /// The context is open, and of this provider.
    pub(crate) unsafe fn of(provider: Provider, context: *mut ibv_context) -> Result<Offload, String> {
        if provider == Provider::Soft {
            return Ok(Offload::Soft);
        }
        let functions = Functions::installed()?;
        // SAFETY: by the contract above, the context is open; the kernel's devices are libibverbs'.
        unsafe { Card::of(functions, context) }.map(Offload::Mlx5)
    }

    /// `mlx5dv_create_mkey(3)`.
    ///
    /// # Safety
    /// The PD of the attributes is live, and this device's.
    pub(crate) unsafe fn create_mkey(self, attr: &mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey {
        // SAFETY: by the contract above, the PD is live.
        unsafe {
            match self {
                Offload::Soft => soft::mlx5dv_create_mkey(attr),
                Offload::Mlx5(card) => (card.functions.create_mkey)(attr),
            }
        }
    }

    /// `mlx5dv_destroy_mkey(3)`.
    ///
    /// # Safety
    /// The key is live and this device's, no work request names it, and it isn't used again.
    pub(crate) unsafe fn destroy_mkey(self, mkey: *mut mlx5dv_mkey) -> c_int {
        // SAFETY: by the contract above, the key is live, and nobody uses it any more.
        unsafe {
            match self {
                Offload::Soft => soft::mlx5dv_destroy_mkey(mkey),
                Offload::Mlx5(card) => (card.functions.destroy_mkey)(mkey),
            }
        }
    }

    /// `mlx5dv_mkey_check(3)`.
    ///
    /// # Safety
    /// The key is live and this device's.
    pub(crate) unsafe fn mkey_check(self, mkey: *mut mlx5dv_mkey, error: &mut mlx5dv_mkey_err) -> c_int {
        // SAFETY: by the contract above, the key is live.
        unsafe {
            match self {
                Offload::Soft => soft::mlx5dv_mkey_check(mkey, error),
                Offload::Mlx5(card) => (card.functions.mkey_check)(mkey, error, size_of_val(error)),
            }
        }
    }

    /// `mlx5dv_create_qp(3)`.
    ///
    /// # Safety
    /// The contract of `ibv_create_qp(3)`, on this device.
    pub(crate) unsafe fn create_qp(
        self,
        pd: *mut ibv_pd,
        init: &mut ibv_qp_init_attr,
        extras: QpExtras,
    ) -> *mut ibv_qp {
        // SAFETY: by the contract above, the objects in the attributes are live, and of this
        // device.
        unsafe {
            match self {
                Offload::Soft => soft::mlx5dv_create_qp(pd, init, extras),
                Offload::Mlx5(card) => card.create_qp(pd, init, extras),
            }
        }
    }

    /// The most slots of a send queue that one work request takes: a card makes up to three of one
    /// that configures a key.
    pub(crate) fn slots_a_work_request(self) -> u32 {
        match self {
            Offload::Soft => 1,
            Offload::Mlx5(_) => 3,
        }
    }
}
