//! Indirect keys: one key for a layout of others, where block signatures are checked.
//!
//! Guarantees: the key table has them as ranges of no bytes, so every look-up of the fast paths
//! refuses them, and the slow paths come here. A layout's parts are looked up at each use: a
//! deregistered region is out of reach. A configuration doesn't change while a transfer uses it; a
//! new one applies to transfers that begin later (`verbline_sync::versions`). Configuring allocates
//! only if transfers hold all existing versions: then one more.

use crate::key_table::{self, Grant, INDIRECT};
use crate::objects::Object;
use crate::objects::guards::{Pinned, Taken, quiesce};
use crate::objects::pd::Pd;
use crate::signature::configuration::{Configuration, NewSignature};
use crate::signature::domain::BlockSignature;
use crate::signature::flow::{BadBlock, Part};
use crate::signature::layout::Layout;
use crate::signature::types::{mkey_err_type, mkey_init_attr_flags, mlx5dv_mkey, mlx5dv_mkey_err, mlx5dv_sig_err};
use std::ffi::c_int;
use std::ptr::NonNull;
use verbline_sync::lock::SpinLock;
use verbline_sync::versions::{Version, Versions};

/// `mlx5dv_mkey` first, so that a pointer to one is a pointer to the other.
#[repr(C)]
pub(crate) struct Mkey {
    raw: mlx5dv_mkey,
    pub(crate) pd: u32,
    domain: NonNull<Pd>,
    flags: u32,
    pub(crate) max_entries: usize,
    config: Versions<Config>,
    judged: SpinLock<Judged>,
}

// SAFETY: `raw` is the first field of a `repr(C)` struct.
unsafe impl Object for Mkey {
    type Raw = mlx5dv_mkey;
}

/// The current configuration.
#[derive(Debug)]
pub(crate) struct Config {
    /// The number of configurations so far.
    number: u64,
    /// Whether it was configured with a layout, and not invalidated since.
    is_configured: bool,
    /// `ibv_access_flags`.
    pub(crate) access: u32,
    pub(crate) layout: Layout,
    pub(crate) signature: Option<BlockSignature>,
}

/// The fault of the data that moved through the key, and the number of the configuration then in
/// use.
#[derive(Debug, Default)]
struct Judged {
    number: u64,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, Default)]
enum Verdict {
    #[default]
    Clear,
    /// Not recorded yet.
    Found(mlx5dv_mkey_err),
    /// For `mlx5dv_mkey_check(3)`.
    Recorded(mlx5dv_mkey_err),
    /// Reported: the key must be configured again.
    Spent,
}

/// The key can't be used this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unusable;

/// A configuration in use by a transfer: it doesn't change meanwhile, and nobody waits for it.
pub(crate) struct InUse<'p> {
    pub(crate) key: &'p Mkey,
    pub(crate) config: Version<'p, Config>,
}

/// `mlx5dv_create_mkey(3)`.
pub(crate) fn create(domain: &Pd, flags: u32, max_entries: u16) -> Result<*mut mlx5dv_mkey, c_int> {
    let key = key_table::reserve().ok_or(libc::ENOMEM)?;
    domain.adopt();
    let max_entries = usize::from(max_entries.max(1));
    let mkey = Mkey {
        raw: mlx5dv_mkey { lkey: key, rkey: key },
        pd: domain.id,
        domain: NonNull::from(domain),
        flags,
        max_entries,
        config: Versions::new(|| Config::with_room(max_entries)),
        judged: SpinLock::default(),
    }
    .into_raw();
    let offset = mkey as u64;
    key_table::set(key, &Grant { pd: domain.id, access: INDIRECT, start: 0, len: 0, offset, qpn: 0, parent: 0 });
    Ok(mkey)
}

/// `mlx5dv_destroy_mkey(3)`, up to freeing it.
pub(crate) fn retire(mkey: &Mkey) {
    key_table::clear(mkey.raw.lkey);
    // After this, threads that looked the key up before are done with it.
    quiesce(Taken::Key(mkey.raw.lkey));
    key_table::release(mkey.raw.lkey);
    // SAFETY: the domain counts the key and outlives it: `pd::retire` refuses while it has keys.
    unsafe { mkey.domain.as_ref() }.release();
}

