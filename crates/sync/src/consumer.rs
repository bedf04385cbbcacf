//! The consuming side of the completion queue's ring: finds published completions, arms, grows.
//!
//! Its guarantees are in `ring`.

use crate::primitives::{Backoff, Ordering};
use crate::ring::{
    CqEntry, CqRing, DISARMED, FROZEN, POSITION_MASK, Slot, TWO_SLOTS, allocate, release, sequence, tag_of,
};
use std::marker::PhantomData;
use verbline_ring::fence::heavy;

/// The consumer's own state. One thread at a time.
#[derive(Debug)]
#[repr(C)]
pub struct Consumer {
    head: u64,
    slots: *const Slot,
    mask: u64,
    /// Armed, as far as this side knows: then an empty poll must look for claims.
    armed: bool,
}

// SAFETY: the raw pointer is to the ring's slots, which any thread may reach through atomics and
// the claim protocol.
unsafe impl Send for Consumer {}

impl CqRing {
    /// A ring of `slots` slots, a power of two, and its consumer.
    pub fn new(slots: usize) -> (CqRing, Consumer) {
        let (ring, mask) = (allocate(slots), slots as u64 - 1);
        (CqRing::over(ring, mask), Consumer::new(ring, mask))
    }
}

/// A copy of a consumer's position, to continue from in registers: for all the compiler knows, each
/// store in between could change the consumer. [`Consumer::advance_to`] hands the new position
/// back.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'r> {
    head: u64,
    slots: *const Slot,
    mask: u64,
    /// Its slots are valid as long as the ring, and until it grows.
    ring: PhantomData<&'r CqRing>,
}

impl<'r> Cursor<'r> {
    #[inline(always)]
    fn slot(&self, position: u64) -> &'r Slot {
        // SAFETY: masked; the ring is borrowed, and no cursor is used after it grew (the contract
        // of `Consumer::grow`).
        unsafe { &*self.slots.add((position & self.mask) as usize) }
    }

    /// The next completion, if it is published.
    #[inline(always)]
    pub fn peek(&self) -> Option<CqEntry<'r>> {
        let (first, second) = (self.slot(self.head), self.slot(self.head + 1));
        prefetch(second);
        // Acquire pairs with the Release in `Claim::publish`.
        let seq = first.seq.load(Ordering::Acquire);
        if seq & POSITION_MASK != (self.head + 1) & POSITION_MASK {
            return None;
        }
        Some(CqEntry::new(tag_of(seq), seq & TWO_SLOTS != 0, first, second))
    }

    /// Marks the completion as taken.
    #[inline(always)]
    pub fn advance(&mut self, slots: u64) {
        self.head += slots;
    }

    /// The position of the next completion.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.head
    }
}

impl Consumer {
    pub(crate) fn new(slots: *const Slot, mask: u64) -> Consumer {
        Consumer { head: 0, slots, mask, armed: false }
    }

