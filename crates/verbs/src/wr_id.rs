//! The 64 bits that a work request carries to its completion: the queue's tag, the kind, and the
//! sequence number.
//!
//! ```text
//!   63          48 47 46 45                                             0
//!  ┌──────────────┬─────┬────────────────────────────────────────────────┐
//!  │ tag          │kind │ sequence = generation ∥ slot                   │
//!  └──────────────┴─────┴────────────────────────────────────────────────┘
//! ```
//! The low bits of the sequence are the slot, the bits above count the slot's reuse. Sequences are
//! drawn in blocks from one counter of the process, so that no two work requests of any queues have
//! the same one. A completion that is kept too long, handed to another QP, or left in a CQ by a QP
//! that is gone matches no slot and is found stale. Sequences wrap after 2^46 work requests, less a
//! sixteenth for the gaps between blocks: 76 days at ten million a second. A queue takes a whole
//! block at its first work request, so sequences also wrap after 63 million queues: nine hours of a
//! thousand connections a second, with two queues each.

use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of queue entry that a completion is for.
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

/// The number of a posted work request, unique in the process. Several work requests that belong
/// together have several numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrNumber(u64);

impl WrNumber {
    /// The number of the work request with this `wr_id`, of any kind.
    pub(crate) fn of(wr_id: u64) -> WrNumber {
        WrNumber(wr_id & !(3 << KIND_SHIFT))
    }

    /// The `wr_id` of this number for a work request of this kind.
    pub(crate) fn wr_id(self, kind: WrKind) -> u64 {
        self.0 | kind_bits(kind)
    }
}

const SEQUENCE_BITS: u32 = 46;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;
const KIND_SHIFT: u32 = SEQUENCE_BITS;
const TAG_SHIFT: u32 = KIND_SHIFT + 2;
/// Work requests per block. A queue takes a new block from the shared counter once per this number
/// of posts.
const BLOCK: u64 = 1 << 20;
/// Distance between the starts of two blocks. The numbers in the gap between two blocks are never
/// used: the number behind a queue's last is never another queue's.
const STRIDE: u64 = BLOCK + MAX_SLOTS as u64;
const BLOCKS: u64 = (1 << SEQUENCE_BITS) / STRIDE;
/// The `wr_id` of no work request.
pub(crate) const NO_WR_ID: u64 = u64::MAX;
/// A queue's slots must divide a block, so that the low bits of the sequence go round the slots
/// without a jump.
pub(crate) const MAX_SLOTS: u32 = 1 << 16;

const _: () = assert!(TAG_SHIFT + 16 == 64);
const _: () = assert!(BLOCK.is_multiple_of(MAX_SLOTS as u64) && STRIDE.is_multiple_of(MAX_SLOTS as u64));
// The highest number lies behind the last block.
const _: () = assert!(BLOCKS > 63_000_000 && BLOCKS * STRIDE - MAX_SLOTS as u64 <= SEQUENCE_MASK);

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
    // SAFETY: the kinds are 0 to 3, all values of two bits. (A match took 14 instructions where it
    // was matched on again.)
    unsafe { std::mem::transmute::<u8, WrKind>(bits) }
}

/// The bits of a kind within a `wr_id`.
#[inline]
pub(crate) const fn kind_bits(kind: WrKind) -> u64 {
    (kind as u64) << KIND_SHIFT
}

/// The `wr_id`s of one queue: consecutive within a block, unique in the process.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// The next `wr_id`, tag and kind included.
    next: u64,
    /// The `wr_id` behind the block's last.
    end: u64,
    /// The block's first `wr_id`.
    start: u64,
    /// The end of the used part of the previous block.
    previous_end: u64,
    /// Tag and kind.
    base: u64,
}

static NEXT_BLOCK: AtomicU64 = AtomicU64::new(0);

impl Sequence {
    pub(crate) fn new(tag: u16, kind: WrKind) -> Sequence {
        let base = pack(tag, kind, 0);
        Sequence { next: base, end: base, start: base, previous_end: base, base }
    }

