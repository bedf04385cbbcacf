//! A place for the only message of a connection in flight.
//!
//! The ring's lines are used in turn, so each message moves lines that nobody touched for a lap. In
//! a conversation, with one message in flight at a time, the mailbox moves the same two lines again
//! and again, and is written without a claim. Measured between two cores of one Zen 4: lines used
//! in turn cost 74 ns one way, up to eight used again 57 ns.
//!
//! Its sender writes it only when it knows from the answers that all earlier messages were taken
//! (`Sq::all_polled`). Otherwise a message goes through the ring.
//!
//! Guarantees:
//! - *One at a time.* A message is written when the one before was taken, by the sender's own
//!   knowledge, which is the condition of [`Mailbox::publish`]. So it needs no lock and no count.
//! - *Order.* The mailbox's message is older than any that its sender puts into the ring before it
//!   is taken; a consumer that looks at the ring first and at the mailbox then, takes the mailbox's
//!   first.
//! - *Wake-ups.* As with the ring: after [`Consumer::arm`](crate::consumer::Consumer::arm) a later
//!   [`Reader::take`] finds the message or its sender's [`CqRing::fire`](crate::ring::CqRing::fire)
//!   says to notify. Here the fences are `verbline_ring`'s: light after publishing, heavy in `arm`.

use crate::primitives::Ordering;
use crate::ring::{CqEntry, Slot, TWO_SLOTS, sequence, tag_of};
use verbline_ring::fence;

/// See the [module](self). The two lines are a pair that prefetchers fetch together.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Mailbox {
    slots: [Slot; 2],
}

/// The consumer's side: the sequence word that it took last.
#[derive(Debug, Default)]
pub struct Reader {
    taken: u64,
}

impl Mailbox {
    /// The first slot, for the sender to fill or the consumer to read.
    #[inline(always)]
    pub fn first(&self) -> &Slot {
        &self.slots[0]
    }

    /// The second slot.
    #[inline(always)]
    pub fn second(&self) -> &Slot {
        &self.slots[1]
    }

    /// Makes the written message visible; then look at [`CqRing::fire`](crate::ring::CqRing::fire).
    /// `number` differs from that of the message before it with the same tag.
    #[inline(always)]
    pub fn publish(&self, number: u64, tag: u32, two_slots: bool) {
        // Release pairs with the Acquire in `Reader::take`: the slots' content is before the
        // number.
        self.slots[0].seq.store(sequence(number, tag, two_slots), Ordering::Release);
        // Pairs with the heavy fence in `Consumer::arm`: it sees the number, or `fire` sees that it
        // is armed.
        fence::light();
    }
}

impl Reader {
    /// Whether there is a message that was not taken yet.
    #[inline(always)]
    pub fn is_pending(&self, mailbox: &Mailbox) -> bool {
        // Relaxed: no data depends on it; `take` loads again.
        mailbox.slots[0].seq.load(Ordering::Relaxed) != self.taken
    }

    /// Takes the message, if it is new. Only the returned message counts as taken: if it is stale
    /// (its queue pair was reset since), a newer one may be written over it meanwhile, and the next
    /// look finds that.
    #[inline(always)]
    pub fn take<'m>(&mut self, mailbox: &'m Mailbox) -> Option<CqEntry<'m>> {
        let [first, second] = &mailbox.slots;
        // Acquire pairs with the Release in `publish`.
        let seq = first.seq.load(Ordering::Acquire);
        let is_new = seq != self.taken;
        self.taken = seq;
        is_new.then(|| CqEntry::new(tag_of(seq), seq & TWO_SLOTS != 0, first, second))
    }
}
