//! A controller: what the queues of one association share, whichever lcores they are on.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
    /// CC and CSTS. Relaxed, as all here: each is a word of its own that the host reads or writes
    /// by commands, whose order the admin queue keeps.
    cc: AtomicU32,
    csts: AtomicU32,
    /// How often it was disabled: the I/O queues of before are over.
    resets: AtomicU32,
    /// Its admin queue is gone, or its host is silent: every queue of it closes.
    is_over: AtomicBool,
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
            is_over: AtomicBool::new(false),
            errors: Mutex::default(),
        }
    }

    pub(crate) fn cc(&self) -> u32 {
        self.cc.load(Ordering::Relaxed)
    }

    pub(crate) fn csts(&self) -> u32 {
        self.csts.load(Ordering::Relaxed)
    }

    /// The host writes CC: the controller is enabled, reset or shut down, at once. A reset ends its
    /// I/O queues.
    pub(crate) fn set_cc(&self, cc: u32) {
        if self.cc() & property::CC_ENABLE != 0 && cc & property::CC_ENABLE == 0 {
            self.resets.fetch_add(1, Ordering::Relaxed);
        }
        let mut csts = self.csts() & !(property::CSTS_READY | property::CSTS_SHUTDOWN_COMPLETE);
        if cc & property::CC_ENABLE != 0 {
            csts |= property::CSTS_READY;
        }
        if cc & property::CC_SHUTDOWN != 0 {
            csts |= property::CSTS_SHUTDOWN_COMPLETE;
        }
        self.cc.store(cc, Ordering::Relaxed);
        self.csts.store(csts, Ordering::Relaxed);
    }

    /// Whether it carries out commands.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.csts() & (property::CSTS_READY | property::CSTS_FATAL | property::CSTS_SHUTDOWN_COMPLETE)
            == property::CSTS_READY
    }

    /// How often it was reset: an I/O queue is of the time since the last one.
    pub(crate) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// It is over: it carries out nothing, and its queues close.
    pub(crate) fn end(&self) {
        self.csts.fetch_or(property::CSTS_FATAL, Ordering::Relaxed);
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
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
