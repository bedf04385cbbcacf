//! Memory registration: the memory that a device may reach, and its reasons for refusing more.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{BitOr, BitOrAssign};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_access_flags, ibv_mr, ibv_rereg_mr_err_code, ibv_rereg_mr_flags};
use verbline_mem::{MrBinding, Pool, PoolError};

use crate::device::capability::{Capability, Lacking};
use crate::device::context::Context;
use crate::device::provider::{Provider, verb};
use crate::errno::{Errno, VerbError};
use crate::memory::pd::PdInner;
use crate::memory::pd::ProtectionDomain;

/// Why memory could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum MrError {
    /// The device or the kernel refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The pool has an MR already.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The device lacks this kind of memory.
    #[error(transparent)]
    Lacking(#[from] Lacking),
    /// The registration is shared.
    #[error("{shared_by} clones, slices, windows or posted work requests share this MR; change it when they are gone")]
    Shared {
        /// The number of other users.
        shared_by: usize,
    },
    /// The PD belongs to another device.
    #[error("the PD belongs to {theirs}, the registration to {ours}; a registration stays on its device")]
    Foreign {
        /// The PD's device.
        theirs: String,
        /// The registration's device.
        ours: String,
    },
    /// The specification requires local write wherever a peer may write (ibv_reg_mr(3)).
    #[error(
        "access {access:?} lets a peer write but not the local device; add Access::LOCAL_WRITE (ibv_reg_mr(3) wants it)"
    )]
    NeedsLocalWrite {
        /// The requested access.
        access: Access,
    },
}

/// Permitted access to registered memory (`enum ibv_access_flags`). Reading it locally is always
/// allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Access(u32);

impl ProtectionDomain {
    /// Registers a pool's whole region for local access (receives may write it, sends read it; no
    /// peer ever reaches it).
    ///
    /// A pool has one MR for its life: registering it again, here or elsewhere, is refused. The MR
    /// is deregistered when the pool is dropped, and keeps this PD and the context open until then.
    pub fn register_pool(&self, pool: &Pool) -> Result<(), MrError> {
        self.register_pool_with(pool, MrOptions::default())
    }

    /// Like [`ProtectionDomain::register_pool`], with options.
    pub fn register_pool_with(&self, pool: &Pool, options: MrOptions) -> Result<(), MrError> {
        let (pd, region) = (&self.inner, pool.region());
        let (addr, len, access) = (region.as_ptr(), region.len_bytes(), Access::LOCAL_WRITE);
        // SAFETY: the pool drops `keep` before it unmaps the region, and leaks it with the region.
        // No peer may reach the memory; the local device writes it only for posted receives and
        // READs, whose packets are in a slot meanwhile.
        let mr = unsafe { MrInner::register(pd, addr, len, access, options, pool.name())? };
        let lkey = mr.lkey();
        pool.attach_mr(MrBinding { pd_id: pd.id, lkey, keep: Box::new(mr) })?;
        Ok(())
    }
}

impl Access {
    /// Local read only.
    pub const NONE: Access = Access(0);
    /// The local device may write: receives, results of READs and atomics.
    pub const LOCAL_WRITE: Access = Access(ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0);
    /// Peers may RDMA WRITE.
    pub const REMOTE_WRITE: Access = Access(ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0);
    /// Peers may RDMA READ.
    pub const REMOTE_READ: Access = Access(ibv_access_flags::IBV_ACCESS_REMOTE_READ.0);
    /// Peers may CAS and FAA.
    pub const REMOTE_ATOMIC: Access = Access(ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0);
    /// Memory windows may be bound to it.
    pub const MW_BIND: Access = Access(ibv_access_flags::IBV_ACCESS_MW_BIND.0);

    /// Whether it includes all of `other`.
    pub fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Access {
        Access(bits)
    }

    fn peer_may_write(self) -> bool {
        self.contains(Access::REMOTE_WRITE) || self.contains(Access::REMOTE_ATOMIC)
    }

