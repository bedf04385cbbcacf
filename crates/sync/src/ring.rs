//! The completion queue's ring: many producers, one consumer, 64-byte slots, and one notification
//! per arming.
//!
//! A completion takes one slot, or two when it carries a payload of more than 40 bytes. A producer
//! claims a run of slots with one compare-and-swap, fills them, and publishes each completion by
//! storing its sequence number last. The consumer never writes a slot: it recognises new
//! completions by the sequence number alone. A lone message in flight may go by a `mailbox`
//! instead.
//!
//! Guarantees:
//! - *Room.* A completion is written only behind the consumer; without room the claim is refused,
//!   and nothing is overwritten.
//! - *Order.* Completions come out in the order of their claims, each whole.
//! - *Wake-ups.* After `Consumer::arm`, either a later `Consumer::next` finds the completion, or
//!   its producer's [`CqRing::fire`] says to notify; never neither. A producer has no fence between
//!   publishing and looking at `armed`, so both may miss each other there. The earlier claim (a
//!   full barrier) prevents a lost wake-up: the armed consumer sees that a slot is claimed, and
//!   waits for it rather than report an empty queue.
//! - *One notification an arm*: the thread that takes `armed` back to zero notifies.

use crate::primitives::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Backoff, Cell, Ordering, after_rmw};
use crossbeam_utils::CachePadded;
use std::marker::PhantomData;

/// Bytes of payload that fit into the first slot of a completion, after the two words of a small
/// message's header. So a payload of 64 bytes ends in the middle of the second slot: touching three
/// halves of lines instead of four costs 14 ns instead of 20.
pub const FIRST_PAYLOAD_BYTES: usize = 40;
/// Bytes of payload that the second slot adds: all but its sequence word, which no payload may
/// imitate.
pub const SECOND_PAYLOAD_BYTES: usize = 56;
/// The longest payload that a completion carries.
pub const PAYLOAD_BYTES_MAX: usize = FIRST_PAYLOAD_BYTES + SECOND_PAYLOAD_BYTES;

/// Not armed.
pub const DISARMED: u32 = 0;
/// Armed for the next solicited completion, or the next error.
pub const SOLICITED: u32 = 1;
/// Armed for the next completion of any kind. The larger number takes precedence.
pub const NEXT: u32 = 2;

const POSITION_BITS: u32 = 40;
pub(crate) const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;
pub(crate) const TWO_SLOTS: u64 = 1 << 63;
/// Tags are 23 bits wide.
pub const TAG_MASK: u32 = (1 << 23) - 1;
/// In `tail`: the ring is being replaced; claims wait.
pub(crate) const FROZEN: u64 = 1 << 63;

/// One slot: a sequence word and 56 bytes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// Position + 1 in the low 40 bits, then the producer's tag, then whether a second slot belongs
    /// to it.
    pub(crate) seq: AtomicU64,
    body: Cell<[u64; 7]>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    /// Accesses the 56 bytes, as their owner: a producer between claim and publish, the consumer
    /// between `next` and `advance`.
    #[inline(always)]
    pub fn body<R>(&self, f: impl FnOnce(*const [u64; 7]) -> R) -> R {
        self.body.with(f)
    }

    /// Like [`body`](Self::body), for writing.
    #[inline(always)]
    pub fn body_mut<R>(&self, f: impl FnOnce(*mut [u64; 7]) -> R) -> R {
        self.body.with_mut(f)
    }
}

/// No room: more completions than the queue's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun;

/// The producers' shared state. One line: with one producer it never leaves that core; `armed` is
/// in it so that looking at it after the claim costs nothing.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Producers {
    /// Next free position.
    pub(crate) tail: AtomicU64,
    /// A copy of the consumer's head, refreshed when it says "full".
    pub(crate) head_seen: AtomicU64,
    pub(crate) slots: AtomicPtr<Slot>,
    pub(crate) mask: AtomicU64,
    pub(crate) armed: AtomicU32,
}

