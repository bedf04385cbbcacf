//! A key's configuration for a card: kept from writing its work request until posting it. Posting
//! passes it to the card by calls in the order of `mlx5dv_wr_mkey_configure(3)`.

use std::fmt;

use rdma_sys::ibv_sge;
use verbline_softnic::mlx5dv::{mkey_conf_flags, mlx5dv_mkey, mlx5dv_mkey_conf_attr, mlx5dv_mr_interleaved};

use super::ffi::{mlx5dv_qp_ex, wr};
use crate::block_signature::BlockSignature;

/// A configuration. It stays at its address until it is posted, and allocates nothing within its
/// capacity.
pub(crate) struct Configuration {
    mkey: *mut mlx5dv_mkey,
    resets_signature: bool,
    access: Option<u32>,
    layout: Layout,
    /// The layout, if it is a list.
    sges: Vec<ibv_sge>,
    /// The layout, if it has gaps.
    strips: Vec<mlx5dv_mr_interleaved>,
    signature: Option<BlockSignature>,
}

#[derive(Clone, Copy)]
enum Layout {
    Kept,
    List,
    Interleaved { repeat: u32 },
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration").field("entries", &self.entries()).finish_non_exhaustive()
    }
}

// SAFETY: the key's address is followed by the card's library alone, when a QP that is used by one
// thread posts.
unsafe impl Send for Configuration {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Configuration {}

/// The functions of a queue pair that set a configuration.
#[derive(Clone, Copy)]
pub(super) struct Setters {
    pub(super) configure: wr::MkeyConfigure,
    pub(super) access_flags: wr::SetMkeyAccessFlags,
    pub(super) layout_list: wr::SetMkeyLayoutList,
    pub(super) layout_interleaved: wr::SetMkeyLayoutInterleaved,
    pub(super) sig_block: wr::SetMkeySigBlock,
}

impl Configuration {
    /// Allocates space for layouts of `entries` entries, at a fixed address.
    pub(crate) fn with_capacity(entries: usize) -> Box<Configuration> {
        Box::new(Configuration {
            mkey: std::ptr::null_mut(),
            resets_signature: false,
            access: None,
            layout: Layout::Kept,
            sges: Vec::with_capacity(entries),
            strips: Vec::with_capacity(entries),
            signature: None,
        })
    }

    /// Starts an empty configuration of this key.
    pub(crate) fn start(&mut self, mkey: *mut mlx5dv_mkey) {
        self.sges.clear();
        self.strips.clear();
        (self.mkey, self.resets_signature, self.access) = (mkey, false, None);
        (self.layout, self.signature) = (Layout::Kept, None);
    }

    pub(crate) fn set_access(&mut self, flags: u32) {
        self.access = Some(flags);
    }

    pub(crate) fn set_list(&mut self, sges: impl IntoIterator<Item = ibv_sge>) {
        self.layout = Layout::List;
        self.sges.extend(sges);
    }

    pub(crate) fn set_interleaved(&mut self, repeat: u32, strips: impl IntoIterator<Item = mlx5dv_mr_interleaved>) {
        self.layout = Layout::Interleaved { repeat };
        self.strips.extend(strips);
    }

    pub(crate) fn set_signature(&mut self, signature: BlockSignature) {
        self.signature = Some(signature);
    }

    pub(crate) fn reset_signature(&mut self) {
        self.resets_signature = true;
    }

    pub(crate) fn changes_signature(&self) -> bool {
        self.resets_signature || self.signature.is_some()
    }

    /// A configuration that a card cannot express and libmlx5 does not check; returns the reason.
    pub(crate) fn misunderstood(&self) -> Option<&'static str> {
        // A round's stride has 16 bits on the card, and libmlx5 truncates it to them.
        let is_long = |strip: &mlx5dv_mr_interleaved| {
            strip.bytes_count.checked_add(strip.bytes_skip).is_none_or(|stride| stride > u16::MAX.into())
        };
        let is_empty = match self.layout {
            Layout::Kept => false,
            Layout::List => self.sges.is_empty(),
            Layout::Interleaved { repeat } => repeat == 0 || self.strips.iter().all(|strip| strip.bytes_count == 0),
        };
        if is_empty {
            Some("it would stand for no bytes")
        } else if self.strips.iter().any(is_long) {
            Some("on a card a strip and what is skipped behind it are 65,535 bytes at most")
        } else {
            None
        }
    }

    /// The number of key entries that it takes. A layout with gaps has an additional header.
    pub(super) fn entries(&self) -> usize {
        match self.layout {
            Layout::Kept => 0,
            Layout::List => self.sges.len(),
            Layout::Interleaved { .. } => self.strips.len() + 1,
        }
    }

    /// The inline data of its work request: the configuration's own address.
    pub(crate) fn inline(&self) -> ibv_sge {
        ibv_sge { addr: std::ptr::from_ref(self) as u64, length: size_of::<Configuration>() as u32, lkey: 0 }
    }

    /// Passes the configuration to the queue pair, whose critical region is open.
    ///
    /// # Safety
    /// The functions are those of `qp`, which is live, as are the key and the memory of its layout.
    pub(super) unsafe fn tell(&self, qp: *mut mlx5dv_qp_ex, setters: &Setters) {
        let (has_layout, flag) = (!matches!(self.layout, Layout::Kept), mkey_conf_flags::RESET_SIG_ATTR);
        let count = u8::from(self.access.is_some()) + u8::from(has_layout) + u8::from(self.signature.is_some());
        let conf_flags = if self.resets_signature { flag } else { 0 };
        let mut attr = mlx5dv_mkey_conf_attr { conf_flags, comp_mask: 0 };
        // SAFETY: by the contract above, QP and key are live. The setters' arguments are borrowed
        // during each call, and the lists have the lengths passed.
        unsafe {
            (setters.configure)(qp, self.mkey, count, &raw mut attr);
            if let Some(access) = self.access {
                (setters.access_flags)(qp, access);
            }
            match self.layout {
                Layout::Kept => {}
                Layout::List => (setters.layout_list)(qp, self.sges.len() as u16, self.sges.as_ptr()),
                Layout::Interleaved { repeat } => {
                    (setters.layout_interleaved)(qp, repeat, self.strips.len() as u16, self.strips.as_ptr());
                }
            }
            if let Some(signature) = &self.signature {
                signature.with_raw(|attr| (setters.sig_block)(qp, std::ptr::from_ref(attr)));
            }
        }
    }
}
