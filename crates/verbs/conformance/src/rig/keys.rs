//! Signature keys, by the names of mlx5dv. Only the software RNIC has them here: rows need
//! [`Cap::Signatures`](super::Cap).

use super::access::Access;
use super::cq::Cq;
use super::errno::Refused;
use super::pd::Pd;
use super::qp::Qp;
use super::sge::Sge;
use rdma_sys::{ibv_send_flags, ibv_sge};
use std::ffi::c_int;
use std::ptr;
use std::rc::Rc;
use verbline_softnic::mlx5dv::*;

pub(crate) use verbline_softnic::mlx5dv::{
    QpExtras, block_size, crc_type, mkey_conf_flags, mkey_err_type, mkey_init_attr_flags, mlx5dv_mkey_err,
    mlx5dv_mr_interleaved, mlx5dv_sig_crc, mlx5dv_sig_t10dif, qp_create_flags, send_ops_flags, t10dif_bg_type,
    t10dif_flags,
};

/// A key. Clones share it; the last one destroys it.
#[derive(Clone)]
pub(crate) struct Key(Rc<KeyInner>);

struct KeyInner {
    pd: Pd,
    raw: *mut mlx5dv_mkey,
}

/// The protection of one side's blocks.
#[derive(Clone, Copy)]
pub(crate) enum Blocks {
    /// T10-DIF, for blocks of this size.
    T10(u32, mlx5dv_sig_t10dif),
    /// A CRC, for blocks of this size.
    Crc(u32, mlx5dv_sig_crc),
}

/// `struct mlx5dv_sig_block_attr`, with its domains by value.
#[derive(Clone, Copy, Default)]
pub(crate) struct SigBlock {
    pub(crate) memory: Option<Blocks>,
    pub(crate) wire: Option<Blocks>,
    pub(crate) check_mask: u8,
    pub(crate) copy_mask: Option<u8>,
}

/// A call of a setter.
#[derive(Clone)]
pub(crate) enum Setter {
    Access(Access),
    List(Vec<Sge>),
    Interleaved(u32, Vec<mlx5dv_mr_interleaved>),
    SigBlock(SigBlock),
}

impl Key {
    pub(crate) fn create(pd: &Pd, create_flags: u32, max_entries: u16) -> Result<Key, Refused> {
        let mut attr = mlx5dv_mkey_init_attr { pd: pd.raw(), create_flags, max_entries };
        // SAFETY: the PD is live; the attributes are read during the call.
        let raw = unsafe { mlx5dv_create_mkey(&raw mut attr) };
        if raw.is_null() {
            return Err(Refused::last("mlx5dv_create_mkey"));
        }
        Ok(Key(Rc::new(KeyInner { pd: pd.clone(), raw })))
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: `self` keeps the key alive.
        unsafe { (*self.0.raw).lkey }
    }

    /// A scatter/gather entry in the key's range.
    pub(crate) fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge { addr, length, lkey: self.number() }
    }

    pub(crate) fn check(&self) -> Result<mlx5dv_mkey_err, Refused> {
        let mut error = mlx5dv_mkey_err::default();
        // SAFETY: live; the error may be written.
        let value = unsafe { mlx5dv_mkey_check(self.0.raw, &raw mut error) };
        Refused::check("mlx5dv_mkey_check", value).map(|()| error)
    }

    /// `mlx5dv_wr_mkey_configure()`: announces a number of setters, calls these, and posts the work
    /// request alone. With INLINE, unless `flags` have [`Key::NOT_INLINE`].
    pub(crate) fn configure(
        &self,
        qp: &Qp,
        id: u64,
        flags: u32,
        attr: mlx5dv_mkey_conf_attr,
        announced: u8,
        setters: &[Setter],
    ) -> Result<(), Refused> {
        let mut wr = MkeyConfigureWr::with_capacity(8);
        wr.start(self.0.raw, announced, &attr);
        for setter in setters {
            match setter {
                Setter::Access(access) => wr.set_access_flags(access.0),
                Setter::List(sges) => wr.set_layout_list(sges.iter().map(|sge| raw_sge(*sge))),
                Setter::Interleaved(repeat, data) => wr.set_layout_interleaved(*repeat, data.iter().copied()),
                Setter::SigBlock(block) => set_sig_block(&mut wr, block),
            }
        }
        qp.keep_key(self.clone());
        let inline = if flags & Key::NOT_INLINE == 0 { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 };
        // SAFETY: the queue pair lives, and keeps the key.
        let value = unsafe { wr.post(qp.raw(), id, flags & !Key::NOT_INLINE | inline) };
        Refused::check("mlx5dv_wr_mkey_configure", value)
    }

    pub(crate) const NOT_INLINE: u32 = 1 << 31;
}

impl Drop for KeyInner {
    fn drop(&mut self) {
        // SAFETY: live; queue pairs that were given work requests with it keep it.
        let value = unsafe { mlx5dv_destroy_mkey(self.raw) };
        Refused::check("mlx5dv_destroy_mkey", value).unwrap_or_else(|refused| self.pd.context().complain(refused));
    }
}

/// Attributes with these flags.
pub(crate) fn conf_flags(conf_flags: u32) -> mlx5dv_mkey_conf_attr {
    mlx5dv_mkey_conf_attr { conf_flags, comp_mask: 0 }
}

fn raw_sge(sge: Sge) -> ibv_sge {
    ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey }
}

fn set_sig_block(wr: &mut MkeyConfigureWr, block: &SigBlock) {
    with_domain(&block.memory, |mem| {
        with_domain(&block.wire, |wire| {
            let flags = if block.copy_mask.is_some() { sig_block_attr_flags::COPY_MASK } else { 0 };
            let (check_mask, copy_mask) = (block.check_mask, block.copy_mask.unwrap_or(0));
            let attr = mlx5dv_sig_block_attr { mem, wire, flags, check_mask, copy_mask, comp_mask: 0 };
            // SAFETY: the memory behind the attributes is borrowed during the call.
            unsafe { wr.set_sig_block(&attr) };
        });
    });
}

fn with_domain(blocks: &Option<Blocks>, f: impl FnOnce(*const mlx5dv_sig_block_domain)) {
    let domain = |sig_type, sig, block_size| mlx5dv_sig_block_domain { sig_type, sig, block_size, comp_mask: 0 };
    match blocks {
        None => f(ptr::null()),
        Some(Blocks::T10(size, dif)) => f(&domain(sig_type::T10DIF, mlx5dv_sig { dif }, *size)),
        Some(Blocks::Crc(size, crc)) => f(&domain(sig_type::CRC, mlx5dv_sig { crc }, *size)),
    }
}

impl Qp {
    /// `mlx5dv_qp_cancel_posted_send_wrs(3)`.
    pub(crate) fn cancel(&self, wr_id: u64) -> c_int {
        // SAFETY: live, and the software RNIC's: rows with keys need its capability.
        unsafe { mlx5dv_qp_cancel_posted_send_wrs(self.raw(), wr_id) }
    }
}

impl Cq {
    /// Polls until a poll finds nothing; returns all completions.
    pub(crate) fn poll_to_0(&self) -> crate::check::Outcome<Vec<super::Wc>> {
        let mut all = Vec::new();
        loop {
            let some = self.poll(16)?;
            if some.is_empty() {
                return Ok(all);
            }
            all.extend(some);
        }
    }
}
