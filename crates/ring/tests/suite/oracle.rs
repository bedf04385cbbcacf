//! The ring against a `VecDeque`: generated operations, with the same answers after each.
use proptest::prelude::*;
use std::collections::VecDeque;
use std::rc::Rc;
use verbline_ring::spsc;

#[derive(Clone, Debug)]
enum Op {
    /// Offer `items` items with a limit of `n`.
    Push {
        n: usize,
        items: usize,
    },
    PushOne,
    /// Take up to `n`.
    Pop {
        n: usize,
    },
    PopOne,
    /// Ask for `n`, iterate `reach` of them and drop the iterator.
    Peel {
        n: usize,
        reach: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..40usize, 0..40usize).prop_map(|(n, items)| Op::Push { n, items }),
        1 => Just(Op::PushOne),
        3 => (0..40usize).prop_map(|n| Op::Pop { n }),
        1 => Just(Op::PopOne),
        2 => (0..40usize, 0..40usize).prop_map(|(n, reach)| Op::Peel { n, reach }),
    ]
}

proptest! {
    /// Items own memory and know when they are dropped, so a lost or doubled one shows at the end.
    #[test]
    fn does_what_a_bounded_queue_does(capacity in 0..24usize, ops in prop::collection::vec(op(), 0..60)) {
        let alive = Rc::new(());
        let (mut producer, mut consumer) = spsc::<(u64, Rc<()>)>(capacity);
        let mut oracle = VecDeque::new();
        let mut next = 0;
        for op in ops {
            match op {
                Op::Push { n, items } => {
                    let fits = n.min(items).min(capacity - oracle.len());
                    prop_assert_eq!(producer.room_for(n), n.min(capacity - oracle.len()));
                    let mut offered: VecDeque<_> = (next..next + items as u64).map(|id| (id, alive.clone())).collect();
                    let mut pulls = 0;
                    let pushed = producer.push_iter(n, std::iter::from_fn(|| {
                        pulls += 1;
                        offered.pop_front()
                    }));
                    prop_assert_eq!(pushed, fits);
                    // Refused items stay with the caller, in order.
                    prop_assert_eq!(offered.len(), items - fits);
                    prop_assert!(pulls <= n.min(capacity - oracle.len()));
                    oracle.extend(next..next + fits as u64);
                    next += fits as u64;
                }
                Op::PushOne => {
                    let refused = producer.push((next, alive.clone())).err();
                    prop_assert_eq!(refused.map(|item| item.0), (oracle.len() == capacity).then_some(next));
                    if oracle.len() < capacity {
                        oracle.push_back(next);
                        next += 1;
                    }
                }
                Op::Pop { n } => {
                    let mut got = Vec::new();
                    let taken = consumer.pop_into(n, |item| got.push(item.0));
                    prop_assert_eq!(taken, n.min(oracle.len()));
                    prop_assert_eq!(got, oracle.drain(..taken).collect::<Vec<_>>());
                }
                Op::PopOne => prop_assert_eq!(consumer.pop().map(|item| item.0), oracle.pop_front()),
                Op::Peel { n, reach } => {
                    let mut items = consumer.pop_iter(n);
                    prop_assert_eq!(items.len(), n.min(oracle.len()));
                    let reached: Vec<_> = items.by_ref().take(reach).map(|item| item.0).collect();
                    prop_assert_eq!(items.len(), n.min(oracle.len()) - reached.len());
                    drop(items);
                    let expected = reach.min(n).min(oracle.len());
                    prop_assert_eq!(reached, oracle.drain(..expected).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(consumer.len(), oracle.len());
            prop_assert_eq!(consumer.is_empty(), oracle.is_empty());
            prop_assert_eq!(producer.len(), oracle.len());
            prop_assert_eq!(producer.is_empty(), oracle.is_empty());
            prop_assert_eq!(producer.room(), capacity - oracle.len());
            prop_assert_eq!((producer.capacity(), consumer.capacity()), (capacity, capacity));
            prop_assert_eq!(Rc::strong_count(&alive), 1 + oracle.len());
        }
        drop((producer, consumer));
        prop_assert_eq!(Rc::strong_count(&alive), 1);
    }
}

#[test]
fn a_sink_that_panics_loses_only_what_it_was_given() {
    let (mut producer, mut consumer) = spsc(8);
    assert_eq!(producer.push_iter(8, 0..5), 5);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        consumer.pop_into(5, |item| assert!(item < 2));
    }));
    assert!(panicked.is_err());
    assert_eq!(consumer.pop_iter(8).collect::<Vec<_>>(), [3, 4]);
    assert_eq!(producer.room(), 8);
}

#[test]
fn each_end_can_tell_that_the_other_is_gone() {
    let (mut producer, mut consumer) = spsc(4);
    assert!(!producer.is_abandoned() && !consumer.is_abandoned());
    assert_eq!(producer.push_iter(2, [1, 2]), 2);
    drop(producer);
    assert!(consumer.is_abandoned());
    assert_eq!(consumer.pop_iter(4).collect::<Vec<_>>(), [1, 2]);

    let alive = Rc::new(());
    let (mut producer, consumer) = spsc(4);
    assert_eq!(producer.push_iter(1, [alive.clone()]), 1);
    drop(consumer);
    assert!(producer.is_abandoned());
    assert_eq!(producer.push_iter(9, std::iter::repeat(alive.clone())), 3);
    assert_eq!(producer.push(alive.clone()), Err(alive.clone()));
    drop(producer);
    assert_eq!(Rc::strong_count(&alive), 1);
}
