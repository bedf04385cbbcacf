//! Keys: made, named in work requests, checked.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::ibv_sge;
use verbline_softnic::mlx5dv::{
    QpExtras, mkey_err_type, mkey_init_attr_flags, mlx5dv_mkey, mlx5dv_mkey_err, mlx5dv_mkey_init_attr,
    qp_create_flags, send_ops_flags,
};

use crate::device::capability::Lacking;
use crate::device::offload::Offload;
use crate::errno::VerbError;
use crate::memory::pd::{PdInner, ProtectionDomain};
use crate::memory::peer::Remote;
use crate::signature::builder::Builder;
use crate::signature::layout::KeyLayout;

/// What a QP has to do with signature keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum QpSignature {
    /// Nothing: it may use keys, and configures none.
    #[default]
    None,
    /// It configures them.
    Keys,
    /// It configures them, and stops in SQD behind a transfer of its own whose check failed.
    Pipelined,
}

impl QpSignature {
    pub(crate) fn extras(self) -> QpExtras {
        let create_flags = if self == QpSignature::Pipelined { qp_create_flags::SIG_PIPELINING } else { 0 };
        let send_ops_flags = if self == QpSignature::None { 0 } else { send_ops_flags::MKEY_CONFIGURE };
        QpExtras { create_flags, send_ops_flags }
    }
}

/// What a key is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Entries that its layouts may have, at least 1.
    pub max_entries: u16,
    /// Whether it may be configured with a [`BlockSignature`](crate::signature::BlockSignature).
    pub signs_blocks: bool,
    /// Whether peers may invalidate it by a send.
    pub remote_invalidate: bool,
}

impl Default for KeySpec {
    fn default() -> KeySpec {
        KeySpec { max_entries: 4, signs_blocks: true, remote_invalidate: false }
    }
}

/// Why a key could not be made or checked.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// The device has no such keys.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// The device refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The key was made without a place for what is wrong.
    #[error("key {0:#x} was made without KeySpec::signs_blocks, so that nothing is checked through it")]
    SignsNothing(u32),
}

/// A key for a layout of parts of regions. Destroyed when it and every work request that names it
/// are gone.
#[derive(Debug)]
pub struct SignatureKey {
    pub(crate) inner: Arc<KeyInner>,
    /// What builds the work requests that configure it, with room for its entries.
    pub(super) builder: Builder,
    pub(super) spec: KeySpec,
}

#[derive(Debug)]
pub(crate) struct KeyInner {
    pub(crate) pd: Arc<PdInner>,
    offload: Offload,
    raw: NonNull<mlx5dv_mkey>,
    covered: Mutex<Covered>,
}

/// What it may stand for: the last configuration that is known to be carried out, and those after
/// it.
#[derive(Debug, Default)]
struct Covered {
    layouts: VecDeque<(u64, KeyLayout)>,
    /// Configurations posted so far.
    posted: u64,
}

// SAFETY: the device's object may be used by any thread, and `covered` is behind a mutex.
unsafe impl Send for KeyInner {}
// SAFETY: of what shared references do, checks are made one at a time, under `covered`; the rest
// reads what isn't written after the key was made.
unsafe impl Sync for KeyInner {}

/// Which part of a block's protection information is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The guard, or the CRC.
    Guard,
    /// T10-DIF's application tag.
    AppTag,
    /// T10-DIF's reference tag.
    RefTag,
}

/// The first block that was found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFault {
    /// Which part.
    pub part: Part,
    /// What the block carries.
    pub expected: u64,
    /// What its data, or the key's configuration, give.
    pub actual: u64,
    /// Where the block starts in the transfer, bytes as they came in, protection information
    /// included.
    pub offset: u64,
}

/// The same in few words, of a transfer that was posted in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{part:?} of the block at {offset} is wrong")]
pub struct BadBlock {
    /// What is wrong with it.
    pub part: Part,
    /// Where it starts in the transfer, bytes as they came in, protection information included.
    pub offset: u32,
}

/// A range of a key's data, for a work request to read from or write to. Keeps the key.
#[derive(Clone, Debug)]
pub struct KeyRange {
    key: Arc<KeyInner>,
    offset: u32,
    len: u32,
}

