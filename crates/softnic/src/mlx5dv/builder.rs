//! The work request that configures a key, as `mlx5dv_wr_mkey_configure(3)` builds it: the builder,
//! its setters, and the result.
//!
//! Guarantees: a builder used against the page (a setter twice, fewer or more setters than
//! announced, two layouts, an invalid value) posts nothing, and returns the error at the post, as
//! `ibv_wr_complete(3)` does.

use crate::signature::configuration::{Fields, LayoutPart, Setters};
use crate::signature::types::*;
use rdma_sys::*;
use std::ffi::c_int;

/// A work request being built: `mlx5dv_wr_mkey_configure()` and the setters that follow it. It may
/// be used again ([`start`](Self::start)), and then allocates only if it needs more room.
#[derive(Debug)]
pub struct MkeyConfigureWr {
    /// [`Fields`], then [`LayoutPart`]s: the inline data.
    words: Vec<u64>,
    fields: Fields,
    setters_left: u8,
    /// The first mistake.
    error: c_int,
}

impl MkeyConfigureWr {
    /// Room for layouts of `entries` entries.
    pub fn with_capacity(entries: usize) -> MkeyConfigureWr {
        let words = (size_of::<Fields>() + entries * size_of::<LayoutPart>()) / 8;
        let words = Vec::with_capacity(words);
        MkeyConfigureWr { words, fields: Fields::default(), setters_left: 0, error: libc::EINVAL }
    }

    /// `mlx5dv_wr_mkey_configure()`: `num_setters` calls of setters follow. The key must live until
    /// the work request has completed.
    pub fn start(&mut self, mkey: *mut mlx5dv_mkey, num_setters: u8, attr: &mlx5dv_mkey_conf_attr) {
        self.words.clear();
        self.words.resize(size_of::<Fields>() / 8, 0);
        self.fields = Fields { mkey: mkey as u64, conf_flags: attr.conf_flags, ..Fields::default() };
        self.setters_left = num_setters;
        let known = attr.comp_mask == 0 && attr.conf_flags & !mkey_conf_flags::RESET_SIG_ATTR == 0;
        self.error = if known && !mkey.is_null() { 0 } else { libc::EINVAL };
    }

    /// `mlx5dv_wr_set_mkey_access_flags()`.
    pub fn set_access_flags(&mut self, access_flags: u32) {
        if self.setter(Setters::ACCESS, Setters::ACCESS) {
            self.fields.access = access_flags;
        }
    }

    /// `mlx5dv_wr_set_mkey_layout_list()`.
    pub fn set_layout_list(&mut self, sges: impl IntoIterator<Item = ibv_sge>) {
        if self.setter(Setters::LIST, Setters::LIST | Setters::INTERLEAVED) {
            self.fields.repeat = 1;
            for sge in sges {
                self.entry(LayoutPart { addr: sge.addr, bytes: sge.length, skip: 0, lkey: sge.lkey, reserved: 0 });
            }
        }
    }

    /// `mlx5dv_wr_set_mkey_layout_interleaved()`.
    pub fn set_layout_interleaved(&mut self, repeat_count: u32, data: impl IntoIterator<Item = mlx5dv_mr_interleaved>) {
        if self.setter(Setters::INTERLEAVED, Setters::LIST | Setters::INTERLEAVED) {
            self.fields.repeat = repeat_count;
            for one in data {
                let mlx5dv_mr_interleaved { addr, bytes_count, bytes_skip, lkey } = one;
                self.entry(LayoutPart { addr, bytes: bytes_count, skip: bytes_skip, lkey, reserved: 0 });
            }
        }
    }

