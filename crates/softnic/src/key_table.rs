//! L_Keys and R_Keys: the rights that each grants, and the host address of its bytes.
//!
//! Guarantees: an access is let through only if the key is current, its protection domain is the
//! queue pair's, the range is inside and the rights cover it; only then the host address is
//! returned. A key is the index of an entry and an 8-bit tag that changes at each use of the entry,
//! so a stale key is refused. Lookups take no lock (`verbline_sync::seqlock_entry`): an entry's key
//! is cleared first and set last, and a thread that unregisters memory waits (`guards::quiesce`)
//! until nobody is using it.

pub(crate) use verbline_sync::seqlock_entry::Grant;

use rdma_sys::ibv_access_flags as flag;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};
use verbline_sync::seqlock_entry::KeyEntry;

const CHUNK_BITS: u32 = 10;
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = 1 << 10;
/// The most keys at a time.
pub(crate) const KEYS_MAX: usize = CHUNK * CHUNKS - 1;

/// Rights, as `ibv_access_flags`.
pub(crate) const LOCAL_WRITE: u32 = flag::IBV_ACCESS_LOCAL_WRITE.0;
pub(crate) const REMOTE_WRITE: u32 = flag::IBV_ACCESS_REMOTE_WRITE.0;
pub(crate) const REMOTE_READ: u32 = flag::IBV_ACCESS_REMOTE_READ.0;
pub(crate) const REMOTE_ATOMIC: u32 = flag::IBV_ACCESS_REMOTE_ATOMIC.0;
pub(crate) const MW_BIND: u32 = flag::IBV_ACCESS_MW_BIND.0;
/// The key is a memory window's: good for remote access only.
pub(crate) const WINDOW: u32 = 1 << 31;
/// An indirect key: it has no bytes of its own, so nothing here grants any; `offset` is the address
/// of its `Mkey`.
pub(crate) const INDIRECT: u32 = 1 << 30;

static TABLE: [AtomicPtr<[KeyEntry; CHUNK]>; CHUNKS] = [const { AtomicPtr::new(null_mut()) }; _];

#[derive(Debug)]
struct Allocator {
    /// The first entry never used so far; 0 is no entry.
    fresh: usize,
    /// Entries to use again, each with its last tag. First in, first out, so that tags last long.
    free: std::collections::VecDeque<(usize, u8)>,
}

static ALLOCATOR: Mutex<Allocator> = Mutex::new(Allocator { fresh: 1, free: std::collections::VecDeque::new() });

/// The key doesn't allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied;

/// The host address of `len` bytes at `addr`, if the L_Key `key` grants `need` there. Needs a
/// guard.
#[inline(always)]
pub(crate) fn check_local(pd: u32, key: u32, addr: u64, len: u64, need: u32) -> Result<*mut u8, Denied> {
    let entry = entry((key >> 8) as usize).ok_or(Denied)?;
    // Acquire pairs with the Release in `set`: the rest of the entry is this key's.
    if entry.key.load(Ordering::Acquire) != key || key == 0 {
        return Err(Denied);
    }
    // Relaxed, all: ordered by the key; a region's entry doesn't change before all guards of that
    // time were left.
    let (start, size) = (entry.start.load(Ordering::Relaxed), entry.len.load(Ordering::Relaxed));
    let inside = addr.wrapping_sub(start) <= size && len <= size - addr.wrapping_sub(start);
    let rights = entry.access.load(Ordering::Relaxed);
    if inside && rights & (need | WINDOW) == need && entry.pd.load(Ordering::Relaxed) == pd {
        return Ok(addr.wrapping_add(entry.offset.load(Ordering::Relaxed)) as *mut u8);
    }
    Err(Denied)
}

/// A region's key, used by its own side or by a peer: looked up once for a run of accesses by the
/// same key. Good while the guard that it was made in is held: until then its memory stays
/// registered. A window's key is denied: its grant may change at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionKey {
    pd: u32,
    need: u32,
    key: u32,
    start: u64,
    len: u64,
    offset: u64,
}

impl RegionKey {
    /// Starts without a looked-up key, for accesses to memory of `pd` that need the right `need`.
    #[inline(always)]
    pub(crate) fn new(pd: u32, need: u32) -> RegionKey {
        // No key has this number, and it grants nothing.
        RegionKey { pd, need, key: u32::MAX, start: 0, len: 0, offset: 0 }
    }

    /// Like [`check_local`]; like [`check_remote`] if `pd` is the peer's and `need` a remote right.
    /// `len` is not 0.
    #[inline(always)]
    pub(crate) fn check(&mut self, key: u32, addr: u64, len: u64) -> Result<*mut u8, Denied> {
        debug_assert!(len > 0);
        if !self.is(key) {
            self.look_up(key)?;
        }
        self.inside(addr, len).ok_or(Denied)
    }

    /// Like [`check`](Self::check), for runs that rarely change the key: the lookup is out of line,
    /// which leaves registers to the run.
    #[inline(always)]
    pub(crate) fn check_in_run(&mut self, key: u32, addr: u64, len: u64) -> Result<*mut u8, Denied> {
        if !self.is(key) {
            self.change(key)?;
        }
        self.inside(addr, len).ok_or(Denied)
    }

