//! Pools, caches and batches: packets' places, and the end of each.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::support::{pool, pool_of, region, spec};
use verbline_mem::{Batch, MrBinding, Pool, PoolAccount};

fn account(packets: u32, free: u32, cached: u32, held: u32) -> PoolAccount {
    PoolAccount { packets, free, cached, held }
}

/// Stands for an MR, and is set when it is deregistered.
struct Mr(Arc<AtomicBool>);

impl Drop for Mr {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn with_mr(pool: &Pool) -> Arc<AtomicBool> {
    let gone = Arc::new(AtomicBool::new(false));
    pool.attach_mr(MrBinding { pd_id: 1, lkey: 1, keep: Box::new(Mr(Arc::clone(&gone))) }).unwrap();
    gone
}

#[test]
fn every_packet_is_free_cached_or_held() {
    let pool = pool(100);
    assert_eq!(pool.account(), account(100, 100, 0, 0));
    let cache = pool.cache(20);
    let packet = cache.get().unwrap();
    // One for the caller, and half a cache for the next.
    assert_eq!((pool.account(), cache.len()), (account(100, 89, 10, 1), 10));
    cache.put(packet);
    assert_eq!(pool.account(), account(100, 89, 11, 0));
    drop(cache);
    assert_eq!(pool.account(), account(100, 100, 0, 0));
}

#[test]
fn an_empty_pool_gives_what_it_has_and_then_nothing() {
    let pool = pool(10);
    for capacity in [0, 1, 4, 10, 1000] {
        let cache = pool.cache(capacity);
        assert_eq!(cache.capacity(), capacity.min(10));
        let mut batch = Batch::with_capacity(64);
        assert_eq!(cache.get_bulk(&mut batch, 7), 7);
        assert_eq!(cache.get_bulk(&mut batch, 7), 3);
        assert_eq!(cache.get_bulk(&mut batch, 7), 0);
        assert!(cache.get().is_none());
        assert_eq!(pool.account(), account(10, 0, 0, 10));
        cache.put_bulk(&mut batch);
        assert!(batch.is_empty() && cache.len() <= cache.capacity());
        assert_eq!(pool.account().held, 0);
    }
}

#[test]
fn what_one_cache_holds_another_has_to_wait_for() {
    let pool = pool(8);
    let (hoarder, other) = (pool.cache(8), pool.cache(8));
    drop(hoarder.get());
    assert_eq!(hoarder.len(), 4);
    let mut batch = Batch::with_capacity(8);
    assert_eq!(other.get_bulk(&mut batch, 8), 4);
    hoarder.flush();
    assert!(hoarder.is_empty());
    assert_eq!(other.get_bulk(&mut batch, 8), 4);
}

#[test]
fn a_cache_that_overflows_gives_its_cold_end_away() {
    let pool = pool(64);
    let cache = pool.cache(8);
    let mut batch = Batch::with_capacity(64);
    assert_eq!(cache.get_bulk(&mut batch, 64), 64);
    for _ in 0..8 {
        cache.put(batch.pop().unwrap());
    }
    assert_eq!(cache.len(), 8);
    let last = batch.pop().unwrap();
    let warm = last.addr();
    cache.put(last);
    assert_eq!((cache.len(), pool.account()), (4, account(64, 5, 4, 55)));
    assert_eq!(cache.get().unwrap().addr(), warm, "last in, first out");
    cache.put_bulk(&mut batch);
    assert_eq!(pool.account().held, 0);
    assert!(cache.len() <= 8);
}

#[test]
fn packets_of_other_pools_find_their_own_way_home() {
    let (ours, theirs) = (pool(16), pool(16));
    let (cache, their_cache) = (ours.cache(16), theirs.cache(16));
    let mut batch = Batch::with_capacity(32);
    for _ in 0..8 {
        batch.push(cache.get().unwrap()).unwrap();
        batch.push(their_cache.get().unwrap()).unwrap();
    }
    assert!(ours.owns(&batch.as_slice()[0]) && !ours.owns(&batch.as_slice()[1]));
    cache.put_bulk(&mut batch);
    assert!(batch.is_empty());
    assert_eq!((ours.account().held, theirs.account().held), (0, 0));
    cache.put(their_cache.get().unwrap());
    assert_eq!(theirs.account().held, 0);

    // A batch that overflows the cache, with one stranger in it.
    let small = ours.cache(2);
    cache.flush();
    assert_eq!(small.get_bulk(&mut batch, 6), 6);
    batch.push(their_cache.get().unwrap()).unwrap();
    small.put_bulk(&mut batch);
    assert_eq!((ours.account().held, theirs.account().held), (0, 0));
    // A cache returns only its own pool's packets, whatever was put in.
    drop((their_cache, small, cache));
    let cache = ours.cache(16);
    assert_eq!(cache.get_bulk(&mut batch, 16), 16);
    assert!(batch.iter().all(|packet| ours.owns(packet)));
}

/// Handles are copied and checked several at a time: order is kept at every length, and a stranger
/// is found at every place.
#[test]
fn bulks_of_every_length_keep_their_order_and_find_the_stranger() {
    let (ours, theirs) = (pool(256), pool(1));
    let cache = ours.cache(80);
    let mut batch = Batch::with_capacity(64);
    for n in 1..=64 {
        assert_eq!(cache.get_bulk(&mut batch, n), n);
        let addresses: Vec<u64> = batch.iter().map(|packet| packet.addr()).collect();
        cache.put_bulk(&mut batch);
        assert!(batch.is_empty());
        assert_eq!(cache.get_bulk(&mut batch, n), n);
        assert!(batch.iter().map(|packet| packet.addr()).eq(addresses), "{n} packets");
        for place in 0..n {
            let own = std::mem::replace(&mut batch.as_mut_slice()[place], theirs.cache(0).get().expect("it is home"));
            assert_eq!(ours.account().held as usize, n);
            cache.put_bulk(&mut batch);
            assert_eq!((theirs.account().free, ours.account().held), (1, 1), "a stranger at {place} of {n}");
            drop(own);
            assert_eq!(cache.get_bulk(&mut batch, n), n);
        }
        batch.clear();
    }
}

#[test]
fn a_drop_returns_to_the_bound_cache_else_to_the_free_list() {
    let pool = pool(32);
    let cache = pool.cache(16);
    let packets: Vec<_> = (0..4).map(|_| cache.get().unwrap()).collect();
    cache.flush();
    let mut packets = packets.into_iter();
    drop(packets.next());
    assert_eq!(pool.account(), account(32, 29, 0, 3));
    let bound = cache.bind();
    drop(packets.next());
    assert_eq!(pool.account(), account(32, 29, 1, 2));
    let far = packets.next();
    thread::spawn(move || drop(far)).join().unwrap();
    assert_eq!(pool.account(), account(32, 30, 1, 1));
    let cache = bound.unbind();
    drop(packets.next());
    assert_eq!((pool.account(), cache.len()), (account(32, 31, 1, 0), 1));
}

#[test]
fn guards_go_in_any_order() {
    let pools = [pool(8), pool(8), pool(8)];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut guards = pools.each_ref().map(|pool| Some(pool.cache(8).bind()));
        let mut held: Vec<_> = guards.iter().map(|guard| guard.as_ref().unwrap().get()).collect();
        for (gone, &k) in order.iter().enumerate() {
            guards[k] = None;
            drop(held[k].take());
            assert_eq!(pools[k].account(), account(8, 8, 0, 0));
            for &k in &order[gone + 1..] {
                drop(held[k].take());
                assert_eq!(pools[k].account().held, 0);
                assert!(pools[k].account().cached > 0);
                held[k] = guards[k].as_ref().unwrap().get();
            }
        }
    }
}

