//! The arbiter step by step.

use super::*;

fn arbiter(window: u32, timeout_ns: u64) -> Arbiter<u64> {
    Arbiter::new(ArbiterSpec { window, timeout_ns, first: Some(1), ..ArbiterSpec::default() })
}

#[test]
fn a_hole_on_one_channel_is_filled_by_the_other() {
    let mut a = arbiter(8, 1000);
    assert_eq!(a.offer(Channel::A, 1, 1, 1, 0), Offer::Ready { item: 1, skip: 0 });
    assert_eq!(a.offer(Channel::A, 3, 1, 3, 0), Offer::Held);
    assert_eq!(a.offer(Channel::A, 4, 1, 4, 0), Offer::Held);
    assert_eq!(a.pop(0), None);
    assert_eq!(a.offer(Channel::B, 1, 1, 1, 0), Offer::Old(1));
    assert_eq!(a.offer(Channel::B, 2, 1, 2, 0), Offer::Ready { item: 2, skip: 0 });
    assert_eq!(a.pop(0), Some(Event::Message { item: 3, sequence: 3, skip: 0 }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 4, sequence: 4, skip: 0 }));
    assert_eq!(a.pop(0), None);
    let counts = ArbiterCounts { received: [3, 2], delivered: 4, duplicates: 1, ..Default::default() };
    assert_eq!(*a.counts(), counts);
}

#[test]
fn a_jump_waits_for_a_second_word_and_goes_behind_what_is_in_line() {
    let mut a = arbiter(8, 0);
    assert_eq!(a.offer(Channel::A, 1, 1, 1, 0), Offer::Ready { item: 1, skip: 0 });
    assert_eq!(a.offer(Channel::A, 2, 3, 20, 0), Offer::Ready { item: 20, skip: 0 });
    // B is at 1: nothing confirms that it has come to 5.
    assert_eq!(a.offer(Channel::B, 5, 2, 50, 0), Offer::Held);
    assert_eq!((a.pop(9), a.deadline_ns()), (None, None));
    assert_eq!(a.offer(Channel::A, 5, 2, 51, 0), Offer::Ready { item: 51, skip: 0 });
    assert_eq!((a.held(), a.counts().dropped_items, a.counts().duplicates), (0, 1, 2));
    // An item in line replaces a mere claim; the claim's further messages go behind it.
    assert_eq!(a.offer(Channel::B, 9, 6, 90, 0), Offer::Held);
    assert_eq!(a.offer(Channel::A, 8, 1, 80, 0), Offer::Held);
    assert_eq!(a.offer(Channel::A, 9, 2, 91, 0), Offer::Held);
    assert_eq!(a.counts().duplicates, 4);
    assert_eq!(a.offer(Channel::A, 7, 1, 70, 0), Offer::Ready { item: 70, skip: 0 });
    assert_eq!(a.pop(0), Some(Event::Message { item: 80, sequence: 8, skip: 0 }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 91, sequence: 9, skip: 0 }));
    assert_eq!(a.pop(0), None, "the rest of the claim waits");
    assert_eq!(a.offer(Channel::B, 15, 1, 150, 0), Offer::Held);
    assert_eq!(a.pop(0), Some(Event::Message { item: 90, sequence: 11, skip: 2 }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 150, sequence: 15, skip: 0 }));
}

#[test]
fn what_both_lost_is_a_gap_once_both_go_on_and_late_after() {
    let mut a = arbiter(8, u64::MAX);
    assert_eq!(a.offer(Channel::A, 4, 1, 4, 0), Offer::Held);
    assert_eq!(a.pop(0), None);
    assert_eq!(a.offer(Channel::B, 5, 1, 5, 0), Offer::Held);
    assert_eq!(a.pop(0), None, "each has said so once");
    a.heartbeat(Channel::A, 5);
    assert_eq!(a.pop(0), None);
    a.heartbeat(Channel::B, 6);
    assert_eq!(a.pop(0), Some(Event::Gap { first: 1, count: 3, cause: GapCause::BothPassed }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 4, sequence: 4, skip: 0 }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 5, sequence: 5, skip: 0 }));
    assert_eq!(a.offer(Channel::A, 2, 1, 2, 0), Offer::Old(2));
    assert_eq!((a.counts().late, a.counts().lost, a.counts().gaps), (1, 3, 1));
}