    #[inline(never)]
    fn change(&mut self, key: u32) -> Result<(), Denied> {
        self.look_up(key)
    }

    /// Whether this is the key that was looked up last.
    #[inline(always)]
    pub(crate) fn is(&self, key: u32) -> bool {
        key == self.key
    }

    /// The host address of `len` bytes at `addr`, if they lie inside the key that was looked up
    /// last.
    #[inline(always)]
    pub(crate) fn inside(&self, addr: u64, len: u64) -> Option<*mut u8> {
        let at = addr.wrapping_sub(self.start);
        (at <= self.len && len <= self.len - at).then(|| addr.wrapping_add(self.offset) as *mut u8)
    }

    #[inline(always)]
    fn look_up(&mut self, key: u32) -> Result<(), Denied> {
        let entry = entry((key >> 8) as usize).ok_or(Denied)?;
        // Acquire pairs with the Release in `set`: the rest of the entry is this key's.
        if entry.key.load(Ordering::Acquire) != key || key == 0 {
            return Err(Denied);
        }
        // Relaxed, all: ordered by the key; a region's entry doesn't change before all guards of
        // that time were left.
        if entry.access.load(Ordering::Relaxed) & (self.need | WINDOW) != self.need
            || entry.pd.load(Ordering::Relaxed) != self.pd
        {
            return Err(Denied);
        }
        self.key = key;
        self.start = entry.start.load(Ordering::Relaxed);
        self.len = entry.len.load(Ordering::Relaxed);
        self.offset = entry.offset.load(Ordering::Relaxed);
        Ok(())
    }
}

/// The host address of `len` bytes at `addr`, if the R_Key `key` grants `need` there to `qpn` of
/// `pd`; and the key of their region, which for a window's R_Key is the region's own. Needs a
/// guard.
#[inline]
pub(crate) fn check_remote(
    pd: u32,
    qpn: u32,
    key: u32,
    addr: u64,
    len: u64,
    need: u32,
) -> Result<(*mut u8, u32), Denied> {
    let grant = grant(key).ok_or(Denied)?;
    let inside = addr.wrapping_sub(grant.start) <= grant.len && len <= grant.len - addr.wrapping_sub(grant.start);
    if !inside || grant.access & need != need || grant.pd != pd || (grant.qpn != 0 && grant.qpn != qpn) {
        return Err(Denied);
    }
    if grant.access & WINDOW == 0 {
        return Ok((addr.wrapping_add(grant.offset) as *mut u8, key));
    }
    // The window may have been bound anew since; its region still covers the bytes.
    check_local(pd, grant.parent, addr, len, 0).map(|at| (at, grant.parent))
}

/// The current grant of `key`.
pub(crate) fn grant(key: u32) -> Option<Grant> {
    entry((key >> 8) as usize)?.read(key)
}

/// A new key without any grant yet. `None` if [`KEYS_MAX`] exist.
pub(crate) fn reserve() -> Option<u32> {
    let mut allocator = ALLOCATOR.lock().unwrap_or_else(PoisonError::into_inner);
    // Keeps many free entries back, so that a key is reused as late as possible.
    let (index, tag) = if allocator.free.len() > CHUNK || allocator.fresh > KEYS_MAX {
        allocator.free.pop_front()?
    } else {
        let index = allocator.fresh;
        allocator.fresh += 1;
        if index.is_multiple_of(CHUNK) || index == 1 {
            add_chunk(index / CHUNK);
        }
        (index, 0)
    };
    Some((index as u32) << 8 | u32::from(tag.wrapping_add(1)))
}

/// Frees the entry of `key`, which nobody uses any more.
pub(crate) fn release(key: u32) {
    let mut allocator = ALLOCATOR.lock().unwrap_or_else(PoisonError::into_inner);
    allocator.free.push_back(((key >> 8) as usize, key as u8));
}

/// Makes `key` stand for `grant` from now on. The key is reserved, so it has an entry, and its
/// entry has no other key.
pub(crate) fn set(key: u32, grant: &Grant) {
    if let Some(entry) = entry((key >> 8) as usize) {
        entry.set(key, grant);
    }
}

/// Revokes `key`. Returns false if it had no grant. Data paths may still be using the address that
/// they looked up.
pub(crate) fn clear(key: u32) -> bool {
    entry((key >> 8) as usize).is_some_and(|entry| entry.clear(key))
}

#[inline(always)]
fn entry(index: usize) -> Option<&'static KeyEntry> {
    // Acquire pairs with the Release in `add_chunk`.
    let chunk = TABLE.get(index >> CHUNK_BITS)?.load(Ordering::Acquire);
    // SAFETY: chunks are never freed.
    unsafe { chunk.as_ref() }.map(|chunk| &chunk[index % CHUNK])
}

fn add_chunk(chunk: usize) {
    let new: Box<[KeyEntry; CHUNK]> = Box::new(std::array::from_fn(|_| KeyEntry::default()));
    // Release pairs with the Acquire in `entry`.
    TABLE[chunk].store(Box::into_raw(new), Ordering::Release);
}
