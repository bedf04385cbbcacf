//! Atomics, cells and waiting, from std or from loom: the one place that chooses.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, fence};

pub(crate) use std::sync::atomic::Ordering;

/// `UnsafeCell` with loom's closure interface, so that loom sees each access.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Cell<T>(#[cfg(not(loom))] std::cell::UnsafeCell<T>, #[cfg(loom)] loom::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    pub(crate) fn new(value: T) -> Self {
        #[cfg(not(loom))]
        return Cell(std::cell::UnsafeCell::new(value));
        #[cfg(loom)]
        return Cell(loom::cell::UnsafeCell::new(value));
    }

    /// Shared access through a raw pointer.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        #[cfg(not(loom))]
        return f(self.0.get());
        #[cfg(loom)]
        return self.0.with(f);
    }

    /// Exclusive access through a raw pointer.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        #[cfg(not(loom))]
        return f(self.0.get());
        #[cfg(loom)]
        return self.0.with_mut(f);
    }
}

/// Orders an atomic read-modify-write before every later load.
///
/// A `SeqCst` read-modify-write already does for later `SeqCst` loads (and, on x86, for all), at no
/// cost. Loom treats `SeqCst` accesses as `AcqRel` and models only `SeqCst` *fences*, so there it
/// is spelled out as one.
#[inline(always)]
pub(crate) fn after_rmw() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Waiting for another thread: first a short spin, then yielding the core, since that thread may
/// need this one. Then sleep, since yielding to a thread of a lower priority does nothing
/// (sched_yield(2)), and a SCHED_FIFO thread that spins keeps that one from its core for ever.
#[derive(Debug, Default)]
pub struct Backoff {
    #[cfg(not(loom))]
    turns: u32,
}

impl Backoff {
    #[cfg(not(loom))]
    const SPINS: u32 = 64;
    #[cfg(not(loom))]
    const YIELDS: u32 = 256;
    #[cfg(not(loom))]
    const SLEEP: std::time::Duration = std::time::Duration::from_micros(50);

    /// Starts with the shortest wait.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits a little, longer the next time.
    pub fn wait(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        {
            if self.turns < Self::SPINS {
                std::hint::spin_loop();
            } else if self.turns < Self::SPINS + Self::YIELDS {
                std::thread::yield_now();
            } else {
                return std::thread::sleep(Self::SLEEP);
            }
            self.turns += 1;
        }
    }
}