    pub(crate) fn check(self) -> Result<(), MrError> {
        if self.peer_may_write() && !self.contains(Access::LOCAL_WRITE) {
            return Err(MrError::NeedsLocalWrite { access: self });
        }
        Ok(())
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl BitOrAssign for Access {
    fn bitor_assign(&mut self, other: Access) {
        self.0 |= other.0;
    }
}

/// Options of a registration, all off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrOptions {
    /// Lets the PCIe bus reorder the device's writes (IBV_ACCESS_RELAXED_ORDERING): more bandwidth
    /// on some machines. A completion still orders the writes that it covers; memory that is polled
    /// without a completion must not use this option. A device that does not know it ignores it.
    pub relaxed_ordering: bool,
    /// Leaves the memory unpinned, and lets the device fault in the pages it touches
    /// (IBV_ACCESS_ON_DEMAND): no locked memory is used up, and the first access to a page costs a
    /// fault, tens of microseconds. Refused if [`crate::attr::DeviceAttr::on_demand`] says that it
    /// is not supported; that attribute also lists each transport's operations on such memory.
    pub on_demand: bool,
}

impl MrOptions {
    /// The options as bits beside an [`Access`].
    fn bits(self) -> u32 {
        let bit = |wanted, flag: ibv_access_flags| if wanted { flag.0 } else { 0 };
        bit(self.relaxed_ordering, ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING)
            | bit(self.on_demand, ibv_access_flags::IBV_ACCESS_ON_DEMAND)
    }

    fn check(self, pd: &PdInner) -> Result<(), MrError> {
        if self.on_demand {
            let context = Context { inner: pd.context.clone() };
            Capability::OnDemand.check(context.name(), &context.query_device()?)?;
        }
        Ok(())
    }
}

/// A registration. Deregistered when dropped.
#[derive(Debug)]
pub(crate) struct MrInner {
    pd: Arc<PdInner>,
    raw: NonNull<ibv_mr>,
    name: String,
    options: MrOptions,
}

/// The property that a re-registration changes.
pub(crate) enum Change<'a> {
    /// The permitted access.
    Access(Access),
    /// The PD, on the same device.
    Pd(&'a Arc<PdInner>),
    /// The memory: its start, and its length in bytes.
    Memory(*mut u8, usize),
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Access(access) => write!(f, "to {access:?}"),
            Change::Pd(pd) => write!(f, "to {}", pd.describe()),
            Change::Memory(_, len) => write!(f, "to other memory of {len} bytes"),
        }
    }
}

/// A re-registration that failed.
pub(crate) struct NotChanged {
    pub(crate) error: VerbError,
    /// Whether the registration is unchanged. If not, its state is uncertain, and it may only be
    /// dropped.
    pub(crate) as_before: bool,
}

// SAFETY: an ibv_mr is not written after registration (re-registration takes `&mut`), and the verbs
// on it may be called from any thread.
unsafe impl Send for MrInner {}
// SAFETY: threads that share the region read an ibv_mr that nobody writes meanwhile.
unsafe impl Sync for MrInner {}

impl MrInner {
    /// Registers `len` bytes at `addr`.
    ///
    /// # Safety
    /// The memory stays mapped until the returned value is dropped (or leaked), and other code that
    /// reads or writes it allows for the device's accesses under `access`.
    pub(crate) unsafe fn register(
        pd: &Arc<PdInner>,
        addr: *mut u8,
        len: usize,
        access: Access,
        options: MrOptions,
        name: &str,
    ) -> Result<MrInner, MrError> {
        access.check()?;
        options.check(pd)?;
        // SAFETY: the PD is alive; the memory is by this function's contract.
        let raw = unsafe { reg_mr(pd, addr, len, access, options) };
        let raw = NonNull::new(raw).ok_or_else(|| register_error(pd, name, len, Errno::last()))?;
        Ok(MrInner { pd: pd.clone(), raw, name: name.to_owned(), options })
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the MR is alive, and re-registration, which writes it, takes `&mut`.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: the MR is alive, and re-registration, which writes it, takes `&mut`.
        unsafe { (*self.raw.as_ptr()).rkey }
    }

