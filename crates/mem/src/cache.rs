//! A pool's cache for one lcore.
//!
//! Gets and puts move handles in and out of an array of the lcore's own; the free list that all
//! lcores share is visited once for about half a cache's worth, in one compare-and-swap. A bound
//! cache also takes what is dropped on its thread.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::batch::Batch;
use crate::cache_array::{self, Stash};
use crate::fresh_view::Fresh;
use crate::packet::Packet;
use crate::pool::Pool;
use crate::shared::CachedCount;

impl Pool {
    /// A cache of up to `capacity` packets, empty at first; 0 caches nothing. More than the pool's
    /// packets is cut to that.
    #[must_use]
    pub fn cache(&self, capacity: usize) -> PoolCache {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX).min(self.packets());
        // SAFETY: the cache holds the pool as long as the stash.
        let stash = unsafe { Stash::new(self.shared_ptr(), capacity) };
        let stash = NonNull::from(Box::leak(Box::new(stash)));
        let cache = PoolCache { stash, pool: self.clone() };
        self.register_cache(CachedCount(cache.stash().count()));
        cache
    }
}

/// A cache of one pool's packets, for one thread at a time: `Send`, not `Sync`. Dropping it returns
/// what it holds to the free list.
///
/// ```compile_fail
/// fn shared<T: Sync>() {}
/// shared::<verbline_mem::PoolCache>();
/// ```
pub struct PoolCache {
    /// On the heap, where `bind` can leave an address of it. Owned.
    stash: NonNull<Stash>,
    pool: Pool,
}

// SAFETY: the cache owns its stash, and no thread's list has it: `bind` takes the cache, and gives
// it back only after `unbind`.
unsafe impl Send for PoolCache {}

impl PoolCache {
    #[inline]
    fn stash(&self) -> &Stash {
        // SAFETY: owned, and freed in drop only. `&Stash` stays with this thread, as `PoolCache` is
        // not Sync.
        unsafe { self.stash.as_ref() }
    }

    /// A fresh packet ([`Packet::reset`]), or `None` when neither cache nor free list has one.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Packet> {
        let mut packet = self.get_unreset()?;
        packet.renew(self.stash().fresh());
        Some(packet)
    }

    /// [`PoolCache::get`] and [`Packet::set_len`] in one go. `None` also when a fresh packet cannot
    /// hold `len_bytes` bytes.
    #[inline]
    #[must_use]
    pub fn get_of_len(&self, len_bytes: usize) -> Option<Packet> {
        if !self.stash().holds(len_bytes) {
            return None;
        }
        let mut packet = self.get_unreset()?;
        packet.renew_to(self.stash().fresh(), len_bytes as u32);
        Some(packet)
    }

    /// Like [`PoolCache::get`], but the packet is as its last holder left it: see
    /// [`PoolCache::get_bulk_unreset`].
    #[inline]
    #[must_use]
    pub fn get_unreset(&self) -> Option<Packet> {
        // SAFETY: what the stash gives is a right to pass on.
        self.stash().take_one().map(|raw| unsafe { Packet::from_raw(raw) })
    }

    /// Adds up to `n` fresh packets ([`Packet::reset`]) to the batch; gives how many: fewer when
    /// the batch is full or the pool runs out.
    #[inline]
    pub fn get_bulk(&self, batch: &mut Batch, n: usize) -> usize {
        let before = batch.len();
        let taken = self.get_bulk_unreset(batch, n);
        renew_all(&mut batch.as_mut_slice()[before..], self.stash().fresh());
        taken
    }

    /// [`PoolCache::get_bulk`] and [`Packet::set_len`] of each, in one go. None are got when a
    /// fresh packet cannot hold `len_bytes` bytes.
    #[inline]
    pub fn get_bulk_of_len(&self, batch: &mut Batch, n: usize, len_bytes: usize) -> usize {
        if !self.stash().holds(len_bytes) {
            return 0;
        }
        let before = batch.len();
        let taken = self.get_bulk_unreset(batch, n);
        renew_all(&mut batch.as_mut_slice()[before..], self.stash().fresh().with_len(len_bytes as u32));
        taken
    }

    /// Like [`PoolCache::get_bulk`], but each packet is as its last holder left it: length,
    /// headroom, port, timestamp, mark. For those who [`reset`](Packet::reset) it themselves: no
    /// metadata line is touched, so this is a copy of `n` words and no more.
    #[inline]
    pub fn get_bulk_unreset(&self, batch: &mut Batch, n: usize) -> usize {
        let taken = self.stash().take(batch.spare(n));
        // SAFETY: `take` wrote that many handles and passed their rights on.
        unsafe { batch.assume(taken) };
        taken
    }

    /// Returns a packet, to this cache if it is of this pool, else to where its drop takes it.
    #[inline]
    pub fn put(&self, packet: Packet) {
        // SAFETY: if the stash takes it, the right is given up by the `forget`.
        if unsafe { self.stash().put_one(packet.raw()) } {
            std::mem::forget(packet);
        }
    }

    /// Returns all packets of the batch: to this cache if all are of this pool; else each to where
    /// its drop takes it, and this pool's to here.
    #[inline]
    pub fn put_bulk(&self, batch: &mut Batch) {
        // SAFETY: if the stash takes them, the rights are given up by the `disown`.
        if unsafe { self.stash().put(batch.raw()) } {
            batch.disown();
        } else {
            self.put_mixed(batch);
        }
    }

    #[cold]
    fn put_mixed(&self, batch: &mut Batch) {
        batch.drain_front(batch.len()).for_each(|packet| self.put(packet));
    }

    /// Binds the cache to this thread: until the guard goes, a packet of this pool that is dropped
    /// here returns to this cache. Several caches may be bound at once; of two for one pool the
    /// later one is used.
    #[must_use = "dropping the guard unbinds and drops the cache"]
    pub fn bind(self) -> BoundCache {
        // SAFETY: the guard owns the cache, keeps it on this thread (it is not Send), and unbinds
        // before it lets go. A guard that is forgotten leaks the cache, which then stays where it
        // is for ever.
        unsafe { cache_array::bind(self.stash.as_ref()) };
        BoundCache { cache: ManuallyDrop::new(self), stays: PhantomData }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Packets in the cache.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.stash().len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packets that it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.stash().capacity()
    }

    /// Returns all that it holds to the free list, for other lcores.
    pub fn flush(&self) {
        self.stash().spill(0);
    }
}