    /// The next work request's number, if one is reserved. Only [`Sequence::advance`] takes it, so
    /// that a refused post reuses it. Its low bits are the slot even when none is reserved.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether a number is left in the block.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        self.next != self.end
    }

    /// Whether `count` numbers are left in the block.
    #[inline]
    pub(crate) fn has(&self, count: usize) -> bool {
        count as u64 <= self.end - self.next
    }

    /// Returns how many numbers, at most `want`, are left before the next block; 0 only if `want`
    /// is.
    #[inline]
    pub(crate) fn reserve(&mut self, want: u32) -> u32 {
        if !self.has_next() {
            self.take_block();
        }
        u64::from(want).min(self.end - self.next) as u32
    }

    #[cold]
    fn take_block(&mut self) {
        self.previous_end = self.next;
        // Relaxed: only uniqueness matters; the counter publishes nothing.
        let block = NEXT_BLOCK.fetch_add(1, Ordering::Relaxed) % BLOCKS;
        self.start = self.base | (block * STRIDE);
        (self.next, self.end) = (self.start, self.start + BLOCK);
    }

    /// How many numbers were taken after this one; `None` if it is not among the last `within`
    /// taken. `within` is less than a block.
    #[inline]
    pub(crate) fn age(&self, number: u64, within: u32) -> Option<u32> {
        let in_block = self.next - self.start;
        let age = self.next.wrapping_sub(number).wrapping_sub(1);
        if age < in_block.min(within.into()) {
            return Some(age as u32);
        }
        self.age_in_previous(number, within)
    }

    #[cold]
    fn age_in_previous(&self, number: u64, within: u32) -> Option<u32> {
        let in_block = self.next - self.start;
        let age = self.previous_end.wrapping_sub(number).wrapping_sub(1);
        (age < u64::from(within).saturating_sub(in_block)).then(|| (in_block + age) as u32)
    }

    /// The number taken `ago` posts ago; 1 is the last. There were at least `ago` posts, and `ago`
    /// is at most a block.
    pub(crate) fn taken(&self, ago: u32) -> u64 {
        let (ago, in_block) = (u64::from(ago), self.next - self.start);
        if ago <= in_block { self.next - ago } else { self.previous_end - (ago - in_block) }
    }

    /// Takes the first `count` of the reserved numbers.
    #[inline]
    pub(crate) fn advance(&mut self, count: u32) {
        self.next += u64::from(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        for kind_in in [WrKind::Send, WrKind::Recv, WrKind::Op, WrKind::SrqRecv] {
            let wr_id = pack(0xbeef, kind_in, SEQUENCE_MASK - 5);
            assert_eq!((tag(wr_id), kind(wr_id), wr_id & SEQUENCE_MASK), (0xbeef, kind_in, SEQUENCE_MASK - 5));
        }
    }

    #[test]
    fn two_queues_never_share_a_number_and_slots_go_round() {
        let (mut a, mut b) = (Sequence::new(7, WrKind::Recv), Sequence::new(7, WrKind::Recv));
        let mut seen = std::collections::HashSet::new();
        let mut slot = 0;
        for _ in 0..(BLOCK / 4096 + 2) {
            for queue in [&mut a, &mut b] {
                assert_eq!(queue.reserve(4096), 4096);
                assert!(seen.insert(queue.next()) && seen.insert(queue.next() + 4095));
                assert!(!seen.contains(&(queue.next() + 4096)));
            }
            assert_eq!(a.next() % 65536, slot);
            slot = (slot + 4096) % 65536;
            a.advance(4096);
            b.advance(4096);
        }
    }

    #[test]
    fn a_number_is_as_old_as_what_was_taken_since_across_blocks() {
        let (mut queue, mut other) = (Sequence::new(1, WrKind::Recv), Sequence::new(1, WrKind::Recv));
        assert_eq!(queue.age(queue.next(), 0), None);
        let mut taken = Vec::new();
        for step in [BLOCK as u32 - 4, 3, 4, 5] {
            let mut left = step;
            while left > 0 {
                let some = queue.reserve(left.min(4));
                taken.extend((0..some).map(|ahead| queue.next() + u64::from(ahead)));
                queue.advance(some);
                left -= some;
                other.reserve(1);
                other.advance((other.end - other.next) as u32);
            }
            for (age, &number) in (0u32..20).zip(taken.iter().rev()) {
                assert_eq!(queue.age(number, 20), Some(age));
                assert_eq!(queue.taken(age + 1), number);
                assert_eq!(queue.age(number, age), None);
            }
            assert_eq!(queue.age(queue.next, 20), None);
            assert_eq!(queue.age(queue.start - 1, 20), None);
            assert_eq!(queue.age(NO_WR_ID, 20), None);
            assert_eq!(queue.age(queue.taken(1) ^ kind_bits(WrKind::Op), 20), None);
        }
    }

    #[test]
    fn a_reservation_stops_at_the_end_of_a_block() {
        let mut queue = Sequence::new(0, WrKind::Send);
        queue.reserve(1);
        queue.advance((BLOCK - 3) as u32);
        assert_eq!(queue.reserve(8), 3);
        queue.advance(3);
        assert_eq!(queue.reserve(8), 8);
        assert_eq!(queue.reserve(0), 0);
    }
}
