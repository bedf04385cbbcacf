use super::*;

/// However many are asked for: they are refused, and the next thread gets its own.
#[test]
fn more_slots_than_there_are_leave_the_ring_as_it_was() {
    let (ring, mut consumer) = CqRing::new(16);
    for position in 0..3 {
        for most in [u32::MAX, u32::MAX - 2, 17] {
            assert_eq!(ring.claim(most).map(|claim| claim.first), Err(Overrun));
        }
        let claim = ring.claim(1).expect("there is room");
        assert_eq!(claim.first, position);
        // SAFETY: the one slot that was claimed.
        unsafe { claim.publish(position, 7, false) };
    }
    // SAFETY: it was made with this ring.
    let taken = std::iter::from_fn(|| unsafe { consumer.next(&ring) }.inspect(|entry| consumer.advance(entry.slots())));
    assert_eq!(taken.map(|entry| entry.tag).collect::<Vec<_>>(), [7; 3]);
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