    /// `mlx5dv_wr_set_mkey_sig_block()`.
    ///
    /// # Safety
    /// The domains, and the data that they point to, can be read.
    pub unsafe fn set_sig_block(&mut self, attr: &mlx5dv_sig_block_attr) {
        if !self.setter(Setters::SIGNATURE, Setters::SIGNATURE) {
            return;
        }
        if attr.comp_mask != 0 || attr.flags & !sig_block_attr_flags::COPY_MASK != 0 {
            self.fail();
        }
        // SAFETY: domains are null or can be read, as the caller guarantees.
        unsafe {
            self.fields.memory = attr.mem.as_ref().map(|domain| self.domain(domain)).unwrap_or_default();
            self.fields.wire = attr.wire.as_ref().map(|domain| self.domain(domain)).unwrap_or_default();
        }
        (self.fields.sig_flags, self.fields.check_mask) = (attr.flags, attr.check_mask);
        self.fields.copy_mask = attr.copy_mask;
    }

    /// # Safety
    /// The data that the domain points to can be read.
    unsafe fn domain(&mut self, domain: &mlx5dv_sig_block_domain) -> crate::signature::configuration::DomainFields {
        use crate::signature::configuration::DomainFields;
        if domain.comp_mask != 0 {
            self.fail();
        }
        let size = DomainFields { block_size: domain.block_size, ..DomainFields::default() };
        // SAFETY: by the contract the arm of the type can be read.
        let known = unsafe {
            match domain.sig_type {
                sig_type::T10DIF => domain.sig.dif.as_ref().map(|dif| DomainFields {
                    kind: DomainFields::T10DIF,
                    sub_type: dif.bg_type,
                    flags: u32::from(dif.flags),
                    seed: u64::from(dif.bg),
                    app_tag: u32::from(dif.app_tag),
                    ref_tag: dif.ref_tag,
                    ..size
                }),
                sig_type::CRC => domain.sig.crc.as_ref().map(|crc| DomainFields {
                    kind: DomainFields::CRC,
                    sub_type: crc.type_,
                    seed: crc.seed,
                    ..size
                }),
                _ => None,
            }
        };
        known.unwrap_or_else(|| {
            self.fail();
            size
        })
    }

    /// The inline data of the `IBV_WR_DRIVER1` to post, in whole words; or the error.
    pub fn complete(&mut self) -> Result<&[u64], c_int> {
        if self.error != 0 || self.setters_left != 0 {
            return Err(if self.error != 0 { self.error } else { libc::EINVAL });
        }
        self.fields.write(&mut self.words);
        Ok(&self.words)
    }

    /// `ibv_wr_complete()`, for this work request alone.
    ///
    /// # Safety
    /// Like `ibv_post_send(3)`; and the key lives until the work request has completed.
    pub unsafe fn post(&mut self, qp: *mut ibv_qp, wr_id: u64, send_flags: u32) -> c_int {
        let words = match self.complete() {
            Ok(words) => words,
            Err(code) => return code,
        };
        let mut sge = ibv_sge { addr: words.as_ptr() as u64, length: size_of_val(words) as u32, lkey: 0 };
        // SAFETY: numbers, pointers and unions of them, for which zero is a value.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        (wr.wr_id, wr.send_flags, wr.opcode) = (wr_id, send_flags, ibv_wr_opcode::IBV_WR_DRIVER1);
        (wr.sg_list, wr.num_sge) = (&raw mut sge, 1);
        let mut bad = std::ptr::null_mut();
        // SAFETY: the contract; the list is one local, whose element points to `words`.
        unsafe { ibv_post_send(qp, &raw mut wr, &raw mut bad) }
    }

    /// Counts a setter. Returns false if it may not follow.
    fn setter(&mut self, which: u32, excludes: u32) -> bool {
        let allowed = self.setters_left > 0 && self.fields.setters & excludes == 0;
        if !allowed {
            self.fail();
            return false;
        }
        self.setters_left -= 1;
        self.fields.setters |= which;
        true
    }

    fn entry(&mut self, entry: LayoutPart) {
        self.fields.entries += 1;
        self.words.extend_from_slice(&entry.words());
    }

    fn fail(&mut self) {
        self.error = libc::EINVAL;
    }
}