/// The consumer's words. It reads only these on an empty poll, which so leaves the producers' lines
/// alone.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Consumed {
    /// Written by the consumer once a poll, read by producers once a lap.
    pub(crate) head: AtomicU64,
    /// A completion was lost. Written once.
    overrun: AtomicBool,
}

/// See the [module](self).
#[derive(Debug)]
pub struct CqRing {
    pub(crate) producers: CachePadded<Producers>,
    pub(crate) consumed: CachePadded<Consumed>,
}

/// Claimed slots, to be filled and published by their producer. They are valid as long as the ring,
/// and until it grows. Growing waits only for unpublished claims, so a claim whose completions are
/// all published must not be used after it (`Consumer::grow`).
///
/// ```compile_fail,E0505
/// let (ring, _consumer) = verbline_sync::ring::CqRing::new(16);
/// let claim = ring.claim(1).expect("it is empty");
/// drop(ring);
/// // SAFETY: it is claimed.
/// unsafe { claim.publish(0, 1, false) };
/// ```
///
/// The caller guarantees that a position is of this ring:
///
/// ```compile_fail,E0133
/// let (ring, _consumer) = verbline_sync::ring::CqRing::new(16);
/// let (one, _other) = (ring.claim(1).expect("it is empty"), ring.claim(1).expect("it is empty"));
/// one.publish(1, 1, false);
/// ```
#[derive(Debug)]
pub struct Claim<'r> {
    /// The position of the first slot.
    pub first: u64,
    slots: *const Slot,
    mask: u64,
    /// The number of slots, for the assertion of [`Claim::publish`].
    #[cfg(debug_assertions)]
    count: u64,
    ring: PhantomData<&'r CqRing>,
}

/// A completion that the consumer found: its tag, and its slots, which are the ring's.
///
/// ```compile_fail,E0505
/// let (ring, mut consumer) = verbline_sync::ring::CqRing::new(16);
/// // SAFETY: it is claimed.
/// unsafe { ring.claim(1).expect("it is empty").publish(0, 1, false) };
/// // SAFETY: it is its ring.
/// let entry = unsafe { consumer.next(&ring) }.expect("it was published");
/// drop(ring);
/// entry.first().body(|words| words);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CqEntry<'r> {
    /// The producer's tag.
    pub tag: u32,
    /// Whether `second` belongs to it.
    pub two_slots: bool,
    first: &'r Slot,
    second: &'r Slot,
}

impl<'r> CqEntry<'r> {
    #[inline(always)]
    pub(crate) fn new(tag: u32, two_slots: bool, first: &'r Slot, second: &'r Slot) -> CqEntry<'r> {
        CqEntry { tag, two_slots, first, second }
    }

    /// The first slot.
    #[inline(always)]
    pub fn first(&self) -> &'r Slot {
        self.first
    }

    /// The second slot.
    #[inline(always)]
    pub fn second(&self) -> &'r Slot {
        self.second
    }

    /// The number of its slots.
    #[inline(always)]
    pub fn slots(&self) -> u64 {
        1 + u64::from(self.two_slots)
    }
}

