//! Indirect keys: one key for a layout of others, and the place where a block signature is checked.
//!
//! What it guarantees: the key table knows them as ranges of no bytes, so that every look-up of the
//! fast paths refuses them, and the slow ones come here. A layout's parts are looked up at each
//! use: a region that was deregistered is out of reach. A configuration doesn't change while a
//! transfer uses it.

use crate::mlx5dv::types::{mkey_err_type, mkey_init_attr_flags, mlx5dv_mkey, mlx5dv_mkey_err, mlx5dv_sig_err};
use crate::objects::Object;
use crate::objects::guards::{Pinned, quiesce};
use crate::objects::key_table::{self, Grant, INDIRECT};
use crate::objects::layout::Layout;
use crate::objects::pd::Pd;
use crate::queues::configuration::{Configuration, NewSignature};
use crate::signature::domain::BlockSignature;
use crate::signature::flow::{Fault, Part};
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use verbline_sync::lock::SpinLock;

/// `mlx5dv_mkey` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Mkey {
    raw: mlx5dv_mkey,
    pub(crate) pd: u32,
    domain: NonNull<Pd>,
    flags: u32,
    pub(crate) max_entries: usize,
    config: RwLock<Config>,
    verdict: SpinLock<Verdict>,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Mkey {
    type Raw = mlx5dv_mkey;
}

/// What it stands for now.
#[derive(Debug)]
pub(crate) struct Config {
    /// Whether it was configured with a layout, and not invalidated since.
    is_configured: bool,
    /// `ibv_access_flags`.
    pub(crate) access: u32,
    pub(crate) layout: Layout,
    pub(crate) signature: Option<BlockSignature>,
}

/// What was found wrong with what moved through it.
#[derive(Clone, Copy, Debug, Default)]
enum Verdict {
    #[default]
    Clear,
    /// Not said yet.
    Found(mlx5dv_mkey_err),
    /// For `mlx5dv_mkey_check(3)`.
    Recorded(mlx5dv_mkey_err),
    /// It was said: the key must be configured again.
    Spent,
}

/// The key can't be used so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unusable;

/// A configuration that a transfer uses: it doesn't change meanwhile.
pub(crate) struct InUse<'p> {
    pub(crate) key: &'p Mkey,
    pub(crate) config: RwLockReadGuard<'p, Config>,
}

/// `mlx5dv_create_mkey(3)`.
pub(crate) fn create(domain: &Pd, flags: u32, max_entries: u16) -> Result<*mut mlx5dv_mkey, c_int> {
    let key = key_table::reserve().ok_or(libc::ENOMEM)?;
    domain.adopt();
    let max_entries = usize::from(max_entries.max(1));
    let config =
        Config { is_configured: false, access: 0, layout: Layout::with_capacity(max_entries), signature: None };
    let mkey = Mkey {
        raw: mlx5dv_mkey { lkey: key, rkey: key },
        pd: domain.id,
        domain: NonNull::from(domain),
        flags,
        max_entries,
        config: RwLock::new(config),
        verdict: SpinLock::default(),
    }
    .into_raw();
    let offset = mkey as u64;
    key_table::set(key, &Grant { pd: domain.id, access: INDIRECT, start: 0, len: 0, offset, qpn: 0, parent: 0 });
    Ok(mkey)
}

/// `mlx5dv_destroy_mkey(3)`, up to freeing it.
pub(crate) fn retire(mkey: &Mkey) {
    key_table::clear(mkey.raw.lkey);
    // Whoever looked the key up before is done with it after this.
    quiesce();
    key_table::release(mkey.raw.lkey);
    // SAFETY: the domain outlives the key, which it counts: `pd::retire` refuses while there are
    // any.
    unsafe { mkey.domain.as_ref() }.release();
}

