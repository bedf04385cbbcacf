//! Asymmetric fences: the thread that runs all the time pays nothing, the one that is about to
//! sleep pays for both.
//!
//! Two threads that each write one word and then read the other's (Dekker's pattern) need a full
//! fence between their write and their read; without it each may miss the other's write. Here one
//! side runs once a batch and the other only before it sleeps, so the cost is put where it is rare.
//!
//! What it guarantees: of a thread that runs *write A, [`light`], read B* and one that runs *write
//! B, [`heavy`], read A*, at least one reads what the other wrote. `heavy` pairs with `heavy` and
//! with `light`; **`light` doesn't pair with `light`**. Both are also at least compiler fences, in
//! both directions.
//!
//! How: [`heavy`] is `membarrier(2)` with `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, which runs a full
//! fence on every CPU that is running a thread of this process, so [`light`] need only hold the
//! compiler back. Where the kernel lacks it (before 4.14, or a seccomp filter) both are `SeqCst`
//! fences. Under `--cfg loom` both are `SeqCst` fences, which loom models exactly.

#[cfg(not(loom))]
pub use native::{heavy, light};

#[cfg(loom)]
pub use modelled::{heavy, light};

/// How [`heavy`] reaches the other threads of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// `membarrier(2)`: [`light`] costs one load of a read-only cache line.
    Membarrier,
    /// `SeqCst` fences on both sides: [`light`] costs a full fence (some 20 cycles on x86).
    SeqCst,
}

/// Which mechanism this process uses. The first call, of this or of [`heavy`], chooses it for good.
///
/// A program that wants the cheap [`light`] from its first packet calls this before it starts its
/// lcores.
#[cfg(not(loom))]
pub fn mechanism() -> Mechanism {
    native::mechanism()
}

/// Which mechanism this process uses: always `SeqCst` under loom.
#[cfg(loom)]
pub fn mechanism() -> Mechanism {
    Mechanism::SeqCst
}

#[cfg(not(loom))]
mod native {
    use super::Mechanism;
    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
    use std::sync::Once;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    /// True once `heavy` is known to be membarrier(2), forever; false means "not yet chosen" or
    /// "SeqCst".
    static CHEAP: AtomicBool = AtomicBool::new(false);
    static CHOICE: Once = Once::new();

    /// The side that runs often. See the [module](super).
    #[inline(always)]
    pub fn light() {
        // Relaxed, no partner: `true` is only ever written once `heavy` can do nothing but
        // membarrier, and a stale `false` only costs the stronger fence.
        if CHEAP.load(Ordering::Relaxed) {
            // Pairs with membarrier(2) in `heavy`, which puts the CPU's fence at this point for us.
            compiler_fence(Ordering::SeqCst);
        } else {
            // Pairs with the SeqCst fence in `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    /// The side that runs rarely: a system call and an interrupt to each CPU that runs a thread of
    /// this process, some microseconds. See the [module](super).
    ///
    /// # Panics
    /// If the kernel granted membarrier(2) and later refuses it, as under a seccomp filter that is
    /// installed after the first call: threads that passed [`light`] relied on it, so no wake-up
    /// could be trusted from here on.
    pub fn heavy() {
        match mechanism() {
            Mechanism::Membarrier => expedited(),
            // Pairs with the SeqCst fence in `light` and in another `heavy`.
            Mechanism::SeqCst => fence(Ordering::SeqCst),
        }
    }

    pub(super) fn mechanism() -> Mechanism {
        CHOICE.call_once(|| CHEAP.store(register(), Ordering::Relaxed));
        // Relaxed: written once, before `call_once` returned to anybody (Once synchronizes).
        if CHEAP.load(Ordering::Relaxed) { Mechanism::Membarrier } else { Mechanism::SeqCst }
    }

    /// membarrier(2): a process must register before its first private expedited barrier.
    fn register() -> bool {
        let needed = MembarrierQuery::PRIVATE_EXPEDITED | MembarrierQuery::REGISTER_PRIVATE_EXPEDITED;
        membarrier_query().contains(needed)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }

    fn expedited() {
        // The kernel fences the CPUs, this thread's included; these hold the compiler.
        compiler_fence(Ordering::SeqCst);
        if let Err(first) = membarrier(MembarrierCommand::PrivateExpedited) {
            // EPERM: this address space isn't registered (a child that was cloned without its
            // parent's registration).
            let retried = membarrier(MembarrierCommand::RegisterPrivateExpedited)
                .and_then(|()| membarrier(MembarrierCommand::PrivateExpedited));
            if retried.is_err() {
                panic!(
                    "membarrier(2) worked at the start and now fails ({first}): allow it in the seccomp filter, or \
                     install the filter before the first lcore starts"
                );
            }
        }
        compiler_fence(Ordering::SeqCst);
    }
}

#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::{Ordering, fence};

    /// The side that runs often. See the [module](super).
    pub fn light() {
        // Pairs with the SeqCst fence in `heavy`.
        fence(Ordering::SeqCst);
    }

    /// The side that runs rarely. See the [module](super).
    pub fn heavy() {
        // Pairs with the SeqCst fence in `light` and in another `heavy`.
        fence(Ordering::SeqCst);
    }
}