impl Claim<'_> {
    /// The slot at `position`, which must be a claimed one.
    #[inline(always)]
    pub fn slot(&self, position: u64) -> &Slot {
        // SAFETY: the mask keeps the index inside the ring, which is borrowed. Its slots are
        // replaced only when every claim is published, and none is used after that: the contract of
        // `Consumer::grow`.
        unsafe { &*self.slots.add((position & self.mask) as usize) }
    }

    /// Makes the completion at `position` visible.
    ///
    /// # Safety
    /// Its slots, one or two, are of this claim, filled, and not published yet: the consumer reads
    /// them from now on, and [`Consumer::grow`](crate::consumer::Consumer::grow) frees a ring all
    /// of whose claims are published.
    #[inline(always)]
    pub unsafe fn publish(&self, position: u64, tag: u32, two_slots: bool) {
        #[cfg(debug_assertions)]
        self.assert_claimed(position, 1 + u64::from(two_slots));
        // Release pairs with the Acquire in `Cursor::peek`: the slots' content is before the
        // number.
        self.slot(position).seq.store(sequence(position, tag, two_slots), Ordering::Release);
    }

    /// Before publishing a completion of two slots at `position`: numbers the second one, so that
    /// it never looks like the first of another, in this lap or in one that wraps the 40 bits.
    ///
    /// # Safety
    /// Both slots are of this claim, and not published yet.
    #[inline(always)]
    pub unsafe fn mark_second(&self, position: u64) {
        #[cfg(debug_assertions)]
        self.assert_claimed(position, 2);
        // Relaxed: if seen at all, it is a number that nobody looks for. The Release in `publish`
        // follows.
        self.slot(position + 1).seq.store(sequence(position, 0, false), Ordering::Relaxed);
    }

    #[cfg(debug_assertions)]
    fn assert_claimed(&self, position: u64, slots: u64) {
        let (first, count) = (self.first, self.count);
        let is_claimed = position >= first && position + slots <= first + count;
        assert!(is_claimed, "{slots} slots from {position} on are not of the claim of {count} from {first} on");
    }
}

#[inline(always)]
pub(crate) fn tag_of(seq: u64) -> u32 {
    (seq >> POSITION_BITS) as u32 & TAG_MASK
}

#[inline(always)]
pub(crate) fn sequence(position: u64, tag: u32, two_slots: bool) -> u64 {
    let number = position.wrapping_add(1) & POSITION_MASK;
    number | u64::from(tag & TAG_MASK) << POSITION_BITS | if two_slots { TWO_SLOTS } else { 0 }
}

pub(crate) fn allocate(slots: usize) -> *mut Slot {
    assert!(slots.is_power_of_two(), "a ring of {slots} slots: not a power of two");
    let ring: Box<[Slot]> = (0..slots).map(|_| Slot::default()).collect();
    Box::into_raw(ring).cast()
}

/// # Safety
/// `slots` and `mask` are those of one `allocate`, and nobody uses it any more.
pub(crate) unsafe fn release(slots: *mut Slot, mask: u64) {
    // SAFETY: by the contract, this is the box that `allocate` made, with its length.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(slots, mask as usize + 1)) });
}

impl CqRing {
    /// A ring over slots that [`allocate`] made.
    pub(crate) fn over(slots: *mut Slot, mask: u64) -> CqRing {
        let producers = Producers {
            tail: AtomicU64::new(0),
            head_seen: AtomicU64::new(0),
            slots: AtomicPtr::new(slots),
            mask: AtomicU64::new(mask),
            armed: AtomicU32::new(DISARMED),
        };
        let consumed = Consumed { head: AtomicU64::new(0), overrun: AtomicBool::new(false) };
        CqRing { producers: CachePadded::new(producers), consumed: CachePadded::new(consumed) }
    }

