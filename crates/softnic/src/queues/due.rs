//! The work requests that may complete into a completion queue: those posted to its queue pairs and
//! not yet polled. A program that asked for fewer completions may lose some (ibv_create_cq(3)),
//! also if this queue, which has room for more than it was asked for, never does.
//!
//! Only debug builds count. In others everything here is empty; counts are passed as functions, so
//! that not even their atomics are read.

#[cfg(debug_assertions)]
pub(crate) use counting::{Due, Tally};
#[cfg(not(debug_assertions))]
pub(crate) use nothing::{Due, Tally};

/// The most work requests that were due at once in a completion queue that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueMark {
    /// The completions that its program had asked for.
    pub cqe: u32,
    /// The most work requests.
    pub most: u64,
}

#[cfg(debug_assertions)]
mod counting {
    use super::DueMark;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
    use std::sync::{Arc, Mutex, OnceLock, PoisonError};

    /// Marks of the queues that are gone; none are kept before somebody asks.
    static MARKS: Mutex<Option<Vec<DueMark>>> = Mutex::new(None);

    /// A completion queue's count.
    #[derive(Debug)]
    pub(crate) struct Tally(Arc<Counts>);

    #[derive(Debug)]
    struct Counts {
        cqe: AtomicU32,
        /// Below 0 for a moment, where another thread polls before the posting one has counted.
        due: AtomicI64,
        most: AtomicI64,
    }

    /// The share of a send queue, a receive queue or a shared one in the count of its completion
    /// queue.
    #[derive(Debug, Default)]
    pub(crate) struct Due {
        tally: OnceLock<Arc<Counts>>,
        own: AtomicI64,
    }

    impl Tally {
        pub(crate) fn new(cqe: u32) -> Tally {
            Tally(Arc::new(Counts { cqe: AtomicU32::new(cqe), due: AtomicI64::new(0), most: AtomicI64::new(0) }))
        }

        pub(crate) fn resize(&self, cqe: u32) {
            // Relaxed, here and below: statistics, read after the writers' end.
            self.0.cqe.store(cqe, Ordering::Relaxed);
        }

        /// The queue is gone.
        pub(crate) fn keep(&self) {
            let (cqe, most) = (self.0.cqe.load(Ordering::Relaxed), self.0.most.load(Ordering::Relaxed));
            let mark = DueMark { cqe, most: most.unsigned_abs() };
            MARKS.lock().unwrap_or_else(PoisonError::into_inner).iter_mut().for_each(|marks| marks.push(mark));
        }

        pub(super) fn take_marks() -> Vec<DueMark> {
            MARKS.lock().unwrap_or_else(PoisonError::into_inner).replace(Vec::new()).unwrap_or_default()
        }
    }

    impl Counts {
        fn add(&self, count: i64) {
            let due = self.due.fetch_add(count, Ordering::Relaxed) + count;
            self.most.fetch_max(due, Ordering::Relaxed);
        }
    }

    impl Due {
        /// Completes into this queue. A shared receive queue counts for that of its first queue
        /// pair.
        pub(crate) fn join(&self, tally: &Tally) {
            self.tally.get_or_init(|| {
                tally.0.add(self.own.load(Ordering::Relaxed));
                Arc::clone(&tally.0)
            });
        }

        /// This number was posted.
        pub(crate) fn posted(&self, count: impl FnOnce() -> u64) {
            let count = count() as i64;
            self.own.fetch_add(count, Ordering::Relaxed);
            if let Some(tally) = self.tally.get() {
                tally.add(count);
            }
        }

        /// This number was polled, or is forgotten.
        pub(crate) fn done(&self, count: impl FnOnce() -> u64) {
            let count = count() as i64;
            self.own.fetch_sub(count, Ordering::Relaxed);
            if let Some(tally) = self.tally.get() {
                tally.due.fetch_sub(count, Ordering::Relaxed);
            }
        }

        /// All are forgotten.
        pub(crate) fn clear(&self) {
            self.done(|| self.own.load(Ordering::Relaxed).unsigned_abs());
        }
    }
}

#[cfg(not(debug_assertions))]
mod nothing {
    #[derive(Debug)]
    pub(crate) struct Tally;

    #[derive(Debug, Default)]
    pub(crate) struct Due;

    impl Tally {
        pub(crate) fn new(_: u32) -> Tally {
            Tally
        }

        pub(crate) fn resize(&self, _: u32) {}

        pub(crate) fn keep(&self) {}
    }

    impl Due {
        #[inline(always)]
        pub(crate) fn join(&self, _: &Tally) {}

        #[inline(always)]
        pub(crate) fn posted(&self, _: impl FnOnce() -> u64) {}

        #[inline(always)]
        pub(crate) fn done(&self, _: impl FnOnce() -> u64) {}

        #[inline(always)]
        pub(crate) fn clear(&self) {}
    }
}

/// The marks of the completion queues that were destroyed since the last call; none before the
/// first, and none in builds without debug assertions.
pub fn take_due_marks() -> Vec<DueMark> {
    #[cfg(debug_assertions)]
    return Tally::take_marks();
    #[cfg(not(debug_assertions))]
    return Vec::new();
}
