//! Signature keys: created, named in work requests, and checked.

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

/// A QP's use of signature keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum QpSignature {
    /// It configures no keys, but may use them.
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

/// The parameters of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// The most entries of its layouts, at least 1.
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

/// Why a key could not be created or checked.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// The device does not support such keys.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// The device refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The key was created without signature support, so it has no faults to report.
    #[error("key {0:#x} was made without KeySpec::signs_blocks, so that nothing is checked through it")]
    SignsNothing(u32),
}

/// A key for a layout of parts of regions. Destroyed when the key and every work request that names
/// it are gone.
#[derive(Debug)]
pub struct SignatureKey {
    pub(crate) inner: Arc<KeyInner>,
    /// Builds the work requests that configure the key, with space for its entries.
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

/// The key's possible layouts: the last configuration known to be carried out, and later ones.
#[derive(Debug, Default)]
struct Covered {
    layouts: VecDeque<(u64, KeyLayout)>,
    /// Configurations posted so far.
    posted: u64,
}

// SAFETY: the device's object may be used by any thread, and `covered` is behind a mutex.
unsafe impl Send for KeyInner {}
// SAFETY: through shared references, checks are made one at a time, under `covered`; everything
// else only reads fields that are not written after the key was created.
unsafe impl Sync for KeyInner {}

/// A part of a block's protection information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The guard, or the CRC.
    Guard,
    /// T10-DIF's application tag.
    AppTag,
    /// T10-DIF's reference tag.
    RefTag,
}

/// The first bad block found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFault {
    /// The bad part.
    pub part: Part,
    /// The value that the block carries.
    pub expected: u64,
    /// The value computed from the block's data, or set by the key's configuration.
    pub actual: u64,
    /// The start of the block in the transfer, in incoming bytes, protection information included.
    pub offset: u64,
}

/// A shorter form of [`BlockFault`], for a transfer posted in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{part:?} of the block at {offset} is wrong")]
pub struct BadBlock {
    /// The bad part.
    pub part: Part,
    /// The start of the block in the transfer, in incoming bytes, protection information included.
    pub offset: u32,
}

/// A range of a key's data, for a work request to read from or write to. Keeps the key alive.
#[derive(Clone, Debug)]
pub struct KeyRange {
    key: Arc<KeyInner>,
    offset: u32,
    len: u32,
}

impl ProtectionDomain {
    /// Creates a key without a layout. On devices without signature offload it fails with
    /// [`Lacking`], which is `EOPNOTSUPP`.
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
    /// The key's local number.
    pub(crate) fn lkey(&self) -> u32 {
        self.inner.lkey()
    }

    /// A range of the key's data for a work request. With a block signature, offset and length
    /// count data, without protection information, in whole blocks. The device refuses a range
    /// outside the layout when the work request is carried out.
    pub fn range(&self, offset: u32, len: u32) -> KeyRange {
        KeyRange { key: self.inner.clone(), offset, len }
    }

    /// The address and key for a peer to reach the bytes from `offset` on. With a block signature,
    /// the offset counts bytes on the wire, protection information included, in whole blocks.
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: offset, rkey: self.inner.rkey() }
    }

    /// Returns the first fault since the key was configured, or last checked; checking clears it.
    /// Faults of work requests appear once their completion queue was polled. A key with a reported
    /// fault is refused until it is configured again.
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

    /// Records a posted configuration with its layout. Returns its number.
    pub(super) fn posted(&self, layout: Option<KeyLayout>) -> u64 {
        let mut covered = self.covered();
        covered.posted += 1;
        let number = covered.posted;
        covered.layouts.extend(layout.map(|layout| (number, layout)));
        number
    }

    /// Called when a configuration was carried out. If it `replaces` earlier layouts, they are
    /// dropped; returns one of them, to be used again.
    pub(super) fn carried_out(&self, number: u64, replaces: bool) -> Option<KeyLayout> {
        if !replaces {
            return None;
        }
        let mut last = None;
        // A layout may be the last holder of a region, whose deregistration waits for transfers of
        // other threads: so each is dropped without the lock.
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
        // Every change is one push or one pop: a panic leaves no inconsistent state.
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
    /// The data's length, bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the range is empty.
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