#[test]
fn of_two_bound_caches_of_a_pool_the_later_is_used() {
    let pool = pool(8);
    let early = pool.cache(8).bind();
    let packets = [early.get(), early.get()];
    let before = early.len();
    let late = pool.cache(8).bind();
    let [first, second] = packets;
    drop(first);
    assert_eq!((early.len(), late.len()), (before, 1));
    drop(late);
    drop(second);
    assert_eq!(early.len(), before + 1);
}

#[test]
fn a_forgotten_guard_leaks_and_no_more() {
    // Keeps leaked packets reachable, for the leak sanitizer.
    static KEPT: OnceLock<Pool> = OnceLock::new();
    let pool = KEPT.get_or_init(|| pool(8));
    thread::spawn({
        let pool = pool.clone();
        move || {
            let bound = pool.cache(4).bind();
            let packet = bound.get();
            std::mem::forget(bound);
            drop(packet);
        }
    })
    .join()
    .unwrap();
    let left = pool.account();
    assert_eq!((left.held, left.free + left.cached), (0, 8));
    let mut batch = Batch::with_capacity(8);
    assert_eq!(pool.cache(0).get_bulk(&mut batch, 8), left.free as usize);
}

#[test]
fn the_pool_goes_with_its_last_handle_and_takes_its_mr() {
    let pool = pool(8);
    let gone = with_mr(&pool);
    let cache = pool.cache(4);
    drop(cache.get());
    drop(pool);
    assert!(!gone.load(Ordering::SeqCst), "the cache still holds the pool");
    drop(cache);
    assert!(gone.load(Ordering::SeqCst));
}

