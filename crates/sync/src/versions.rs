//! A value that can be replaced while readers keep reading the old one for any time: an indirect
//! key's configuration, under the transfers that go through it.
//!
//! Readers hold a version; a writer makes another one and puts it in its place. Versions lie in
//! slots that are used again; their number is at most one more than were ever held at a time.
//!
//! Guarantees: no thread waits for another, whatever versions this thread or others hold. A version
//! doesn't change while it is held. Concurrent writers each change the value that another left.

use crate::primitives::{AtomicI64, AtomicPtr, AtomicU64, Cell, Ordering};
use std::ops::Deref;
use std::ptr::null_mut;

/// In `current`: the bits of the number of holders, below the index of the version's slot.
const HOLDERS_BITS: u32 = 32;
const ONE_HOLDER: u64 = 1;
/// Half of the largest count of these bits, and far more than there are threads and transfers.
const HOLDERS_MAX: u64 = 1 << (HOLDERS_BITS - 1);
/// The first slots; each further chunk has twice as many as the one before.
const FIRST_CHUNK: usize = 2;
const CHUNKS: usize = 24;
/// In `Slot::left`: any writer may take the slot for a new version.
const FREE: i64 = i64::MIN;

/// See the [module](self).
#[derive(Debug)]
pub struct Versions<T> {
    /// The index of the current version's slot, and the number of its holders that have not given
    /// it back yet.
    current: AtomicU64,
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
}

#[derive(Debug)]
struct Slot<T> {
    /// [`FREE`]; or the number of holders of a replaced version. 0 for the current version, and for
    /// one that is being made. While a version is being replaced the number is negative: holders
    /// that gave it back are subtracted before all are added.
    left: AtomicI64,
    value: Cell<T>,
}

// SAFETY: one thread, which took the free slot, writes a value; holders read it after it was
// published; see `Slot::left`.
unsafe impl<T: Send + Sync> Sync for Versions<T> {}
// SAFETY: owning it is owning the values.
unsafe impl<T: Send> Send for Versions<T> {}

/// A version, held.
#[derive(Debug)]
pub struct Version<'a, T> {
    versions: &'a Versions<T>,
    slot: &'a Slot<T>,
    index: usize,
}

impl<T> Versions<T> {
    /// Starts with a version made by `another`.
    pub fn new(another: impl Fn() -> T) -> Versions<T> {
        let versions = Versions { current: AtomicU64::new(0), chunks: std::array::from_fn(|_| AtomicPtr::default()) };
        versions.add_chunk(0, another);
        // Relaxed: nobody else has it yet.
        versions.slot(0).left.store(0, Ordering::Relaxed);
        versions
    }

    /// Holds the current version.
    ///
    /// # Panics
    /// If 2^31 hold it, which only forgotten versions can cause: the count would carry into the
    /// index of another slot.
    pub fn hold(&self) -> Version<'_, T> {
        // Acquire pairs with the Release in `publish`: the version is complete.
        let word = self.current.fetch_add(ONE_HOLDER, Ordering::Acquire);
        let index = index_of(word);
        let version = Version { versions: self, slot: self.slot(index), index };
        let holders = holders_of(word);
        assert!(holders < HOLDERS_MAX, "{holders} versions are held at once: they are forgotten somewhere");
        version
    }

    /// Replaces the current version: `change` makes the next one from it, in a slot with the
    /// contents of some earlier version, or of `another`. It is called again if another writer was
    /// faster.
    pub fn replace(&self, another: impl Fn() -> T, mut change: impl FnMut(&T, &mut T)) {
        let next = self.take_free(&another);
        loop {
            let before = self.hold();
            // SAFETY: the slot was taken, and nobody else has it before it is published below.
            self.slot(next).value.with_mut(|value| change(&before, unsafe { &mut *value }));
            if self.publish(before.index, next) {
                return;
            }
        }
    }

    /// Makes slot `next` the current version if `before`, which is held, still is. Returns false if
    /// it isn't.
    fn publish(&self, before: usize, next: usize) -> bool {
        // Relaxed: the exchange decides.
        let mut word = self.current.load(Ordering::Relaxed);
        // A held slot isn't used again, so its index is this version's.
        while index_of(word) == before {
            let new = (next as u64) << HOLDERS_BITS;
            // Release pairs with the Acquire in `hold`. Acquire pairs with the Release in
            // `Version::drop`.
            match self.current.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    self.leave(before, holders_of(word) as i64);
                    return true;
                }
                Err(now) => word = now,
            }
        }
        false
    }

    /// Adds `change` to the number of holders of that slot's replaced version: those found by the
    /// writer, or one less.
    fn leave(&self, index: usize, change: i64) {
        let left = &self.slot(index).left;
        // Release: all reads of the value are before the next thread that takes the slot; Acquire:
        // the reads of threads that left before are before the store below.
        if left.fetch_add(change, Ordering::AcqRel) + change == 0 {
            // Release pairs with the Acquire in `take_free`.
            left.store(FREE, Ordering::Release);
        }
    }

    /// Takes a free slot.
    fn take_free(&self, another: &impl Fn() -> T) -> usize {
        for chunk in 0..CHUNKS {
            let (first, len) = chunk_range(chunk);
            // Acquire pairs with the Release in `add_chunk`.
            if self.chunks[chunk].load(Ordering::Acquire).is_null() {
                self.add_chunk(chunk, another);
            }
            // Acquire pairs with the Release in `leave` and, in a new chunk, with that in
            // `add_chunk`.
            let take =
                |slot: &Slot<T>| slot.left.compare_exchange(FREE, 0, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if let Some(found) = (first..first + len).find(|index| take(self.slot(*index))) {
                return found;
            }
        }
        // More slots than the address space has room for.
        std::process::abort()
    }

    /// Adds a chunk, unless another thread does.
    #[cold]
    fn add_chunk(&self, chunk: usize, another: impl Fn() -> T) {
        let (_, len) = chunk_range(chunk);
        let slot = |_| Slot { left: AtomicI64::new(FREE), value: Cell::new(another()) };
        let new: Box<[Slot<T>]> = (0..len).map(slot).collect();
        let new = Box::into_raw(new).cast();
        // Release pairs with the Acquires in `take_free` and `slot`.
        let place = &self.chunks[chunk];
        if place.compare_exchange(null_mut(), new, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: made above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(new, len)) });
        }
    }

    fn slot(&self, index: usize) -> &Slot<T> {
        let chunk = (index / FIRST_CHUNK + 1).ilog2() as usize;
        // Acquire pairs with the Release in `add_chunk`.
        let slots = self.chunks[chunk].load(Ordering::Acquire);
        // SAFETY: an index is used only after its chunk was made (`take_free`), which is not freed
        // before `self`.
        unsafe { &*slots.add(index - chunk_range(chunk).0) }
    }
}