/// The indirect key of that number, if there is one.
pub(crate) fn lookup(_pinned: Pinned<'_>, key: u32) -> Option<&Mkey> {
    let grant = key_table::grant(key).filter(|grant| grant.access & INDIRECT != 0)?;
    // SAFETY: before it is freed, `retire` clears the key and waits for all pinned threads.
    Some(unsafe { Mkey::from_raw(grant.offset as *mut mlx5dv_mkey) })
}

impl Config {
    fn with_room(entries: usize) -> Config {
        let layout = Layout::with_capacity(entries);
        Config { number: 0, is_configured: false, access: 0, layout, signature: None }
    }
}

impl Judged {
    /// Whether the fault was reported, and the key not configured since.
    fn is_spent(&self, config: &Config) -> bool {
        self.number == config.number && matches!(self.verdict, Verdict::Spent)
    }
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

    /// Returns the configuration, for a transfer that needs these rights.
    pub(crate) fn in_use(&self, need: u32) -> Result<InUse<'_>, Unusable> {
        let config = self.config.hold();
        let usable = config.is_configured && config.access & need == need;
        if !usable || self.judged.lock().is_spent(&config) {
            return Err(Unusable);
        }
        Ok(InUse { key: self, config })
    }

    /// Carries out a configuration whose layout has room here. Transfers in progress keep the
    /// earlier configuration.
    pub(crate) fn configure(&self, new: &Configuration<'_>) {
        self.replace(|before, after| {
            after.access = new.access.unwrap_or(before.access);
            match new.layout {
                Some(layout) => after.layout.set(layout.repeat, layout.entries()),
                None => after.layout.copy_from(&before.layout),
            }
            after.is_configured = before.is_configured || new.layout.is_some();
            after.signature = match new.signature {
                NewSignature::Kept => before.signature,
                NewSignature::Reset => None,
                NewSignature::Set(signature) => signature,
            };
        });
    }

    /// Makes it stand for nothing until it is configured again. A transfer in progress continues,
    /// as with a window: it stays inside regions that are registered.
    pub(crate) fn invalidate(&self) {
        self.replace(|_, after| {
            (after.is_configured, after.access, after.signature) = (false, 0, None);
            after.layout.set(0, std::iter::empty());
        });
    }

    fn replace(&self, mut change: impl FnMut(&Config, &mut Config)) {
        let another = || Config::with_room(self.max_entries);
        self.config.replace(another, |before, after| {
            change(before, after);
            after.number = before.number + 1;
        });
    }

    /// Notes a fault found by a transfer with `config`. Returns true if it is to be
    /// [`record`](Self::record)ed: it is the first, and the key was not configured since.
    pub(crate) fn found(&self, config: &Config, fault: BadBlock, offset: u64) -> bool {
        let mut judged = self.judged.lock();
        let first = judged.number < config.number
            || (judged.number == config.number && matches!(judged.verdict, Verdict::Clear));
        if first {
            let err_type = match fault.part {
                Part::Guard => mkey_err_type::BAD_GUARD,
                Part::AppTag => mkey_err_type::BAD_APPTAG,
                Part::RefTag => mkey_err_type::BAD_REFTAG,
            };
            let sig = mlx5dv_sig_err { actual_value: fault.actual, expected_value: fault.expected, offset };
            *judged = Judged { number: config.number, verdict: Verdict::Found(mlx5dv_mkey_err { err_type, sig }) };
        }
        first
    }

    /// Makes the fault visible to [`check`](Self::check).
    pub(crate) fn record(&self) {
        let mut judged = self.judged.lock();
        if let Verdict::Found(error) = judged.verdict {
            judged.verdict = Verdict::Recorded(error);
        }
    }

    /// `mlx5dv_mkey_check(3)`.
    pub(crate) fn check(&self) -> Result<mlx5dv_mkey_err, c_int> {
        if !self.has_signature() {
            return Err(libc::EINVAL);
        }
        let number = self.config.hold().number;
        let mut judged = self.judged.lock();
        match judged.verdict {
            Verdict::Recorded(error) if judged.number == number => {
                judged.verdict = Verdict::Spent;
                Ok(error)
            }
            _ => Ok(mlx5dv_mkey_err::default()),
        }
    }
}