#[test]
fn a_pool_with_packets_out_is_leaked_and_they_stay_good() {
    let pool = pool(8);
    let gone = with_mr(&pool);
    let mut packet = pool.cache(4).get().unwrap();
    let mut forgotten = Batch::with_capacity(4);
    pool.cache(0).get_bulk(&mut forgotten, 4);
    let leaked = verbline_mem::leaked_pools();
    drop(pool);
    assert!(verbline_mem::leaked_pools() > leaked);
    assert!(packet.fill(b"still mapped") && packet.data() == b"still mapped");
    assert_eq!((packet.lkey(), packet.pool_name()), (1, "test"));
    drop(packet);
    drop(forgotten);
    assert!(!gone.load(Ordering::SeqCst), "leaked for good: its MR is never deregistered");
}

#[test]
fn threads_that_pass_packets_on_lose_none() {
    let pool = pool(256);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Batch>(4);
    thread::scope(|scope| {
        let source = pool.clone();
        scope.spawn(move || {
            let cache = source.cache(32).bind();
            let mut sent = 0u64;
            while sent < 20_000 {
                let mut batch = Batch::with_capacity(16);
                cache.get_bulk(&mut batch, 16);
                for packet in &mut batch {
                    assert!(packet.fill(&sent.to_ne_bytes()));
                    sent += 1;
                }
                sender.send(batch).unwrap();
            }
        });
        let sink = pool.clone();
        scope.spawn(move || {
            let cache = sink.cache(8).bind();
            let mut expected = 0u64;
            for mut batch in receiver {
                assert!(batch.iter().all(|packet| {
                    expected += 1;
                    packet.data() == (expected - 1).to_ne_bytes()
                }));
                match expected % 3 {
                    0 => cache.put_bulk(&mut batch),
                    1 => drop(batch),
                    _ => batch.drain_front(9).for_each(drop),
                }
            }
        });
    });
    assert_eq!(pool.account(), account(256, 256, 0, 0));
}

#[test]
fn impossible_pools_are_errors_that_say_what_to_do() {
    let refuse = |spec| Pool::new(region(4096), spec).unwrap_err().to_string();
    assert_eq!(refuse(spec(0, 64, 0)), "pool `test`: packets is 0; it must be at least 1");
    assert_eq!(refuse(spec(4, 0, 64)), "pool `test`: data_bytes is 0; it must be at least 1");
    assert_eq!(
        refuse(spec(u32::MAX, 64, 0)),
        "pool `test`: 4294967295 packets; the most is 4294967294: use several pools"
    );
    assert_eq!(
        refuse(spec(1, u32::MAX, 1)),
        "pool `test`: headroom_bytes 1 + data_bytes 4294967295 is above 4294967295; ask for less"
    );
    assert_eq!(
        refuse(spec(64, 64, 64)),
        "pool `test`: region `test` has 4096 bytes, 8192 are needed; map a region of Pool::required_bytes(&spec)"
    );
    assert!(Pool::required_bytes(&spec(u32::MAX, u32::MAX, u32::MAX)) > isize::MAX as usize);
}

#[test]
fn a_pool_of_one_packet_works() {
    let pool = pool_of(spec(1, 1, 0));
    assert_eq!(Pool::required_bytes(&spec(1, 1, 0)), 64);
    let cache = pool.cache(usize::MAX);
    let packet = cache.get().unwrap();
    assert!(cache.get().is_none());
    drop(packet);
    assert!(cache.get().is_some());
}
