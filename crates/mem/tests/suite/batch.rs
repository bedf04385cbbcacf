//! The batch: bounded and ordered; refused packets stay with the caller.
use crate::support::pool;
use verbline_mem::{Batch, Packet, Pool};

/// A batch of `n` packets marked 0, 1, 2, …
fn marked(pool: &Pool, n: usize, capacity: usize) -> Batch {
    let cache = pool.cache(0);
    let mut batch = Batch::with_capacity(capacity);
    assert_eq!(cache.get_bulk(&mut batch, n), n);
    batch.iter_mut().zip(0..).for_each(|(packet, mark)| packet.set_mark(mark));
    batch
}

fn marks(batch: &Batch) -> Vec<u64> {
    batch.iter().map(|packet| packet.mark()).collect()
}

#[test]
fn a_full_batch_gives_the_packet_back() {
    let pool = pool(8);
    let mut batch = marked(&pool, 3, 3);
    assert!(batch.is_full() && batch.room() == 0);
    let packet = pool.cache(0).get().unwrap();
    let addr = packet.addr();
    let packet = batch.push(packet).unwrap_err();
    assert_eq!(packet.addr(), addr);
    assert_eq!(batch.pop().unwrap().mark(), 2);
    batch.push(packet).unwrap();
    assert_eq!((batch.len(), batch.capacity()), (3, 3));
}

#[test]
fn append_moves_from_the_front_what_fits() {
    let pool = pool(16);
    let (mut from, mut to) = (marked(&pool, 6, 6), Batch::with_capacity(4));
    assert_eq!(to.append(&mut from), 4);
    assert_eq!((marks(&to), marks(&from)), (vec![0, 1, 2, 3], vec![4, 5]));
    assert_eq!(to.append(&mut from), 0);
    to.truncate(1);
    assert_eq!(to.append(&mut from), 2);
    assert_eq!((marks(&to), from.is_empty()), (vec![0, 4, 5], true));
    assert_eq!((to.capacity(), from.capacity()), (4, 6));
    assert_eq!(pool.account().held, 3);
}

#[test]
fn batches_of_one_size_append_into_an_empty_one_and_keep_their_sizes() {
    let pool = pool(16);
    let (mut from, mut to) = (marked(&pool, 3, 6), Batch::with_capacity(6));
    assert_eq!(to.append(&mut from), 3);
    assert_eq!((marks(&to), from.is_empty()), (vec![0, 1, 2], true));
    assert_eq!((to.capacity(), to.room(), from.capacity(), from.room()), (6, 3, 6, 6));
    assert_eq!(from.append(&mut Batch::with_capacity(6)), 0);
    from.append(&mut marked(&pool, 4, 4));
    assert_eq!(to.append(&mut from), 3);
    assert_eq!((marks(&to), marks(&from)), (vec![0, 1, 2, 0, 1, 2], vec![3]));
}

#[test]
fn move_front_fills_the_places_in_order_and_the_rest_moves_up() {
    let pool = pool(16);
    let mut batch = marked(&pool, 6, 8);
    let mut places = [const { std::mem::MaybeUninit::<Packet>::uninit() }; 4];
    assert_eq!(batch.move_front(&mut places), 4);
    assert_eq!((marks(&batch), pool.account().held), (vec![4, 5], 6));
    // SAFETY: all four were written.
    let moved: Vec<Packet> = places.into_iter().map(|place| unsafe { place.assume_init() }).collect();
    assert_eq!(moved.iter().map(Packet::mark).collect::<Vec<_>>(), [0, 1, 2, 3]);
    drop(moved);
    let mut places = [const { std::mem::MaybeUninit::<Packet>::uninit() }; 4];
    assert_eq!((batch.move_front(&mut places), batch.len(), pool.account().held), (2, 0, 2));
    // SAFETY: the first two were written.
    places.into_iter().take(2).for_each(|place| drop(unsafe { place.assume_init() }));
    assert_eq!(batch.move_front(&mut []), 0);
}

#[test]
fn take_first_takes_the_oldest() {
    let pool = pool(8);
    let mut batch = marked(&pool, 3, 3);
    for mark in 0..3 {
        assert_eq!(batch.take_first().unwrap().mark(), mark);
    }
    assert!(batch.take_first().is_none() && pool.account().held == 0);
}