    /// Producer: claims `slots` slots in a row with one compare-and-swap. No `u32` number of slots
    /// makes a sum of positions overflow.
    #[inline(always)]
    pub fn claim(&self, slots: u32) -> Result<Claim<'_>, Overrun> {
        let (shared, slots) = (&*self.producers, u64::from(slots));
        // Relaxed: the compare-and-swap below decides.
        let mut tail = shared.tail.load(Ordering::Relaxed);
        loop {
            // Acquire pairs with the Release in `claim_slowly`: the thread that refreshed it saw
            // the consumer's reads as done.
            let seen = shared.head_seen.load(Ordering::Acquire);
            // Relaxed: changed only while frozen, and the compare-and-swap sees that.
            let mask = shared.mask.load(Ordering::Relaxed);
            if tail.wrapping_sub(seen).wrapping_add(slots) > mask + 1 {
                tail = self.claim_slowly(tail, slots)?;
                continue;
            }
            // SeqCst: this is the full barrier that the notification protocol rests on (with
            // `after_rmw`); it pairs with `Consumer::arm`. Its Acquire part pairs with the Release
            // in `Consumer::grow`: the new slots are seen.
            match shared.tail.compare_exchange_weak(tail, tail + slots, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    after_rmw();
                    // Relaxed: not replaced while a claim is unpublished.
                    let ring = shared.slots.load(Ordering::Relaxed);
                    let mask = shared.mask.load(Ordering::Relaxed);
                    return Ok(Claim {
                        first: tail,
                        slots: ring,
                        mask,
                        #[cfg(debug_assertions)]
                        count: slots,
                        ring: PhantomData,
                    });
                }
                Err(now) => tail = now,
            }
        }
    }

    /// The claim can't go ahead: the ring is frozen, or looks full. Returns a fresh tail to try
    /// with.
    #[cold]
    fn claim_slowly(&self, tail: u64, slots: u64) -> Result<u64, Overrun> {
        let shared = &*self.producers;
        let mut backoff = Backoff::new();
        if tail & FROZEN != 0 {
            loop {
                // Relaxed: the compare-and-swap in `claim` synchronises.
                let now = shared.tail.load(Ordering::Relaxed);
                if now & FROZEN == 0 {
                    return Ok(now);
                }
                backoff.wait();
            }
        }
        // Acquire pairs with the Release in `Consumer::publish_head`: the consumer has read the
        // slots behind it.
        let head = self.consumed.head.load(Ordering::Acquire);
        // Relaxed, both: compared only to decide whether to try again.
        let (now, mask) = (shared.tail.load(Ordering::Relaxed), shared.mask.load(Ordering::Relaxed));
        if now == tail && tail.wrapping_sub(head).wrapping_add(slots) > mask + 1 {
            return Err(Overrun);
        }
        // Release pairs with the Acquire in `claim`, for producers that didn't read `head`
        // themselves.
        shared.head_seen.store(head, Ordering::Release);
        Ok(now)
    }

    /// Producer, after publishing: whether to notify. `strong` is a solicited completion or an
    /// error.
    #[inline(always)]
    pub fn fire(&self, strong: bool) -> bool {
        // SeqCst: after the claim's barrier; pairs with `Consumer::arm`. A plain load on x86.
        let armed = self.producers.armed.load(Ordering::SeqCst);
        armed != DISARMED && self.take_armed(armed, strong)
    }

    #[cold]
    fn take_armed(&self, mut armed: u32, strong: bool) -> bool {
        while armed == NEXT || (armed == SOLICITED && strong) {
            // AcqRel: between producers that would both notify, and with `arm`.
            match self.producers.armed.compare_exchange(armed, DISARMED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => armed = now,
            }
        }
        false
    }

    /// Marks that a completion was lost. Returns true to the first caller.
    pub fn mark_overrun(&self) -> bool {
        // Relaxed: a lone flag.
        !self.consumed.overrun.swap(true, Ordering::Relaxed)
    }

    /// Whether a completion was lost.
    pub fn is_overrun(&self) -> bool {
        // Relaxed: a lone flag.
        self.consumed.overrun.load(Ordering::Relaxed)
    }

    /// The number of slots.
    pub fn capacity(&self) -> u64 {
        // Relaxed: changed by the consumer's thread only.
        self.producers.mask.load(Ordering::Relaxed) + 1
    }
}

impl Drop for CqRing {
    fn drop(&mut self) {
        // Relaxed, both: exclusive access.
        let (slots, mask) = (self.producers.slots.load(Ordering::Relaxed), self.producers.mask.load(Ordering::Relaxed));
        // SAFETY: `&mut self`: no claim and no entry is left, since they borrow the ring; the
        // consumer follows its pointer only if its caller guarantees the ring (`Consumer::next`,
        // `Consumer::cursor`).
        unsafe { release(slots, mask) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