#[test]
fn a_hole_times_out_from_when_it_was_known() {
    let mut a = arbiter(8, 100);
    assert_eq!(a.offer(Channel::A, 2, 1, 2, 50), Offer::Held);
    assert_eq!((a.pop(149), a.deadline_ns()), (None, None), "one claim is no hole");
    assert_eq!(a.offer(Channel::A, 3, 1, 3, 200), Offer::Held);
    assert_eq!(a.pop(200), None);
    assert_eq!(a.deadline_ns(), Some(300));
    assert_eq!(a.pop(299), None);
    assert_eq!(a.pop(300), Some(Event::Gap { first: 1, count: 1, cause: GapCause::TimedOut }));
    assert_eq!(a.pop(300), Some(Event::Message { item: 2, sequence: 2, skip: 0 }));
    assert_eq!(a.pop(300), Some(Event::Message { item: 3, sequence: 3, skip: 0 }));
    assert_eq!(a.deadline_ns(), None);
}

#[test]
fn the_other_channel_bears_a_jump_out() {
    let mut a = arbiter(8, 100);
    assert_eq!(a.offer(Channel::A, 2, 1, 2, 0), Offer::Held);
    assert_eq!(a.offer(Channel::B, 2, 1, 20, 0), Offer::Old(20));
    assert_eq!((a.pop(5), a.deadline_ns()), (None, Some(105)));
    assert_eq!(a.pop(105), Some(Event::Gap { first: 1, count: 1, cause: GapCause::TimedOut }));
    assert_eq!(a.pop(105), Some(Event::Message { item: 2, sequence: 2, skip: 0 }));
}

#[test]
fn the_window_moves_when_it_must() {
    let mut a = arbiter(4, u64::MAX);
    for (sequence, is_in_line) in [(3, false), (4, true), (9, false), (10, true)] {
        assert_eq!(a.offer(Channel::A, sequence, 1, sequence, 0), Offer::Held);
        assert!(is_in_line || a.pop(0).is_none(), "a claim moves nothing");
    }
    assert_eq!(a.pop(0), Some(Event::Gap { first: 1, count: 2, cause: GapCause::WindowFull }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 3, sequence: 3, skip: 0 }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 4, sequence: 4, skip: 0 }));
    assert_eq!(a.pop(0), Some(Event::Gap { first: 5, count: 4, cause: GapCause::WindowFull }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 9, sequence: 9, skip: 0 }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 10, sequence: 10, skip: 0 }));
    assert_eq!(a.pop(0), None);
}

#[test]
fn of_too_many_beyond_the_window_the_oldest_comes_back() {
    let mut a = arbiter(4, u64::MAX);
    // Each is ahead of the last and of everything: nothing confirms the last one, and the eight
    // before it are too far.
    let far = |index: u64| 1_000_000 - index * 1_000;
    for index in 0..BEYOND_ITEMS as u64 {
        assert_eq!(a.offer(Channel::A, far(index), 1, index, 0), Offer::Held);
        a.heartbeat(Channel::A, 1);
    }
    assert_eq!(a.offer(Channel::A, far(8), 1, 8, 0), Offer::Refused(0));
    assert_eq!((a.pop(0), a.held(), a.counts().refused), (None, BEYOND_ITEMS, 1));
    assert_eq!(a.offer(Channel::A, 1, 1, 1, 0), Offer::Ready { item: 1, skip: 0 });
}

#[test]
fn packets_that_overlap_are_delivered_once() {
    let mut a = arbiter(16, u64::MAX);
    assert_eq!(a.offer(Channel::A, 4, 4, 40, 0), Offer::Held);
    assert_eq!(a.offer(Channel::B, 5, 6, 50, 0), Offer::Held);
    a.heartbeat(Channel::B, 11);
    assert_eq!(a.offer(Channel::A, 1, 3, 10, 0), Offer::Ready { item: 10, skip: 0 });
    assert_eq!(a.pop(0), None, "A came back, so that nothing bears out its jump");
    a.heartbeat(Channel::A, 8);
    assert_eq!(a.pop(0), Some(Event::Message { item: 40, sequence: 4, skip: 0 }));
    assert_eq!(a.pop(0), Some(Event::Message { item: 50, sequence: 8, skip: 3 }));
    assert_eq!(a.pop(0), None);
    assert_eq!(a.next_sequence(), Some(11));
    assert_eq!((a.counts().delivered, a.counts().duplicates), (10, 3));
}

#[test]
fn a_corrupt_sequence_number_ends_nothing() {
    let mut a = arbiter(8, 0);
    assert_eq!(a.offer(Channel::A, u64::MAX, 2, 0, 0), Offer::Refused(0));
    assert_eq!(a.offer(Channel::A, 1 << 40, 1, 0, 0), Offer::Refused(0));
    a.heartbeat(Channel::A, 1 << 50);
    assert_eq!(a.pop(0), None);
    assert_eq!(a.offer(Channel::A, 1, 1, 1, 0), Offer::Ready { item: 1, skip: 0 });
}
