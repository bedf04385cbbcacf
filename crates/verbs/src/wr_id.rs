//! The 64 bits that a work request carries to its completion: whose it is, of what kind, and which one.
//!
//! ```text
//!   63          48 47 46 45                                             0
//!  ┌──────────────┬─────┬────────────────────────────────────────────────┐
//!  │ tag          │kind │ sequence = generation ∥ slot                   │
//!  └──────────────┴─────┴────────────────────────────────────────────────┘
//! ```
//! The low bits of the sequence are the slot, the bits above count its reuse. Sequences are drawn in blocks from one counter of
//! the process, so that no two work requests have the same one, on whichever queue they were posted: a completion that is kept
//! too long, handed to another QP, or left in a CQ by a QP that is gone matches no slot and is found stale. They come round
//! after 2^46 work requests: 81 days at ten million a second.

use std::sync::atomic::{AtomicU64, Ordering};

/// What kind of queue entry a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WrKind {
    /// A packet sent.
    Send = 0,
    /// A packet received by a QP's own RQ.
    Recv = 1,
    /// A one-sided or special work request on the SQ.
    Op = 2,
    /// A packet received through an SRQ.
    SrqRecv = 3,
}

const SEQUENCE_BITS: u32 = 46;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
const KIND_SHIFT: u32 = SEQUENCE_BITS;
const TAG_SHIFT: u32 = KIND_SHIFT + 2;
/// Work requests a block. A queue takes a new block from the shared counter once in as many posts.
const BLOCK: u64 = 1 << 20;
/// A queue's slots must divide a block, so that the low bits of the sequence go round the slots without a jump.
pub(crate) const MAX_SLOTS: u32 = 1 << 16;

const _: () = assert!(TAG_SHIFT + 16 == 64);
const _: () = assert!(BLOCK.is_multiple_of(MAX_SLOTS as u64) && BLOCK <= SEQUENCE_MASK);

#[inline]
pub(crate) fn pack(tag: u16, kind: WrKind, sequence: u64) -> u64 {
    u64::from(tag) << TAG_SHIFT | (kind as u64) << KIND_SHIFT | sequence & SEQUENCE_MASK
}

#[inline]
pub(crate) fn tag(wr_id: u64) -> u16 {
    (wr_id >> TAG_SHIFT) as u16
}

#[inline]
pub(crate) fn kind(wr_id: u64) -> WrKind {
    let bits = (wr_id >> KIND_SHIFT) as u8 & 3;
    // SAFETY: the kinds are 0 to 3, all that two bits can be. (A match took 14 instructions where it was matched on again.)
    unsafe { std::mem::transmute::<u8, WrKind>(bits) }
}

/// The low bits; the caller masks them to its slots.
#[inline]
pub(crate) fn sequence(wr_id: u64) -> u64 {
    wr_id & SEQUENCE_MASK
}

/// The sequence numbers of one queue: consecutive within a block, unique in the process.
#[derive(Debug)]
pub(crate) struct Sequence {
    next: u64,
    left: u64,
    /// Where the block before this one ended.
    previous_end: u64,
}

static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);

impl Sequence {
    pub(crate) fn new() -> Sequence {
        Sequence { next: 0, left: 0, previous_end: 0 }
    }

    /// The number of the next work request. It is taken only by [`Sequence::advance`], so that a refused post reuses it.
    ///
    /// `ahead` is how many others are formatted but not yet posted; the caller never formats past the end of a block.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> u64 {
        debug_assert!(u64::from(ahead) < self.left);
        self.next + u64::from(ahead)
    }

    /// How many numbers, at most `want`, can be had before the next block; never 0 unless `want` is.
    #[inline]
    pub(crate) fn reserve(&mut self, want: u32) -> u32 {
        if self.left == 0 {
            self.previous_end = self.next;
            // Relaxed: only uniqueness matters, nothing is published by it.
            self.next = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed).wrapping_mul(BLOCK) & SEQUENCE_MASK;
            self.left = BLOCK;
        }
        u64::from(want).min(self.left) as u32
    }

    /// How many numbers were taken after this one, if it is one of the last `within` that were. `within` is less than a block.
    #[inline]
    pub(crate) fn age(&self, number: u64, within: u32) -> Option<u32> {
        let in_block = BLOCK - self.left;
        let age = self.next.wrapping_sub(number).wrapping_sub(1);
        if age < in_block.min(within.into()) {
            return Some(age as u32);
        }
        self.age_in_previous(number, within)
    }

    #[cold]
    fn age_in_previous(&self, number: u64, within: u32) -> Option<u32> {
        let in_block = BLOCK - self.left;
        let age = self.previous_end.wrapping_sub(number).wrapping_sub(1);
        (age < u64::from(within).saturating_sub(in_block)).then(|| (in_block + age) as u32)
    }

    /// Takes the first `count` of the reserved numbers.
    #[inline]
    pub(crate) fn advance(&mut self, count: u32) {
        self.next += u64::from(count);
        self.left -= u64::from(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        for kind_in in [WrKind::Send, WrKind::Recv, WrKind::Op, WrKind::SrqRecv] {
            let wr_id = pack(0xbeef, kind_in, SEQUENCE_MASK - 5);
            assert_eq!((tag(wr_id), kind(wr_id), sequence(wr_id)), (0xbeef, kind_in, SEQUENCE_MASK - 5));
        }
    }

    #[test]
    fn two_queues_never_share_a_number_and_slots_go_round() {
        let (mut a, mut b) = (Sequence::new(), Sequence::new());
        let mut seen = std::collections::HashSet::new();
        let mut slot = 0;
        for _ in 0..(BLOCK / 4096 + 2) {
            for queue in [&mut a, &mut b] {
                assert_eq!(queue.reserve(4096), 4096);
                assert!(seen.insert(queue.peek(0)) && seen.insert(queue.peek(4095)));
            }
            assert_eq!(a.peek(0) % 65536, slot);
            slot = (slot + 4096) % 65536;
            a.advance(4096);
            b.advance(4096);
        }
    }

    #[test]
    fn a_number_is_as_old_as_what_was_taken_since_across_blocks() {
        let (mut queue, mut other) = (Sequence::new(), Sequence::new());
        assert_eq!(queue.age(0, 0), None);
        let mut taken = Vec::new();
        for step in [BLOCK as u32 - 4, 3, 4, 5] {
            let mut left = step;
            while left > 0 {
                let some = queue.reserve(left.min(4));
                taken.extend((0..some).map(|ahead| queue.peek(ahead)));
                queue.advance(some);
                left -= some;
                other.reserve(1);
                other.advance(other.left as u32);
            }
            for (age, &number) in (0u32..20).zip(taken.iter().rev()) {
                assert_eq!(queue.age(number, 20), Some(age));
                assert_eq!(queue.age(number, age), None);
            }
            assert_eq!(queue.age(queue.next, 20), None);
            assert_eq!(queue.age(queue.next - (BLOCK - queue.left) - 1, 20).filter(|_| queue.left > BLOCK - 20), None);
        }
    }

    #[test]
    fn a_reservation_stops_at_the_end_of_a_block() {
        let mut queue = Sequence::new();
        queue.reserve(1);
        queue.advance((BLOCK - 3) as u32);
        assert_eq!(queue.reserve(8), 3);
        queue.advance(3);
        assert_eq!(queue.reserve(8), 8);
        assert_eq!(queue.reserve(0), 0);
    }
}