    pub(crate) fn pd(&self) -> &Arc<PdInner> {
        &self.pd
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }

    /// Drops the registration and returns whether the device has released the memory.
    pub(crate) fn deregister(self) -> bool {
        let mut this = ManuallyDrop::new(self);
        let gone = this.end();
        // SAFETY: both are taken once; the rest of `this` needs no drop, and it is not dropped.
        unsafe {
            drop(ptr::read(&raw mut this.pd));
            drop(ptr::read(&raw mut this.name));
        }
        gone
    }

    /// Re-registers: changes one property in place. The keys may change.
    ///
    /// # Safety
    /// No work request that uses the registration is under way, and the memory's other users allow
    /// for the new access. New memory stays mapped until the registration is gone or changed again,
    /// unless the error says that the registration is unchanged. The old memory is out of the
    /// device's reach only after success.
    pub(crate) unsafe fn change(&mut self, change: Change<'_>) -> Result<(), NotChanged> {
        let none = (ptr::null_mut(), ptr::null_mut(), 0, 0);
        // Unchanged properties must be null or 0 (ibv_rereg_mr(3)).
        let (flag, (pd, addr, len, bits)) = match &change {
            Change::Access(access) => {
                let bits = access.bits() | self.options.bits();
                (ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS, (none.0, none.1, none.2, bits.cast_signed()))
            }
            Change::Pd(pd) => (ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD, (pd.as_ptr(), none.1, none.2, none.3)),
            &Change::Memory(addr, len) => {
                (ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION, (none.0, addr.cast(), len, none.3))
            }
        };
        let flags = flag.0.cast_signed();
        // SAFETY: MR and PDs are alive; the memory is by this function's contract.
        let ret = unsafe { verb!(self.pd.provider(), ibv_rereg_mr(self.as_ptr(), flags, pd, addr, len, bits)) };
        // The value is one of IBV_REREG_MR_ERR_*, the reason is in errno (ibv_rereg_mr(3)).
        let errno = Errno::last();
        let Some(as_before) = is_as_before(ret, errno) else {
            if ret != 0 {
                tracing::warn!(mr = %self.name, %errno, "changed, but its old memory stays out of forked children");
            }
            if let Change::Pd(pd) = change {
                self.pd = pd.clone();
            }
            return Ok(());
        };
        let error = VerbError::new("ibv_rereg_mr", format!("{:?} {change}", self.name), errno);
        Err(match as_before {
            true => NotChanged { error, as_before },
            false => {
                let advice = "the registration may be unusable now: drop it and register again";
                NotChanged { error: error.advise(advice), as_before }
            }
        })
    }

    /// Deregisters; false when the device refuses.
    fn end(&mut self) -> bool {
        // SAFETY: registered by the same provider; `drop` and `deregister`, the callers, end the
        // value's life.
        let ret = unsafe { verb!(self.pd.provider(), ibv_dereg_mr(self.as_ptr())) };
        let Some(errno) = self.pd.context.undestroyed(ret) else { return true };
        tracing::warn!(mr = %self.name, pd = %self.pd.describe(), %errno, "the MR would not be deregistered");
        false
    }
}

impl Drop for MrInner {
    fn drop(&mut self) {
        self.end();
    }
}

/// # Safety
/// The contract of [`MrInner::register`].
unsafe fn reg_mr(pd: &PdInner, addr: *mut u8, len: usize, access: Access, options: MrOptions) -> *mut ibv_mr {
    let bits = access.bits() | options.bits();
    match pd.provider() {
        // ibv_reg_mr proper refuses the optional flags; verbs.h's macro picks this function for
        // them.
        Provider::Kernel if options.relaxed_ordering => {
            // SAFETY: by `register`'s contract the bytes stay allocated meanwhile.
            unsafe { rdma_sys::ibv_reg_mr_iova2(pd.as_ptr(), addr.cast(), len, addr as u64, bits) }
        }
        provider => {
            // The flags fit: they are below 2^31.
            let bits = bits.cast_signed();
            // SAFETY: by `register`'s contract the bytes stay allocated meanwhile.
            unsafe { verb!(provider, ibv_reg_mr(pd.as_ptr(), addr.cast(), len, bits)) }
        }
    }
}