    /// A cursor at its position.
    ///
    /// # Safety
    /// `ring` is the one that this consumer was made with.
    #[inline(always)]
    pub unsafe fn cursor<'r>(&self, _ring: &'r CqRing) -> Cursor<'r> {
        Cursor { head: self.head, slots: self.slots, mask: self.mask, ring: PhantomData }
    }

    /// The next completion. On an armed queue it waits for a completion that is claimed and not yet
    /// published.
    ///
    /// # Safety
    /// `ring` is the one that this consumer was made with.
    #[inline(always)]
    pub unsafe fn next<'r>(&mut self, ring: &'r CqRing) -> Option<CqEntry<'r>> {
        // SAFETY: `ring` is this consumer's own, as the owner of both guarantees.
        unsafe {
            match self.cursor(ring).peek() {
                None if self.armed => self.next_armed(ring),
                found => found,
            }
        }
    }

    /// # Safety
    /// The contract of [`next`](Self::next).
    #[cold]
    unsafe fn next_armed<'r>(&mut self, ring: &'r CqRing) -> Option<CqEntry<'r>> {
        // SAFETY: by the contract of `next`, the consumer was made with this ring.
        let cursor = unsafe { self.cursor(ring) };
        // Relaxed: our own store is the oldest possible value; if a producer took it, its
        // notification is on the way.
        if ring.producers.armed.load(Ordering::Relaxed) == DISARMED {
            self.armed = false;
            return cursor.peek();
        }
        // SeqCst: after `arm`'s barrier; pairs with the claim. A producer that missed our arming
        // claimed before it.
        if ring.producers.tail.load(Ordering::SeqCst) & !FROZEN == self.head {
            return None;
        }
        let mut backoff = Backoff::new();
        loop {
            if let Some(found) = cursor.peek() {
                return Some(found);
            }
            backoff.wait();
        }
    }

    /// Marks the completion as taken: its slots are free at the next `publish_head`.
    #[inline(always)]
    pub fn advance(&mut self, slots: u64) {
        self.head += slots;
    }

    /// Like [`advance`](Self::advance), up to a cursor's position.
    #[inline(always)]
    pub fn advance_to(&mut self, position: u64) {
        self.head = position;
    }

    /// Tells producers the position. Once a poll.
    #[inline(always)]
    pub fn publish_head(&self, ring: &CqRing) {
        // Release pairs with the Acquire in `claim_slowly`: our reads of the slots are done.
        ring.consumed.head.store(self.head, Ordering::Release);
    }

    /// Requests one notification; `kind` is `NEXT` or `SOLICITED`. A pending request is kept, the
    /// stronger wins.
    pub fn arm(&mut self, ring: &CqRing, kind: u32) {
        // SeqCst: pairs with the claim's.
        ring.producers.armed.fetch_max(kind, Ordering::SeqCst);
        // A barrier for later accesses, for both kinds of producer: it pairs with the claim in the
        // ring and with the light fence in `Mailbox::publish`.
        heavy();
        self.armed = true;
    }

    /// Grows to `slots` slots (a power of two), and keeps unpolled completions. A ring that is as
    /// large already is kept.
    ///
    /// It never shrinks: a producer that checked for room by the old size may claim right after the
    /// change. Producers wait meanwhile. Nobody else consumes.
    ///
    /// # Safety
    /// `ring` is the one that this consumer was made with. No [`CqEntry`] and no [`Cursor`] of it
    /// is used after, nor a [`Claim`](crate::ring::Claim) whose completions are all published.
    pub unsafe fn grow(&mut self, ring: &CqRing, slots: usize) {
        if slots as u64 <= self.mask + 1 {
            return;
        }
        let shared = &*ring.producers;
        // AcqRel: from here on nobody claims; the loop below waits for earlier claims.
        let tail = shared.tail.fetch_or(FROZEN, Ordering::AcqRel);
        let (new, new_mask) = (allocate(slots), slots as u64 - 1);
        // A new slot's zero would be the number of the position where numbers begin again. Of this
        // one, no position from `tail` on finds it: a lap is shorter than the numbers.
        let unwritten = sequence(tail.wrapping_sub(1), 0, false);
        for at in 0..slots {
            // SAFETY: the new slots are ours alone until `tail` is stored below. Relaxed: published
            // by that.
            unsafe { &*new.add(at) }.seq.store(unwritten, Ordering::Relaxed);
        }
        let (old, old_mask) = (self.slots.cast_mut(), self.mask);
        let mut position = self.head;
        while position != tail {
            // SAFETY: as in `next`; the new slots are ours alone until `tail` is stored below.
            position += unsafe { self.move_completion(ring, position, new, new_mask) };
        }
        // Relaxed, all: published by the Release of `tail`.
        shared.slots.store(new, Ordering::Relaxed);
        shared.mask.store(new_mask, Ordering::Relaxed);
        ring.consumed.head.store(self.head, Ordering::Relaxed);
        shared.head_seen.store(self.head, Ordering::Relaxed);
        (self.slots, self.mask) = (new, new_mask);
        // Release pairs with the Acquire of the next claim.
        shared.tail.store(tail, Ordering::Release);
        // SAFETY: every claim on the old ring was published (each was waited for), a producer
        // doesn't touch a slot after publishing, later claims load the new pointer, and we are the
        // consumer.
        unsafe { release(old, old_mask) };
    }

    /// Copies the completion at `position` to the new ring, waiting until it is published. Returns
    /// its slots.
    ///
    /// # Safety
    /// The contract of [`grow`](Self::grow); `new` has `new_mask` + 1 slots that are the caller's
    /// alone.
    unsafe fn move_completion(&self, ring: &CqRing, position: u64, new: *mut Slot, new_mask: u64) -> u64 {
        // SAFETY: by the contract of `grow`, the consumer was made with this ring.
        let cursor = unsafe { self.cursor(ring) };
        let mut backoff = Backoff::new();
        let seq = loop {
            // Acquire pairs with the Release in `Claim::publish`.
            let seq = cursor.slot(position).seq.load(Ordering::Acquire);
            if seq & POSITION_MASK == (position + 1) & POSITION_MASK {
                break seq;
            }
            backoff.wait();
        };
        let slots = if seq & TWO_SLOTS != 0 { 2 } else { 1 };
        for at in position..position + slots {
            // SAFETY: masked; the new ring is ours alone so far.
            let target = unsafe { &*new.add((at & new_mask) as usize) };
            // SAFETY: the completion is published and not yet taken: its bodies are the consumer's.
            let body = cursor.slot(at).body(|body| unsafe { *body });
            // SAFETY: the slots are ours alone.
            target.body_mut(|to| unsafe { *to = body });
        }
        // SAFETY: the mask keeps the index within the new ring, whose slots are ours alone so far.
        let target = unsafe { &*new.add((position & new_mask) as usize) };
        // Relaxed: read by this thread; producers overwrite it only after claims that see the
        // Release of `tail`.
        target.seq.store(seq, Ordering::Relaxed);
        slots
    }
}

#[inline(always)]
fn prefetch(slot: &Slot) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch affects only timing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(slot).cast());
    }
    let _ = slot;
}
