use super::*;
use crate::consumer::Consumer;

/// However many slots are requested: the claim is refused, and the next thread gets its own.
#[test]
fn more_slots_than_there_are_leave_the_ring_as_it_was() {
    let (ring, mut consumer) = CqRing::new(16);
    for position in 0..3 {
        for most in [u32::MAX, u32::MAX - 2, 17] {
            assert_eq!(ring.claim(most).map(|claim| claim.first), Err(Overrun));
        }
        let claim = ring.claim(1).expect("there is room");
        assert_eq!(claim.first, position);
        // SAFETY: the one claimed slot.
        unsafe { claim.publish(position, 7, false) };
    }
    // SAFETY: it was made with this ring.
    let taken = std::iter::from_fn(|| unsafe { consumer.next(&ring) }.inspect(|entry| consumer.advance(entry.slots())));
    assert_eq!(taken.map(|entry| entry.tag).collect::<Vec<_>>(), [7; 3]);
}

/// A ring of four slots, and its consumer, at some position.
fn at(position: u64) -> (CqRing, Consumer) {
    let (ring, mut consumer) = CqRing::new(4);
    // Relaxed, all: one thread.
    ring.producers.tail.store(position, Ordering::Relaxed);
    ring.producers.head_seen.store(position, Ordering::Relaxed);
    consumer.advance_to(position);
    consumer.publish_head(&ring);
    (ring, consumer)
}

/// Publishes one with this tag, and takes it.
fn pass(ring: &CqRing, consumer: &mut Consumer, tag: u32, two_slots: bool) {
    // SAFETY: it was made with this ring.
    assert!(unsafe { consumer.next(ring) }.is_none(), "{tag}: nothing is there");
    let claim = ring.claim(1 + u32::from(two_slots)).expect("there is room");
    // SAFETY: the slots that were claimed.
    unsafe { claim.publish(claim.first, tag, two_slots) };
    // SAFETY: it was made with this ring.
    let taken = unsafe { consumer.next(ring) }.map(|entry| (entry.tag, entry.slots()));
    assert_eq!(taken, Some((tag, 1 + u64::from(two_slots))));
    consumer.advance(1 + u64::from(two_slots));
    consumer.publish_head(ring);
}

/// Slots have 40 bits of their positions: at 84 million completions a second they begin again after
/// three and a half hours.
#[test]
fn positions_begin_again_after_forty_bits() {
    for first in POSITION_MASK - 9..POSITION_MASK - 4 {
        let (ring, mut consumer) = at(first);
        (0..20).for_each(|tag| pass(&ring, &mut consumer, tag, tag % 3 == 1));
        // SAFETY: it was made with this ring.
        assert!(unsafe { consumer.cursor(&ring) }.position() > POSITION_MASK + 4);
    }
}

/// Regression: of a ring that had grown just before, the first slot where they begin again passed
/// for published.
#[test]
fn a_ring_that_grew_has_nothing_where_positions_begin_again() {
    for first in POSITION_MASK - 7..POSITION_MASK + 2 {
        let (ring, mut consumer) = at(first);
        // SAFETY: it was made with this ring, and nothing of it is in use.
        unsafe { consumer.grow(&ring, 16) };
        (0..20).for_each(|tag| pass(&ring, &mut consumer, tag, tag % 3 == 1));
    }
}

/// Publishing another claim's slot would let the ring grow, and free what is still claimed.
#[cfg(debug_assertions)]
#[test]
fn a_position_of_another_claim_is_caught_where_assertions_are_on() {
    let (ring, _consumer) = CqRing::new(16);
    let before = ring.claim(1).expect("there is room");
    let claim = ring.claim(2).expect("there is room");
    for (position, two_slots) in [(0, false), (0, true), (2, true), (3, false)] {
        // SAFETY: the assertion ends it before anything is published, which the last line shows.
        let published = || unsafe { claim.publish(position, 7, two_slots) };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(published));
        assert!(caught.is_err(), "{position}, {two_slots}");
    }
    // Relaxed: one thread.
    let published = |position| before.slot(position).seq.load(Ordering::Relaxed);
    assert_eq!([0, 1, 2, 3].map(published), [0; 4]);
}
