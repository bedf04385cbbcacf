//! A libmlx5 device with signature offload: its signature capabilities, and the creation of queue
//! pairs and keys.

use std::fmt;

use rdma_sys::{ibv_context, ibv_pd, ibv_qp, ibv_qp_create_send_ops_flags as ops, ibv_qp_init_attr};
use rdma_sys::{ibv_qp_init_attr_ex, ibv_qp_init_attr_mask};
use verbline_softnic::mlx5dv::{QpExtras, mlx5dv_sig_block_domain, qp_create_flags, sig_type};

use super::extended::ExtendedQp;
use super::ffi::{context_mask, mlx5dv_context, mlx5dv_qp_init_attr, mlx5dv_sig_caps, qp_init_attr_mask};
use super::functions::Functions;
use crate::block_signature::BlockSignature;

/// A libmlx5 device with signature offload.
#[derive(Clone, Copy)]
pub(crate) struct Card {
    pub(crate) functions: &'static Functions,
    caps: mlx5dv_sig_caps,
}

/// Bytes of a work request per layout entry, and for a signature in addition.
const ENTRY_BYTES: u32 = 16;
const SIGNATURE_BYTES: u32 = 64;
/// Entries that fit into every work request (`mlx5dv_wr_mkey_configure(3)`).
const ENTRIES_LEAST: u32 = 4;

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("caps", &self.caps).finish_non_exhaustive()
    }
}

impl Card {
    /// The device as a card, or the reason why it is none.
    ///
    /// # Safety
    /// The context is open, and libibverbs'.
    pub(crate) unsafe fn of(functions: &'static Functions, context: *mut ibv_context) -> Result<Card, String> {
        // SAFETY: the contract above; a context's device is there for as long as it is open.
        if !unsafe { (functions.is_supported)((*context).device) } {
            return Err("it is not an mlx5 device (mlx5dv_is_supported)".to_owned());
        }
        // SAFETY: integers and a pointer: all zeros is a value.
        let mut attr: mlx5dv_context = unsafe { std::mem::zeroed() };
        attr.comp_mask = context_mask::SIGNATURE_OFFLOAD;
        // SAFETY: open by the contract above; the call writes to `attr` alone.
        match unsafe { (functions.query_device)(context, &raw mut attr) } {
            0 if attr.comp_mask & context_mask::SIGNATURE_OFFLOAD == 0 || attr.sig_caps.block_prot == 0 => {
                Err("mlx5dv_query_device reports no block signatures of it (sig_caps.block_prot is 0)".to_owned())
            }
            0 => Ok(Card { functions, caps: attr.sig_caps }),
            errno => Err(format!("mlx5dv_query_device answered {}", crate::errno::Errno::new(errno))),
        }
    }

    /// The feature that the card lacks for such blocks.
    pub(crate) fn lacks(&self, signature: &BlockSignature) -> Option<&'static str> {
        signature.with_raw(|attr| {
            // SAFETY: null, or borrowed during the call.
            let domains = unsafe { [attr.mem.as_ref(), attr.wire.as_ref()] };
            domains.into_iter().flatten().find_map(|domain| self.lacks_in_domain(domain))
        })
    }

    fn lacks_in_domain(&self, domain: &mlx5dv_sig_block_domain) -> Option<&'static str> {
        let bit = |of: u64, value: u32| 1u64.checked_shl(value).is_some_and(|bit| of & bit != 0);
        // SAFETY: the type selects the valid member, which leads to data borrowed during the call.
        let has_guard = unsafe {
            match domain.sig_type {
                sig_type::T10DIF => bit(self.caps.t10dif_bg.into(), (*domain.sig.dif).bg_type),
                _ => bit(self.caps.crc_type.into(), (*domain.sig.crc).type_),
            }
        };
        if !bit(self.caps.block_size, domain.block_size) {
            Some("the device has no blocks of that size (mlx5dv_sig_caps.block_size)")
        } else if !bit(self.caps.block_prot.into(), domain.sig_type) || !has_guard {
            Some("the device has no such guard (mlx5dv_sig_caps)")
        } else {
            None
        }
    }

    /// Like `ibv_create_qp(3)`, with space for configurations: `init` requests the inline data that
    /// packets need, and receives the granted size.
    ///
    /// # Safety
    /// The contract of `ibv_create_qp(3)`.
    pub(crate) unsafe fn create_qp(
        &self,
        pd: *mut ibv_pd,
        init: &mut ibv_qp_init_attr,
        extras: QpExtras,
    ) -> *mut ibv_qp {
        // SAFETY: numbers and pointers: all zeros is a value.
        let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        (attr.send_cq, attr.recv_cq, attr.srq) = (init.send_cq, init.recv_cq, init.srq);
        (attr.cap, attr.qp_type, attr.sq_sig_all) = (init.cap, init.qp_type, init.sq_sig_all);
        attr.cap.max_inline_data = init.cap.max_inline_data.max(inline_bytes(max_entries(init.cap.max_inline_data)));
        attr.comp_mask =
            (ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).0;
        (attr.pd, attr.send_ops_flags) = (pd, SEND_OPS.0.into());
        let mut card = mlx5dv_qp_init_attr {
            comp_mask: qp_init_attr_mask::QP_CREATE_FLAGS | qp_init_attr_mask::SEND_OPS_FLAGS,
            // Data that goes through a key has no address to scatter it to from a completion.
            create_flags: extras.create_flags | qp_create_flags::DISABLE_SCATTER_TO_CQE,
            send_ops_flags: extras.send_ops_flags,
            ..mlx5dv_qp_init_attr::default()
        };
        // SAFETY: the contract above; both attributes are locals.
        let qp = unsafe { (self.functions.create_qp)((*pd).context, &raw mut attr, &raw mut card) };
        init.cap = attr.cap;
        qp
    }

    /// The functions for posting to such a queue pair, which was created with a request for
    /// `inline_bytes` of inline data.
    ///
    /// # Safety
    /// The queue pair is live, and was created by [`Card::create_qp`].
    pub(crate) unsafe fn extended(&self, qp: *mut ibv_qp, inline_bytes: u32) -> Option<Box<ExtendedQp>> {
        // SAFETY: by the contract above, the QP is live and the library's.
        unsafe { ExtendedQp::of(self.functions, qp, max_entries(inline_bytes) as usize) }
    }
}

/// Operations that `ibv_wr_*` may post, declared as if everything went that way: the size of work
/// requests follows from them. That of atomics, which some cards lack, is no larger.
const SEND_OPS: ops = ops(ops::IBV_QP_EX_WITH_SEND.0
    | ops::IBV_QP_EX_WITH_SEND_WITH_IMM.0
    | ops::IBV_QP_EX_WITH_SEND_WITH_INV.0
    | ops::IBV_QP_EX_WITH_RDMA_WRITE.0
    | ops::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0
    | ops::IBV_QP_EX_WITH_RDMA_READ.0
    | ops::IBV_QP_EX_WITH_LOCAL_INV.0
    | ops::IBV_QP_EX_WITH_BIND_MW.0);

/// The most layout entries for a queue pair with this much inline data: as many as on the software
/// RNIC.
fn max_entries(inline_bytes: u32) -> u32 {
    (inline_bytes / ENTRY_BYTES).max(ENTRIES_LEAST)
}

/// The inline data that fits into a work request with `entries` entries and a signature.
fn inline_bytes(entries: u32) -> u32 {
    entries.next_multiple_of(4) * ENTRY_BYTES + SIGNATURE_BYTES
}