#[test]
fn drain_front_takes_in_order_and_returns_what_is_not_taken() {
    let pool = pool(8);
    let mut batch = marked(&pool, 6, 6);
    {
        let mut front = batch.drain_front(4);
        assert_eq!(front.len(), 4);
        assert_eq!(front.next().unwrap().mark(), 0);
    }
    assert_eq!((marks(&batch), pool.account().held), (vec![4, 5], 2));
    assert_eq!(batch.drain_front(9).map(|packet| packet.mark()).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(batch.drain_front(1).len(), 0);
}

#[test]
fn push_iter_asks_for_no_more_than_fits() {
    let pool = pool(8);
    let (mut from, mut to) = (marked(&pool, 5, 5), Batch::with_capacity(3));
    let mut all = from.drain_front(5);
    assert_eq!(to.push_iter(all.by_ref()), 3);
    assert_eq!(all.map(|packet| packet.mark()).collect::<Vec<_>>(), [3, 4]);
    assert_eq!((marks(&to), to.capacity()), (vec![0, 1, 2], 3));
}

#[test]
fn retain_truncate_and_clear_return_the_rest() {
    let pool = pool(16);
    let cache = pool.cache(16).bind();
    let mut batch = marked(&pool, 9, 10);
    batch.retain_mut(|packet| {
        packet.set_mark(packet.mark() * 10);
        packet.mark() % 20 == 0
    });
    assert_eq!((marks(&batch), pool.account().held), (vec![0, 20, 40, 60, 80], 5));
    batch.truncate(7);
    assert_eq!(batch.len(), 5);
    batch.truncate(2);
    assert_eq!((marks(&batch), pool.account().held), (vec![0, 20], 2));
    batch.as_mut_slice().swap(0, 1);
    assert_eq!(marks(&batch), [20, 0]);
    batch.clear();
    assert_eq!((pool.account().held, cache.len()), (0, 9));
}

#[test]
fn a_batch_of_several_pools_clears_into_each() {
    let pools = [pool(8), pool(8), pool(8)];
    let bound = pools[1].cache(8).bind();
    let mut batch = Batch::with_capacity(24);
    for k in [0, 0, 1, 2, 2, 1, 1, 0, 2] {
        batch.push(pools[k].cache(0).get().unwrap()).unwrap();
    }
    drop(batch);
    assert!(pools.iter().all(|pool| pool.account().held == 0));
    assert_eq!((bound.len(), pools[0].account().free, pools[2].account().free), (3, 8, 8));
}

#[test]
fn a_batch_for_nothing_takes_nothing() {
    let pool = pool(2);
    let mut batch = Batch::with_capacity(0);
    let cache = pool.cache(2);
    assert_eq!(cache.get_bulk(&mut batch, 2), 0);
    assert!(batch.push(cache.get().unwrap()).is_err());
    assert_eq!(batch.push_iter(std::iter::from_fn(|| cache.get())), 0);
    assert_eq!(pool.account().held, 0);
}

/// A panic in the middle of `retain_mut` or of a loop loses nothing.
#[test]
fn a_panic_returns_what_it_passes() {
    let pool = pool(8);
    let mut batch = marked(&pool, 8, 8);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        batch.retain_mut(|packet| match packet.mark() {
            5 => panic!("on purpose"),
            mark => mark % 2 == 0,
        });
    }));
    assert!(outcome.is_err());
    assert_eq!(pool.account().held as usize, batch.len());
    drop(batch);
    assert_eq!(pool.account().held, 0);
}

#[test]
fn push_up_to_asks_for_no_more_than_fits_and_keeps_what_came_before_a_panic() {
    let pool = pool(8);
    let mut from = marked(&pool, 6, 6);
    let mut batch = Batch::with_capacity(4);
    assert_eq!(batch.push_up_to(9, |_| from.take_first().filter(|packet| packet.mark() < 1)), 1);
    let mut asked = 0;
    assert_eq!(
        batch.push_up_to(9, |at| {
            assert_eq!(at, asked);
            asked += 1;
            from.take_first()
        }),
        3
    );
    assert_eq!((asked, marks(&batch), marks(&from)), (3, vec![0, 2, 3, 4], vec![5]));
    batch.truncate(1);
    assert_eq!(batch.push_up_to(0, |_| from.take_first()), 0);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        batch.push_up_to(3, |_| Some(from.take_first().expect("one is left")))
    }));
    assert!(panicked.is_err());
    assert_eq!((marks(&batch), pool.account().held), (vec![0, 5], 2));
}

#[test]
fn an_offer_keeps_in_order_what_is_given_back() {
    let pool = pool(16);
    for wanted in [0_u64, 0b1, 0b1010_1010, 0b1111_0000, 0b0000_1111, 0b1111_1111] {
        let mut batch = marked(&pool, 8, 8);
        let mut taken = Vec::new();
        let count = batch.offer(|packet| match wanted >> packet.mark() & 1 {
            1 => {
                taken.push(packet.mark());
                Ok(())
            }
            _ => Err(packet),
        });
        let (yes, no): (Vec<u64>, Vec<u64>) = (0..8).partition(|mark| wanted >> mark & 1 == 1);
        assert_eq!((count, taken, marks(&batch)), (yes.len(), yes, no));
        drop(batch);
        assert_eq!(pool.account().held, 0, "each once");
    }
}

#[test]
fn an_offer_that_panics_loses_only_what_it_was_given() {
    let pool = pool(16);
    let mut batch = marked(&pool, 8, 8);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        batch.offer(|packet| match packet.mark() {
            5 => panic!("as asked"),
            even if even % 2 == 0 => Ok(()),
            _ => Err(packet),
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(marks(&batch), [1, 3, 6, 7]);
    drop(batch);
    assert_eq!(pool.account().held, 0);
}
