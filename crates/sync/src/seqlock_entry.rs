//! An entry of the key table, read without a lock while a window may be bound anew: a read returns
//! all of one grant, or nothing.
//!
//! A region's entry changes only when no thread inside a guard could be reading it. A window's
//! changes under its readers: it is cleared, then set for the next bind, perhaps for the same key.
//! So a reader of any entry counts changes as well.
//!
//! Guarantees: [`KeyEntry::read`] returns the value of one [`KeyEntry::set`], or `None` if the key
//! had no grant at some time during the call. It never waits.

use crate::primitives::{AtomicU32, AtomicU64, Ordering, fence};

/// The memory that a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The protection domain.
    pub pd: u32,
    /// Rights, and the mark of a window's key.
    pub access: u32,
    /// First address, as peers and work requests name it.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Added to such an address to get the host's (0 unless the region has an address of its own).
    pub offset: u64,
    /// The only queue pair that may use it, or 0 for all of its protection domain.
    pub qpn: u32,
    /// A window's region, by its L_Key.
    pub parent: u32,
}

/// One entry, one cache line. A thread that knows that the fields don't change meanwhile may read
/// them one by one, except `key`.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct KeyEntry {
    /// 0 while unused or being changed.
    pub key: AtomicU32,
    /// See [`Grant::pd`].
    pub pd: AtomicU32,
    /// See [`Grant::access`].
    pub access: AtomicU32,
    qpn: AtomicU32,
    parent: AtomicU32,
    /// Odd while it is being set.
    changes: AtomicU32,
    /// See [`Grant::start`].
    pub start: AtomicU64,
    /// See [`Grant::len`].
    pub len: AtomicU64,
    /// See [`Grant::offset`].
    pub offset: AtomicU64,
}

impl KeyEntry {
    /// Makes `key` stand for `grant` from now on. The entry has no other key, and one thread at a
    /// time sets it.
    pub fn set(&self, key: u32, grant: &Grant) {
        // Relaxed: one thread at a time.
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(1), Ordering::Relaxed);
        // Release pairs with the Acquire fence in `read`: a thread that saw any of the stores below
        // sees the change.
        fence(Ordering::Release);
        // Relaxed, all: published by the key.
        self.pd.store(grant.pd, Ordering::Relaxed);
        self.access.store(grant.access, Ordering::Relaxed);
        self.qpn.store(grant.qpn, Ordering::Relaxed);
        self.parent.store(grant.parent, Ordering::Relaxed);
        self.start.store(grant.start, Ordering::Relaxed);
        self.len.store(grant.len, Ordering::Relaxed);
        self.offset.store(grant.offset, Ordering::Relaxed);
        // Release, both: pairs with the Acquire in `read`, and in `check_local` for the key.
        self.changes.store(changes.wrapping_add(2), Ordering::Release);
        self.key.store(key, Ordering::Release);
    }

    /// Makes `key` stand for nothing. Returns false if it had no grant. Grants read before may
    /// still be in use.
    pub fn clear(&self, key: u32) -> bool {
        // AcqRel: of several clearing threads, one succeeds; pairs with `set`.
        key != 0 && self.key.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Returns the memory that `key` stands for now.
    #[inline]
    pub fn read(&self, key: u32) -> Option<Grant> {
        // Acquire pairs with the Release in `set`: its writes are seen, or newer ones.
        let before = self.changes.load(Ordering::Acquire);
        // Acquire pairs with the Release in `set`.
        if self.key.load(Ordering::Acquire) != key || key == 0 || before % 2 == 1 {
            return None;
        }
        // Relaxed, all: a change meanwhile is noticed below.
        let grant = Grant {
            pd: self.pd.load(Ordering::Relaxed),
            access: self.access.load(Ordering::Relaxed),
            start: self.start.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
            qpn: self.qpn.load(Ordering::Relaxed),
            parent: self.parent.load(Ordering::Relaxed),
        };
        // Acquire pairs with the Release fence in `set`.
        fence(Ordering::Acquire);
        // Relaxed: after the fence. If it changed, it was cleared first, so the key had no grant.
        (self.changes.load(Ordering::Relaxed) == before).then_some(grant)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Grant, KeyEntry};

    /// A stale invalidation names an earlier key of the entry: it takes nothing from the current
    /// key.
    #[test]
    fn a_key_that_was_replaced_reads_and_clears_nothing() {
        let (entry, old, new) = (KeyEntry::default(), 0x100, 0x101);
        let grant = |start| Grant { pd: 1, access: 2, start, len: 64, offset: 8, qpn: 3, parent: 4 };
        entry.set(old, &grant(0x1000));
        assert_eq!((entry.read(old), entry.read(new)), (Some(grant(0x1000)), None));
        assert!(entry.clear(old));
        entry.set(new, &grant(0x2000));
        assert!(!entry.clear(old) && !entry.clear(0));
        assert_eq!((entry.read(old), entry.read(new)), (None, Some(grant(0x2000))));
        assert!(entry.clear(new) && !entry.clear(new));
        assert_eq!((entry.read(new), entry.read(0)), (None, None));
    }
}