/// Reads the result of a re-registration: `None` when it is done, else whether the registration is
/// unchanged. The result is a value of `enum ibv_rereg_mr_err_code` (ibv_rereg_mr(3)).
fn is_as_before(ret: libc::c_int, errno: Errno) -> Option<bool> {
    match ret {
        // With the second value, only the fork behaviour of the old memory is wrong.
        0 | ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_DO_FORK_OLD => None,
        ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT | ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_DONT_FORK_NEW => {
            Some(true)
        }
        // A device that does not support re-registration has not begun.
        _ => Some(matches!(errno.raw(), libc::EOPNOTSUPP | libc::ENOSYS)),
    }
}

fn register_error(pd: &PdInner, name: &str, len: usize, errno: Errno) -> MrError {
    let error = VerbError::new("ibv_reg_mr", format!("{name:?} ({len} bytes, {})", pd.describe()), errno);
    match errno.raw() {
        // Pinning pages counts against RLIMIT_MEMLOCK: drivers say ENOMEM, some EPERM
        // (ibv_reg_mr(3)).
        libc::ENOMEM | libc::EPERM | libc::EAGAIN => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
            error.advise(memlock_advice(len, limit)).into()
        }
        _ => error.into(),
    }
}

fn memlock_advice(len: usize, limit: Option<u64>) -> String {
    let Some(limit) = limit else {
        return "locked memory is unlimited here, so that the machine or the device ran out of memory".to_owned();
    };
    format!(
        "locked memory is limited to {} KiB and this region alone needs {} KiB: run `ulimit -l unlimited` in the \
         shell that starts it (LimitMEMLOCK=infinity for a service, memlock in /etc/security/limits.conf for a login)",
        limit / 1024,
        len.div_ceil(1024)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memlock_refusal_gives_the_command_and_the_numbers() {
        let advice = memlock_advice(16 << 20, Some(8 << 20));
        assert!(advice.starts_with(
            "locked memory is limited to 8192 KiB and this region alone needs 16384 KiB: run `ulimit -l unlimited`"
        ));
        assert!(memlock_advice(1, None).contains("unlimited here"));
    }

    #[test]
    fn what_is_left_of_a_registration_is_told_by_code_and_errno() {
        let cases = [
            (0, 0, None),
            (-1, libc::EINVAL, Some(true)),
            (-2, libc::ENOMEM, Some(true)),
            (-3, libc::EINVAL, None),
            (-4, libc::EINVAL, Some(false)),
            (-4, libc::EOPNOTSUPP, Some(true)),
            (-5, libc::ENOMEM, Some(false)),
        ];
        for (ret, errno, left) in cases {
            assert_eq!(is_as_before(ret, Errno::new(errno)), left, "{ret} with {errno}");
        }
    }

    #[test]
    fn a_device_without_on_demand_paging_is_not_asked_for_it() {
        let context = crate::fake_device::soft_with(|table| table.query_device_ex = None);
        assert!(!context.query_device().unwrap().on_demand.supported, "only ibv_query_device_ex tells");
        let pool = crate::fake_device::unregistered_pool(1);
        let options = MrOptions { on_demand: true, ..MrOptions::default() };
        let error = context.alloc_pd().unwrap().register_pool_with(&pool, options).unwrap_err();
        let MrError::Lacking(lacking) = &error else { panic!("{error}") };
        assert!(lacking.to_string().starts_with("soft0 has no on-demand paging (IBV_ACCESS_ON_DEMAND): "), "{error}");
    }

    #[test]
    fn peers_that_write_need_local_write() {
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            assert!(access.check().is_err());
            assert!((access | Access::LOCAL_WRITE).check().is_ok());
        }
        assert!(Access::REMOTE_READ.check().is_ok());
    }
}