/// The first index of a chunk, and its number of slots.
fn chunk_range(chunk: usize) -> (usize, usize) {
    (((1 << chunk) - 1) * FIRST_CHUNK, FIRST_CHUNK << chunk)
}

fn index_of(word: u64) -> usize {
    (word >> HOLDERS_BITS) as usize
}

fn holders_of(word: u64) -> u64 {
    word & ((1 << HOLDERS_BITS) - 1)
}

impl<T> Deref for Version<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: published, and not written before this holder has given it back.
        self.slot.value.with(|value| unsafe { &*value })
    }
}

impl<T> Drop for Version<'_, T> {
    fn drop(&mut self) {
        let current = &self.versions.current;
        // Relaxed: the exchange decides.
        let mut word = current.load(Ordering::Relaxed);
        // It is held, so its index is no other version's.
        while index_of(word) == self.index {
            // Release pairs with the Acquire in `publish`: our reads are before the slot is free.
            match current.compare_exchange_weak(word, word - ONE_HOLDER, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        self.versions.leave(self.index, -1);
    }
}

impl<T> Drop for Versions<T> {
    fn drop(&mut self) {
        for chunk in 0..CHUNKS {
            // Relaxed: exclusive access.
            let slots = self.chunks[chunk].load(Ordering::Relaxed);
            if !slots.is_null() {
                let slots = std::ptr::slice_from_raw_parts_mut(slots, chunk_range(chunk).1);
                // SAFETY: the box that `add_chunk` made; no version is held, since holders borrow
                // this.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn indices_lie_in_chunks_without_a_gap() {
        let mut next = 0;
        for chunk in 0..CHUNKS {
            let (first, len) = chunk_range(chunk);
            assert_eq!(first, next);
            for index in [first, first + len - 1] {
                assert_eq!((index / FIRST_CHUNK + 1).ilog2() as usize, chunk, "{index}");
            }
            next += len;
        }
        assert!((next as u64) < 1 << HOLDERS_BITS);
    }

    /// One thread may do all of this at the same time, in any order.
    #[test]
    fn a_version_stays_as_it_is_while_it_is_held_and_its_place_is_used_again() {
        let made = AtomicUsize::new(0);
        let another = || {
            // Relaxed: a count of this test's.
            made.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        };
        let versions = Versions::new(another);
        let add = |number: u32| {
            versions.replace(another, |before, after| {
                after.clone_from(before);
                after.push(number);
            });
        };
        add(0);
        let mut held = Vec::new();
        for number in 1..50 {
            held.push(versions.hold());
            add(number);
        }
        for (number, version) in held.iter().enumerate() {
            assert_eq!(**version, (0..=number as u32).collect::<Vec<_>>());
        }
        held.clear();
        // Relaxed: as above.
        let places = made.load(Ordering::Relaxed);
        assert!(places < 2 * 64, "{places}");
        for number in 50..200 {
            add(number);
            assert_eq!(*versions.hold(), (0..=number).collect::<Vec<_>>());
        }
        // Relaxed: as above.
        assert_eq!(made.load(Ordering::Relaxed), places, "places are used again");
    }

    /// Regression: holders that never give back carried into the index of the slot, and a slot that
    /// a writer may write was returned.
    #[test]
    #[should_panic(expected = "are held at once")]
    fn holders_are_counted_within_their_bits() {
        let versions = Versions::new(|| 0);
        // Relaxed: this thread alone uses it. This many were forgotten.
        versions.current.store(HOLDERS_MAX - 1, Ordering::Relaxed);
        loop {
            std::mem::forget(versions.hold());
        }
    }

    #[test]
    fn of_threads_that_change_it_at_once_no_change_is_lost() {
        const EACH: u64 = 5_000;
        let versions = Versions::new(|| [0u64; 8]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        versions.replace(|| [0; 8], |before, after| *after = [before[0] + 1; 8]);
                        let seen = versions.hold();
                        assert!(seen.iter().all(|word| *word == seen[0]), "a mixture: {:?}", *seen);
                    }
                });
            }
        });
        assert_eq!(versions.hold()[0], 2 * EACH);
    }
}
