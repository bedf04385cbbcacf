//! Memory registration: what a device may reach, and what it says when it may not.

use std::mem::ManuallyDrop;
use std::ops::{BitOr, BitOrAssign};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{ibv_access_flags, ibv_mr, ibv_rereg_mr_err_code, ibv_rereg_mr_flags};
use verbline_mem::{MrBinding, Pool, PoolError};

use crate::errno::{Errno, VerbError};
use crate::pd::PdInner;
use crate::provider::{Provider, verb};

/// Why memory could not be registered.
#[derive(Debug, thiserror::Error)]
pub enum MrError {
    /// The device or the kernel refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The pool refused: it has an MR already.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Others use the registration.
    #[error(
        "{shared_by} clones, slices, windows or posted work requests share this MR; it can be changed when they are gone"
    )]
    Shared {
        /// How many.
        shared_by: usize,
    },
    /// The specification wants local write wherever a peer may write (ibv_reg_mr(3)).
    #[error(
        "access {access:?} lets a peer write but not the local device; add Access::LOCAL_WRITE (ibv_reg_mr(3) demands it)"
    )]
    NeedsLocalWrite {
        /// What was asked.
        access: Access,
    },
}

/// What may be done with registered memory (`enum ibv_access_flags`). Reading it locally is always allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Access(u32);

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

    /// Whether it has all of `other`.
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

/// How to register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrOptions {
    /// Let the PCIe bus reorder the device's writes (IBV_ACCESS_RELAXED_ORDERING): more bandwidth on some machines. A
    /// completion still orders what it covers; memory that is polled without one must not ask for it. A device that does
    /// not know it ignores it.
    pub relaxed_ordering: bool,
}

/// A registration. Deregistered when dropped.
#[derive(Debug)]
pub(crate) struct MrInner {
    pd: Arc<PdInner>,
    raw: NonNull<ibv_mr>,
    name: String,
}

// SAFETY: an ibv_mr is not written after registration (re-registration takes `&mut`), and the verbs on it may be called
// from any thread.
unsafe impl Send for MrInner {}
// SAFETY: as above.
unsafe impl Sync for MrInner {}

impl MrInner {
    /// Registers `len` bytes at `addr`.
    ///
    /// # Safety
    /// The memory stays mapped until the returned value is dropped (or leaked), and whoever else reads or writes it does
    /// so knowing that the device may do what `access` allows.
    pub(crate) unsafe fn register(
        pd: &Arc<PdInner>,
        addr: *mut u8,
        len: usize,
        access: Access,
        options: MrOptions,
        name: &str,
    ) -> Result<MrInner, MrError> {
        access.check()?;
        // SAFETY: the PD is alive; the memory is by this function's contract.
        let raw = unsafe { reg_mr(pd, addr, len, access, options) };
        let raw = NonNull::new(raw).ok_or_else(|| register_error(pd, name, len, Errno::last()))?;
        Ok(MrInner { pd: pd.clone(), raw, name: name.to_owned() })
    }

    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: the MR is alive; see above for who writes it.
        unsafe { (*self.raw.as_ptr()).lkey }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).rkey }
    }

    pub(crate) fn pd(&self) -> &Arc<PdInner> {
        &self.pd
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }

    /// Drops it and says whether the device has let go of the memory.
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

    /// # Safety
    /// No work request that uses the registration is under way, and the memory's other users know what `access` allows.
    pub(crate) unsafe fn set_access(&mut self, access: Access) -> Result<(), VerbError> {
        let flags = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0.cast_signed();
        let bits = access.bits().cast_signed();
        // SAFETY: the MR is registered; address and PD stay, so that null is passed for them.
        let ret = unsafe {
            verb!(self.pd.provider(), ibv_rereg_mr(self.as_ptr(), flags, ptr::null_mut(), ptr::null_mut(), 0, bits))
        };
        if ret == 0 {
            return Ok(());
        }
        // The value is one of IBV_REREG_MR_ERR_*, the reason is in errno (ibv_rereg_mr(3)).
        let errno = Errno::last();
        let error = VerbError::new("ibv_rereg_mr", format!("{:?} to {access:?}", self.name), errno);
        match ret {
            ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT => Err(error),
            _ if errno.raw() == libc::EOPNOTSUPP => Err(error),
            _ => Err(error.advise("the registration may be unusable now: drop it and register again")),
        }
    }

    /// Deregisters; false when the device would not.
    fn end(&mut self) -> bool {
        // SAFETY: registered by the same provider; `drop` and `deregister`, the callers, end the value's life.
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
/// As [`MrInner::register`].
unsafe fn reg_mr(pd: &PdInner, addr: *mut u8, len: usize, access: Access, options: MrOptions) -> *mut ibv_mr {
    let bits = access.bits();
    match pd.provider() {
        // ibv_reg_mr proper refuses the optional flags; verbs.h's macro picks this function for them.
        Provider::Kernel if options.relaxed_ordering => {
            let bits = bits | ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;
            // SAFETY: by this function's contract.
            unsafe { rdma_sys::ibv_reg_mr_iova2(pd.as_ptr(), addr.cast(), len, addr as u64, bits) }
        }
        provider => {
            // The flags fit: they are below 2^31.
            let bits = bits.cast_signed();
            // SAFETY: by this function's contract.
            unsafe { verb!(provider, ibv_reg_mr(pd.as_ptr(), addr.cast(), len, bits)) }
        }
    }
}

/// Registers a pool and hands the registration to it.
pub(crate) fn register_pool(pd: &Arc<PdInner>, pool: &Pool, options: MrOptions) -> Result<(), MrError> {
    let region = pool.region();
    let access = Access::LOCAL_WRITE;
    // SAFETY: the pool drops `keep` before it unmaps the region, and leaks it with the region. No peer may reach the
    // memory; the local device writes it only for posted receives and reads, whose packets are in a slot meanwhile.
    let mr = unsafe { MrInner::register(pd, region.as_ptr(), region.len_bytes(), access, options, pool.name())? };
    let lkey = mr.lkey();
    pool.attach_mr(MrBinding { pd_id: pd.id, lkey, keep: Box::new(mr) })?;
    Ok(())
}

fn register_error(pd: &PdInner, name: &str, len: usize, errno: Errno) -> MrError {
    let error = VerbError::new("ibv_reg_mr", format!("{name:?} ({len} bytes, {})", pd.describe()), errno);
    match errno.raw() {
        // Pinning pages counts against RLIMIT_MEMLOCK: drivers say ENOMEM, some EPERM (ibv_reg_mr(3)).
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
        "locked memory is limited to {} KiB and this region alone needs {} KiB: run `ulimit -l unlimited` in the shell that starts \
         this program (for a service, LimitMEMLOCK=infinity; for a login, a memlock line in /etc/security/limits.conf)",
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
    fn peers_that_write_need_local_write() {
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            assert!(access.check().is_err());
            assert!((access | Access::LOCAL_WRITE).check().is_ok());
        }
        assert!(Access::REMOTE_READ.check().is_ok());
    }
}
