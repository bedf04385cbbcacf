//! A controller: the state shared by the queues of one association, on whichever lcores they are.

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
    /// CC and CSTS. All accesses are relaxed, except for resets: each is a word of its own that the
    /// host reads or writes by commands, in the order of the admin queue. CSTS.CFS means that the
    /// controller has ended (its admin queue is gone, or its host is silent): all its queues close.
    cc: AtomicU32,
    csts: AtomicU32,
    /// The number of resets. I/O queues of before the last one have ended.
    resets: AtomicU32,
    /// Off the data path: only errors are written here.
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
        // Acquire pairs with the Release in `set_cc`: an lcore that sees the controller not ready
        // also sees its reset counted.
        self.csts.load(Ordering::Acquire)
    }

    /// Handles a write of CC by the host: enables or resets the controller, at once, or begins its
    /// shutdown. A reset ends its I/O queues.
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
        // Another lcore may end the controller meanwhile: CSTS.CFS stays. Release pairs with the
        // Acquire in `csts`: the reset is counted.
        let change = |csts: u32| Some(csts & !of_host | shown);
        let _ = self.csts.fetch_update(Ordering::Release, Ordering::Relaxed, change);
    }

    /// Whether a shutdown has begun and is not complete.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.csts() & property::CSTS_SHUTDOWN == property::CSTS_SHUTDOWN_BEGUN
    }

    /// Completes the shutdown: all written data is durable. The host may have reset the controller
    /// meanwhile.
    pub(crate) fn complete_shutdown(&self) {
        let complete = |csts: u32| {
            (csts & property::CSTS_SHUTDOWN == property::CSTS_SHUTDOWN_BEGUN)
                .then_some(csts & !property::CSTS_SHUTDOWN | property::CSTS_SHUTDOWN_COMPLETE)
        };
        // Relaxed: only the lcore of the admin queue writes and reads these bits.
        let _ = self.csts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, complete);
    }

    /// Whether the controller carries out commands.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.csts() & (property::CSTS_READY | property::CSTS_FATAL | property::CSTS_SHUTDOWN) == property::CSTS_READY
    }

    /// Whether its host has not enabled it, or has reset it.
    pub(crate) fn is_disabled(&self) -> bool {
        self.cc() & property::CC_ENABLE == 0
    }

    /// The number of resets. An I/O queue is valid until the next reset.
    pub(crate) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Ends the controller: it carries out no more commands, and its queues close.
    pub(crate) fn end(&self) {
        self.csts.fetch_or(property::CSTS_FATAL, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.csts() & property::CSTS_FATAL != 0
    }

    /// Whether it belongs to this host.
    pub(crate) fn is_of(&self, host: &Nqn, host_id: &[u8; 16]) -> bool {
        self.host == *host && self.host_id == *host_id
    }

    /// Adds to the error log. The entry is left out while another lcore adds one: a host that
    /// causes errors must not hold up an lcore.
    pub(crate) fn note(&self, entry: ErrorEntry) {
        if let Ok(mut log) = self.errors.try_lock() {
            log.count += 1;
            let at = (log.count - 1) as usize % ERRORS;
            log.entries[at] = ErrorEntry { count: log.count, ..entry };
        }
    }

    /// Returns the error log, latest first, and the number of errors ever.
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

    /// Queues notice the end of their controller by CSTS, which also says whether it is ready:
    /// commands that come meanwhile are never refused as wrong.
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