#[inline]
fn renew_all(packets: &mut [Packet], fresh: Fresh) {
    match packets {
        [packet] => packet.renew(fresh),
        _ => renew_many(packets, fresh),
    }
}

/// Four in a row, which halves what each takes. Not part of its callers, which get lone packets
/// more often.
#[inline(never)]
fn renew_many(packets: &mut [Packet], fresh: Fresh) {
    let (fours, rest) = packets.as_chunks_mut::<4>();
    fours.iter_mut().for_each(|four| four.iter_mut().for_each(|packet| packet.renew(fresh)));
    rest.iter_mut().for_each(|packet| packet.renew(fresh));
}

impl Drop for PoolCache {
    fn drop(&mut self) {
        self.flush();
        self.pool.deregister_cache(&CachedCount(self.stash().count()));
        // SAFETY: made by Box::leak in `Pool::cache`; bound nowhere (`bind` takes the cache), and
        // nobody counts it any more.
        drop(unsafe { Box::from_raw(self.stash.as_ptr()) });
    }
}

impl fmt::Debug for PoolCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolCache")
            .field("pool", &self.pool.name())
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// A cache that takes what is dropped on this thread. Use it as the [`PoolCache`] that it is.
/// Dropping it unbinds and drops the cache.
///
/// It stays on its thread:
/// ```compile_fail
/// fn sent<T: Send>() {}
/// sent::<verbline_mem::BoundCache>();
/// ```
#[derive(Debug)]
pub struct BoundCache {
    /// Taken out by `unbind`, else dropped with the guard.
    cache: ManuallyDrop<PoolCache>,
    stays: PhantomData<*const ()>,
}

impl BoundCache {
    /// Unbinds the cache and gives it back, with what it holds.
    #[must_use]
    pub fn unbind(self) -> PoolCache {
        let mut guard = ManuallyDrop::new(self);
        cache_array::unbind(guard.stash());
        // SAFETY: taken once: the guard is neither used nor dropped after this.
        unsafe { ManuallyDrop::take(&mut guard.cache) }
    }
}

impl Deref for BoundCache {
    type Target = PoolCache;

    #[inline]
    fn deref(&self) -> &PoolCache {
        &self.cache
    }
}

impl Drop for BoundCache {
    fn drop(&mut self) {
        cache_array::unbind(self.stash());
        // SAFETY: dropped once: here, where the guard itself goes; nothing reads the field after.
        unsafe { ManuallyDrop::drop(&mut self.cache) };
    }
}
