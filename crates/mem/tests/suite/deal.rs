//! A batch dealt out to others, compared with the same number of vectors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use verbline_mem::{Batch, PageChoice, PageSize, Pool, PoolCache, PoolSpec, Region, RegionSpec};

const PACKETS: u32 = 64;

fn cache() -> (Pool, PoolCache) {
    let spec = PoolSpec { name: "deal".into(), packets: PACKETS, data_bytes: 64, headroom_bytes: 0 };
    let region = Region::map(&RegionSpec {
        name: "deal".into(),
        len_bytes: Pool::required_bytes(&spec),
        pages: PageChoice::Exactly(PageSize::Small4K),
        lock: false,
    })
    .unwrap();
    let pool = Pool::new(region, spec).unwrap();
    let cache = pool.cache(8);
    (pool, cache)
}

/// A batch of packets with these marks.
fn batch(cache: &PoolCache, capacity: usize, marks: impl IntoIterator<Item = u64>) -> Batch {
    let mut batch = Batch::with_capacity(capacity);
    for mark in marks {
        let mut packet = cache.get().unwrap();
        packet.set_mark(mark);
        batch.push(packet).unwrap();
    }
    batch
}

fn marks(batch: &Batch) -> Vec<u64> {
    batch.iter().map(|packet| packet.mark()).collect()
}

proptest! {
    #[test]
    fn a_deal_is_all_or_nothing_and_keeps_the_order(
        packets in prop::collection::vec(0u64..30, 0..12),
        rooms in prop::array::uniform3(0usize..14),
        before in prop::array::uniform3(0usize..3),
    ) {
        let (pool, cache) = cache();
        let mut from = batch(&cache, 16, packets.iter().copied());
        let mut targets = std::array::from_fn::<_, 3, _>(|at| {
            batch(&cache, before[at] + rooms[at], std::iter::repeat_n(99, before[at]))
        });
        let mut expected = before.map(|before| vec![99; before]);
        let fits = rooms.iter().all(|room| *room >= packets.len());
        let dealt = from.deal(targets.each_mut(), |packet| packet.mark() as usize % 3);
        prop_assert_eq!(dealt, fits);
        if fits {
            packets.iter().for_each(|mark| expected[*mark as usize % 3].push(*mark));
        }
        prop_assert_eq!(marks(&from), if fits { Vec::new() } else { packets });
        prop_assert_eq!(targets.each_ref().map(marks), expected);
        drop((from, targets, cache));
        prop_assert_eq!(pool.account().held, 0);
    }

    /// Packets before an invalid place are dealt; that packet and later ones stay.
    #[test]
    fn a_place_that_is_none_loses_no_packet(wrong in 0u64..6) {
        let (pool, cache) = cache();
        let mut from = batch(&cache, 8, 0..6);
        let mut targets = std::array::from_fn::<_, 2, _>(|_| Batch::with_capacity(8));
        let dealing = AssertUnwindSafe(|| {
            from.deal(targets.each_mut(), |packet| if packet.mark() == wrong { 2 } else { packet.mark() as usize % 2 })
        });
        prop_assert!(catch_unwind(dealing).is_err());
        prop_assert_eq!(marks(&from), (wrong..6).collect::<Vec<_>>());
        prop_assert_eq!(marks(&targets[0]), (0..wrong).filter(|mark| mark % 2 == 0).collect::<Vec<_>>());
        prop_assert_eq!(marks(&targets[1]), (0..wrong).filter(|mark| mark % 2 == 1).collect::<Vec<_>>());
        drop((from, targets, cache));
        prop_assert_eq!(pool.account().held, 0);
    }
}
