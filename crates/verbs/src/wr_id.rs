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
pub enum WrKind {
    /// A packet sent.
    Send,
    /// A packet received by a QP's own RQ.
    Recv,
    /// A one-sided or special work request on the SQ.
    Op,
    /// A packet received through an SRQ.
    SrqRecv,
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

pub(crate) fn pack(tag: u16, kind: WrKind, sequence: u64) -> u64 {
    let kind = match kind {
        WrKind::Send => 0,
        WrKind::Recv => 1,
        WrKind::Op => 2,
        WrKind::SrqRecv => 3,
    };
    u64::from(tag) << TAG_SHIFT | kind << KIND_SHIFT | sequence & SEQUENCE_MASK
}

pub(crate) fn tag(wr_id: u64) -> u16 {
    (wr_id >> TAG_SHIFT) as u16
}

pub(crate) fn kind(wr_id: u64) -> WrKind {
    match (wr_id >> KIND_SHIFT) & 3 {
        0 => WrKind::Send,
        1 => WrKind::Recv,
        2 => WrKind::Op,
        _ => WrKind::SrqRecv,
    }
}

/// The low bits; the caller masks them to its slots.
pub(crate) fn sequence(wr_id: u64) -> u64 {
    wr_id & SEQUENCE_MASK
}

/// The sequence numbers of one queue: consecutive within a block, unique in the process.
#[derive(Debug)]
pub(crate) struct Sequence {
    next: u64,
    left: u64,
}

static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);

impl Sequence {
    pub(crate) fn new() -> Sequence {
        Sequence { next: 0, left: 0 }
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
            // Relaxed: only uniqueness matters, nothing is published by it.
            self.next = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed).wrapping_mul(BLOCK) & SEQUENCE_MASK;
            self.left = BLOCK;
        }
        u64::from(want).min(self.left) as u32
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
