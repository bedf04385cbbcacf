//! Any sequence of gets, puts, drops and thread hand-offs over two pools, against an oracle that
//! only counts.
use std::collections::HashSet;
use std::thread;

use crate::support::{pool_of, spec};
use proptest::prelude::*;
use verbline_mem::{Batch, BoundCache, Packet, Pool, PoolCache};

// More than three chunks of the free list.
const PACKETS: u32 = 56;

#[derive(Debug, Clone)]
enum Step {
    Get(usize),
    GetBulk(usize, usize),
    GetUnreset(usize, usize),
    /// Put the first packets into a cache, of either pool.
    PutBulk(usize, usize),
    Put(usize),
    Drop(usize),
    DropBatch(usize),
    /// Another thread gets the packets, and drops them or puts them by a cache of its own.
    HandOff(usize, bool),
    Bind(usize),
    Unbind(usize),
    Renew(usize, usize),
    Flush(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (cache, n) = (0usize..4, 0usize..66);
    prop_oneof![
        2 => cache.clone().prop_map(Step::Get),
        4 => (cache.clone(), n.clone()).prop_map(|(c, n)| Step::GetBulk(c, n)),
        2 => (cache.clone(), n.clone()).prop_map(|(c, n)| Step::GetUnreset(c, n)),
        3 => (cache.clone(), n.clone()).prop_map(|(c, n)| Step::PutBulk(c, n)),
        2 => cache.clone().prop_map(Step::Put),
        2 => n.clone().prop_map(Step::Drop),
        2 => n.clone().prop_map(Step::DropBatch),
        1 => (n.clone(), any::<bool>()).prop_map(|(n, by_cache)| Step::HandOff(n, by_cache)),
        1 => cache.clone().prop_map(Step::Bind),
        1 => cache.clone().prop_map(Step::Unbind),
        1 => (cache.clone(), 0usize..12).prop_map(|(c, n)| Step::Renew(c, n)),
        1 => cache.prop_map(Step::Flush),
    ]
}

enum Cache {
    Loose(PoolCache),
    Bound(BoundCache),
}

impl Cache {
    fn get(&self) -> &PoolCache {
        match self {
            Self::Loose(cache) => cache,
            Self::Bound(cache) => cache,
        }
    }
}

struct World {
    pools: [Pool; 2],
    caches: Vec<Option<Cache>>,
    held: Vec<Packet>,
}

impl World {
    fn new() -> Self {
        let pools = [pool_of(spec(PACKETS, 64, 0)), pool_of(spec(PACKETS, 128, 32))];
        let caches = [0, 5, 8, 24].iter().zip([0, 1, 0, 1]);
        let caches = caches.map(|(&capacity, pool): (&usize, usize)| Some(Cache::Loose(pools[pool].cache(capacity))));
        Self { caches: caches.collect(), pools, held: Vec::new() }
    }

    fn cache(&self, c: usize) -> &PoolCache {
        self.caches[c].as_ref().unwrap().get()
    }

    /// The first `n` of the held packets.
    fn take(&mut self, n: usize) -> Batch {
        let mut batch = Batch::with_capacity(n);
        let n = n.min(self.held.len());
        batch.push_iter(self.held.drain(..n));
        batch
    }

    fn hold(&mut self, mut batch: Batch) {
        let n = batch.len();
        self.held.extend(batch.drain_front(n));
    }

    fn free_to(&self, c: usize) -> usize {
        self.cache(c).pool().account().free as usize + self.cache(c).len()
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Get(c) => {
                let there = self.free_to(c);
                let got = self.cache(c).get();
                assert_eq!(got.is_some(), there > 0);
                self.held.extend(got);
            }
            Step::GetBulk(c, n) | Step::GetUnreset(c, n) => {
                let there = self.free_to(c);
                let mut batch = Batch::with_capacity(20);
                let fresh = matches!(step, Step::GetBulk(..));
                let take = if fresh { PoolCache::get_bulk } else { PoolCache::get_bulk_unreset };
                assert_eq!(take(self.cache(c), &mut batch, n), n.min(20).min(there));
                assert!(batch.iter().all(|packet| self.cache(c).pool().owns(packet) && (!fresh || packet.is_empty())));
                self.hold(batch);
            }
            Step::PutBulk(c, n) => {
                let mut batch = self.take(n);
                self.cache(c).put_bulk(&mut batch);
                assert!(batch.is_empty());
            }
            Step::Put(c) => {
                if let Some(packet) = self.held.pop() {
                    self.cache(c).put(packet);
                }
            }
            Step::Drop(n) => drop(self.held.drain(..n.min(self.held.len()))),
            Step::DropBatch(n) => drop(self.take(n)),
            Step::HandOff(n, by_cache) => self.hand_off(n, by_cache),
            Step::Bind(c) => {
                self.caches[c] = self.caches[c].take().map(|cache| match cache {
                    Cache::Loose(cache) => Cache::Bound(cache.bind()),
                    bound => bound,
                });
            }
            Step::Unbind(c) => {
                self.caches[c] = self.caches[c].take().map(|cache| match cache {
                    Cache::Bound(cache) => Cache::Loose(cache.unbind()),
                    loose => loose,
                });
            }
            Step::Renew(c, capacity) => {
                let pool = self.cache(c).pool().clone();
                self.caches[c] = Some(Cache::Loose(pool.cache(capacity)));
            }
            Step::Flush(c) => self.cache(c).flush(),
        }
    }

    fn hand_off(&mut self, n: usize, by_cache: bool) {
        let mut batch = self.take(n);
        let pool = self.pools[0].clone();
        let back = thread::spawn(move || {
            let cache = pool.cache(3).bind();
            if by_cache {
                cache.put_bulk(&mut batch);
                cache.get_bulk(&mut batch, 2);
            } else {
                batch.drain_front(n / 2).for_each(drop);
            }
            batch
        });
        self.hold(back.join().unwrap());
    }

    /// The oracle: the held packets are exactly those that the pools count, each packet once, and
    /// no other packet has its bytes.
    fn check(&mut self, round: u64) {
        for pool in &self.pools {
            let account = pool.account();
            let held = self.held.iter().filter(|packet| pool.owns(packet)).count();
            assert_eq!(account.held as usize, held);
            assert_eq!(account.free + account.cached + account.held, PACKETS);
        }
        let caches = || self.caches.iter().flatten().map(Cache::get);
        assert!(caches().all(|cache| cache.len() <= cache.capacity()));
        let cached: usize = caches().map(PoolCache::len).sum();
        assert_eq!(cached, self.pools.iter().map(|pool| pool.account().cached as usize).sum());
        for (k, packet) in self.held.iter_mut().enumerate() {
            packet.reset();
            assert!(packet.fill(&(round << 32 | k as u64).to_ne_bytes()));
        }
        let seen: HashSet<u64> = self.held.iter().map(Packet::addr).collect();
        assert_eq!(seen.len(), self.held.len());
        for (k, packet) in self.held.iter().enumerate() {
            assert_eq!(packet.data(), (round << 32 | k as u64).to_ne_bytes());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_is_lost_or_twice(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for (round, step) in steps.iter().enumerate() {
            world.run(step);
            world.check(round as u64);
        }
        world.held.clear();
        world.caches.clear();
        for pool in &world.pools {
            prop_assert_eq!(pool.account().free, PACKETS);
        }
    }
}