/// The indirect key of that number, if there is one.
pub(crate) fn lookup(_pinned: Pinned<'_>, key: u32) -> Option<&Mkey> {
    let grant = key_table::grant(key).filter(|grant| grant.access & INDIRECT != 0)?;
    // SAFETY: whoever frees it clears the key and waits for all who are pinned (`retire`).
    Some(unsafe { Mkey::from_raw(grant.offset as *mut mlx5dv_mkey) })
}

impl Mkey {
    pub(crate) fn has_signature(&self) -> bool {
        self.flags & mkey_init_attr_flags::BLOCK_SIGNATURE != 0
    }

    pub(crate) fn is_remotely_invalidated(&self) -> bool {
        self.flags & mkey_init_attr_flags::REMOTE_INVALIDATE != 0
    }

    pub(crate) fn number(&self) -> u32 {
        self.raw.lkey
    }

    /// For a transfer that needs these rights of it.
    pub(crate) fn in_use(&self, need: u32) -> Result<InUse<'_>, Unusable> {
        let config = self.read();
        let usable = config.is_configured && config.access & need == need;
        if !usable || matches!(*self.verdict.lock(), Verdict::Spent) {
            return Err(Unusable);
        }
        Ok(InUse { key: self, config })
    }

    /// Carries a configuration out, whose layout has room here.
    pub(crate) fn configure(&self, new: &Configuration<'_>) {
        let mut config = self.write();
        if let Some(access) = new.access {
            config.access = access;
        }
        if let Some(layout) = new.layout {
            config.layout.set(layout.repeat, layout.entries());
            config.is_configured = true;
        }
        match new.signature {
            NewSignature::Kept => {}
            NewSignature::Reset => config.signature = None,
            NewSignature::Set(signature) => config.signature = signature,
        }
        *self.verdict.lock() = Verdict::Clear;
    }

    /// It stands for nothing until it is configured again.
    pub(crate) fn invalidate(&self) {
        let mut config = self.write();
        (config.is_configured, config.access, config.signature) = (false, 0, None);
        config.layout.set(0, std::iter::empty());
        *self.verdict.lock() = Verdict::Clear;
    }

    /// A transfer found this wrong. True if it is to be [`record`](Self::record)ed: nothing was
    /// before.
    pub(crate) fn found(&self, fault: Fault, offset: u64) -> bool {
        let mut verdict = self.verdict.lock();
        let first = matches!(*verdict, Verdict::Clear);
        if first {
            let err_type = match fault.part {
                Part::Guard => mkey_err_type::BAD_GUARD,
                Part::AppTag => mkey_err_type::BAD_APPTAG,
                Part::RefTag => mkey_err_type::BAD_REFTAG,
            };
            let sig = mlx5dv_sig_err { actual_value: fault.actual, expected_value: fault.expected, offset };
            *verdict = Verdict::Found(mlx5dv_mkey_err { err_type, sig });
        }
        first
    }

    /// What was found is there for [`check`](Self::check).
    pub(crate) fn record(&self) {
        let mut verdict = self.verdict.lock();
        if let Verdict::Found(error) = *verdict {
            *verdict = Verdict::Recorded(error);
        }
    }

    /// `mlx5dv_mkey_check(3)`.
    pub(crate) fn check(&self) -> Result<mlx5dv_mkey_err, c_int> {
        if !self.has_signature() {
            return Err(libc::EINVAL);
        }
        let mut verdict = self.verdict.lock();
        match *verdict {
            Verdict::Recorded(error) => {
                *verdict = Verdict::Spent;
                Ok(error)
            }
            _ => Ok(mlx5dv_mkey_err::default()),
        }
    }

    /// Nobody ever blocks on the lock, so that one thread may read twice (both ends of a transfer
    /// may be the same key): readers are copying, writers write some words.
    fn read(&self) -> RwLockReadGuard<'_, Config> {
        loop {
            match self.config.try_read() {
                Ok(config) => return config,
                // Nothing half done is left by a panic: there is none.
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Config> {
        loop {
            match self.config.try_write() {
                Ok(config) => return config,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}
