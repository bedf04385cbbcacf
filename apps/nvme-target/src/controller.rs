//! A controller: what the queues of one association share, whichever lcores they are on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use verbline_nvme::identify::ControllerType;
use verbline_nvme::log::ErrorEntry;
use verbline_nvme::{Nqn, property};

/// Entries of an error log.
pub(crate) const ERRORS: usize = 16;

/// A controller.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) cntlid: u16,
    pub(crate) kind: ControllerType,
    pub(crate) host: Nqn,
    pub(crate) host_id: [u8; 16],
    /// CC and CSTS. Relaxed, as all here but for resets: each is a word of its own that the host
    /// reads or writes by commands, whose order the admin queue keeps. CSTS.CFS says that it is
    /// over (its admin queue is gone, or its host is silent): every queue of it closes.
    cc: AtomicU32,
    csts: AtomicU32,
    /// How often it was disabled: the I/O queues of before are over.
    resets: AtomicU32,
    /// Off the data path: errors alone are written here.
    errors: Mutex<ErrorLog>,
}

#[derive(Debug, Default)]
struct ErrorLog {
    count: u64,
    entries: [ErrorEntry; ERRORS],
}

impl Controller {
    pub(crate) fn new(cntlid: u16, kind: ControllerType, host: Nqn, host_id: [u8; 16]) -> Controller {
        Controller {
            cntlid,
            kind,
            host,
            host_id,
            cc: AtomicU32::new(0),
            csts: AtomicU32::new(0),
            resets: AtomicU32::new(0),
            errors: Mutex::default(),
        }
    }

    pub(crate) fn cc(&self) -> u32 {
        self.cc.load(Ordering::Relaxed)
    }

    pub(crate) fn csts(&self) -> u32 {
        // Acquire pairs with the Release in `set_cc`: who sees that it is not ready sees that it
        // was reset.
        self.csts.load(Ordering::Acquire)
    }

    /// The host writes CC: the controller is enabled or reset, at once, or its shutdown begins. A
    /// reset ends its I/O queues.
    pub(crate) fn set_cc(&self, cc: u32) {
        if self.cc() & property::CC_ENABLE != 0 && cc & property::CC_ENABLE == 0 {
            self.resets.fetch_add(1, Ordering::Relaxed);
        }
        let of_host = property::CSTS_READY | property::CSTS_SHUTDOWN;
        let mut shown = 0;
        if cc & property::CC_ENABLE != 0 {
            shown |= property::CSTS_READY;
        }
        if cc & property::CC_SHUTDOWN != 0 {
            shown |= property::CSTS_SHUTDOWN_BEGUN;
        }
        self.cc.store(cc, Ordering::Relaxed);
        // Another lcore may end it meanwhile, which stays. Release pairs with the Acquire in
        // `csts`: the reset is counted.
        let change = |csts: u32| Some(csts & !of_host | shown);
        let _ = self.csts.fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }

    /// Whether its host has begun a shutdown, which is not complete.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.csts() & property::CSTS_SHUTDOWN == property::CSTS_SHUTDOWN_BEGUN
    }

    /// What was written is durable. The host may have reset it meanwhile.
    pub(crate) fn complete_shutdown(&self) {
        let complete = |csts: u32| {
            (csts & property::CSTS_SHUTDOWN == property::CSTS_SHUTDOWN_BEGUN)
                .then_some(csts & !property::CSTS_SHUTDOWN | property::CSTS_SHUTDOWN_COMPLETE)
        };
        // Relaxed: of its admin queue's lcore, which alone writes and tells these bits.
        let _ = self.csts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, complete);
    }

    /// Whether it carries out commands.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.csts() & (property::CSTS_READY | property::CSTS_FATAL | property::CSTS_SHUTDOWN) == property::CSTS_READY
    }

    /// Whether its host has not enabled it, or has reset it.
    pub(crate) fn is_disabled(&self) -> bool {
        self.cc() & property::CC_ENABLE == 0
    }

    /// How often it was reset: an I/O queue is of the time since the last one.
    pub(crate) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// It is over: it carries out nothing, and its queues close.
    pub(crate) fn end(&self) {
        self.csts.fetch_or(property::CSTS_FATAL, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.csts() & property::CSTS_FATAL != 0
    }

    /// Whether it is of this host.
    pub(crate) fn is_of(&self, host: &Nqn, host_id: &[u8; 16]) -> bool {
        self.host == *host && self.host_id == *host_id
    }

    /// Adds to the error log. While another lcore does so too, an entry is left out: a host that
    /// makes errors must not hold up an lcore.
    pub(crate) fn note(&self, entry: ErrorEntry) {
        if let Ok(mut log) = self.errors.try_lock() {
            log.count += 1;
            let at = (log.count - 1) as usize % ERRORS;
            log.entries[at] = ErrorEntry { count: log.count, ..entry };
        }
    }

    /// The error log, the latest first, and how many errors there ever were.
    pub(crate) fn errors(&self) -> ([ErrorEntry; ERRORS], u64) {
        let log = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = log.entries;
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.count));
        (entries, log.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its queues find out that it is over by the word that says whether it is ready: a host whose
    /// commands come meanwhile is never told that they are wrong.
    #[test]
    fn one_that_is_over_stays_over_whatever_its_host_writes() {
        let host = Nqn::new("nqn.2026-01.org.example:host").expect("a name");
        let controller = Controller::new(1, ControllerType::Io, host, [7; 16]);
        controller.set_cc(property::CC_USUAL);
        assert!(controller.is_ready() && !controller.is_over());
        controller.end();
        for cc in [0, property::CC_USUAL, property::CC_USUAL | property::CC_SHUTDOWN] {
            controller.set_cc(cc);
            assert!(controller.is_over() && !controller.is_ready(), "CC {cc:#x}");
            controller.complete_shutdown();
            assert!(controller.is_over() && !controller.is_ready(), "CC {cc:#x}");
        }
        assert_eq!(controller.resets(), 1);
    }
}