impl ProtectionDomain {
    /// A key that stands for nothing yet. On devices without signature offload [`Lacking`], which
    /// is `EOPNOTSUPP`.
    pub fn create_signature_key(&self, spec: &KeySpec) -> Result<SignatureKey, SignatureError> {
        let pd = &self.inner;
        let offload = pd.context.offload()?;
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let create_flags = mkey_init_attr_flags::INDIRECT
            | flag(spec.signs_blocks, mkey_init_attr_flags::BLOCK_SIGNATURE)
            | flag(spec.remote_invalidate, mkey_init_attr_flags::REMOTE_INVALIDATE);
        let max_entries = spec.max_entries.max(1);
        let mut attr = mlx5dv_mkey_init_attr { pd: pd.as_ptr(), create_flags, max_entries };
        // SAFETY: the PD is alive, and the key keeps it.
        let raw = NonNull::new(unsafe { offload.create_mkey(&mut attr) });
        let object = || format!("{max_entries} entries on {}", pd.describe());
        let raw = raw.ok_or_else(|| VerbError::last("mlx5dv_create_mkey", object))?;
        let inner = KeyInner { pd: pd.clone(), offload, raw, covered: Mutex::default() };
        let builder = Builder::new(offload, max_entries);
        Ok(SignatureKey { inner: Arc::new(inner), builder, spec: KeySpec { max_entries, ..*spec } })
    }
}

impl SignatureKey {
    /// Its number on this side.
    pub(crate) fn lkey(&self) -> u32 {
        self.inner.lkey()
    }

    /// A range of its data for a work request. With a block signature offset and length count data,
    /// without protection information, in whole blocks. What is outside is the device's to refuse,
    /// when the work request is carried out.
    pub fn range(&self, offset: u32, len: u32) -> KeyRange {
        KeyRange { key: self.inner.clone(), offset, len }
    }

    /// What to tell a peer that is to reach the bytes from `offset` on: with a block signature, of
    /// what it is on the wire, protection information included, in whole blocks.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: offset, rkey: self.inner.rkey() }
    }

    /// What was wrong first since the key was configured, or last checked; checking clears it.
    /// Faults of work requests are there once their completion queue was polled. A key whose fault
    /// was told is refused until it is configured again.
    pub fn check(&self) -> Result<Option<BlockFault>, SignatureError> {
        if !self.spec.signs_blocks {
            return Err(SignatureError::SignsNothing(self.lkey()));
        }
        let mut error = mlx5dv_mkey_err::default();
        let checking = self.inner.covered();
        // SAFETY: the key is alive, and the error may be written.
        let ret = unsafe { self.inner.offload.mkey_check(self.inner.as_ptr(), &mut error) };
        drop(checking);
        VerbError::check("mlx5dv_mkey_check", ret, || format!("key {:#x}", self.lkey()))?;
        let part = match error.err_type {
            mkey_err_type::NO_ERR => return Ok(None),
            mkey_err_type::BAD_APPTAG => Part::AppTag,
            mkey_err_type::BAD_REFTAG => Part::RefTag,
            _ => Part::Guard,
        };
        let sig = error.sig;
        Ok(Some(BlockFault { part, expected: sig.expected_value, actual: sig.actual_value, offset: sig.offset }))
    }
}

impl KeyInner {
    pub(crate) fn as_ptr(&self) -> *mut mlx5dv_mkey {
        self.raw.as_ptr()
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: alive, and not written after it was made.
        unsafe { (*self.as_ptr()).lkey }
    }

    fn rkey(&self) -> u32 {
        // SAFETY: alive, and not written after it was made.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// A configuration was posted; `layout` is its. Gives its number.
    pub(super) fn posted(&self, layout: Option<KeyLayout>) -> u64 {
        let mut covered = self.covered();
        covered.posted += 1;
        let number = covered.posted;
        covered.layouts.extend(layout.map(|layout| (number, layout)));
        number
    }

    /// That configuration was carried out: if it `replaces` what was there, layouts of earlier ones
    /// are let go of. Gives one of them, to be used again.
    pub(super) fn carried_out(&self, number: u64, replaces: bool) -> Option<KeyLayout> {
        if !replaces {
            return None;
        }
        let mut last = None;
        // A layout may be the last that holds a region, whose deregistration waits for transfers
        // of other threads: so each is let go of while the lock is free.
        while let Some(layout) = self.earlier(number) {
            last = Some(layout);
        }
        last
    }

    /// Takes out the layout of the first configuration, if that was posted before this one.
    fn earlier(&self, number: u64) -> Option<KeyLayout> {
        let mut covered = self.covered();
        let first = covered.layouts.pop_front_if(|(earlier, _)| *earlier < number);
        first.map(|(_, layout)| layout)
    }

    fn covered(&self) -> MutexGuard<'_, Covered> {
        // Every change is one push or one pop: a panic leaves nothing half done.
        self.covered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyInner {
    fn drop(&mut self) {
        // SAFETY: made by the same device; work requests that name it hold the Arc of it.
        let ret = unsafe { self.offload.destroy_mkey(self.as_ptr()) };
        if let Some(errno) = self.pd.context.undestroyed(ret) {
            tracing::warn!(pd = %self.pd.describe(), %errno, "the signature key would not go");
        }
    }
}

impl KeyRange {
    /// Bytes of data.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn pd_id(&self) -> u64 {
        self.key.pd.id
    }

    pub(crate) fn sge(&self) -> ibv_sge {
        ibv_sge { addr: self.offset.into(), length: self.len, lkey: self.key.lkey() }
    }
}
