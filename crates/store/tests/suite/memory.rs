//! The store in memory, and the store that keeps nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::common::oracle::Oracle;
use crate::common::{filled, memory, one, pool};
use verbline_mem::{PageChoice, PeerRegion, Region, RegionSpec};
use verbline_store::{Fault, Geometry, GeometryError, MemoryStore, NullStore, Op, Request, Store};

#[test]
fn random_operations_agree_with_an_oracle() {
    for (seed, block_bytes) in [(1, 512), (2, 4096), (3, 512), (4, 520), (5, 4104)] {
        let mut store = MemoryStore::new(memory(64 * block_bytes as usize), block_bytes, 8).unwrap();
        let pool = pool(64, 4 * block_bytes);
        let cache = pool.cache(64).bind();
        let mut oracle = Oracle::new(&store, &cache, seed, 16);
        oracle.run(&mut store, 5000);
        drop(oracle);
        assert_eq!(pool.account().held, 0);
    }
}

#[test]
fn blocks_beyond_4_gib_are_read_written_and_found_where_they_lie() {
    let spec = RegionSpec { name: "large".into(), len_bytes: 5 << 30, pages: PageChoice::OnDemand, lock: false };
    let memory = Arc::new(PeerRegion::new(Region::map(&spec).unwrap()));
    let mut store = MemoryStore::new(memory.clone(), 4096, 4).unwrap();
    let cache = pool(8, 4096).cache(8);
    let (last, alias) = ((5 << 18) - 1, (1 << 18) - 1);
    assert_eq!(store.geometry().blocks, last + 1);
    assert!(one(&mut store, Request::write(last, 1, filled(&cache, 4096, 9), false, 0)).result.is_ok());
    let read =
        |store: &mut MemoryStore<_>, lba| one(store, Request::read(lba, 1, filled(&cache, 4096, 1), 0)).packet.unwrap();
    assert_eq!(read(&mut store, last).data(), [9; 4096]);
    assert_eq!(read(&mut store, alias).data(), [0; 4096], "no block lost the upper bits of its place");
    let direct = store.direct(last, 1).unwrap();
    assert_eq!(direct, (5 << 30) - 4096..5 << 30);
    assert_eq!(memory.load_u64(direct.start).unwrap(), u64::from_ne_bytes([9; 8]));
}

#[test]
fn stores_over_the_same_memory_see_the_same_blocks() {
    let memory = memory(8 * 512);
    let mut first = MemoryStore::new(memory.clone(), 512, 4).unwrap();
    let mut second = MemoryStore::new(memory.clone(), 512, 4).unwrap();
    let cache = pool(8, 512).cache(8);
    assert!(one(&mut first, Request::write(7, 1, filled(&cache, 512, 9), false, 0)).result.is_ok());
    let read = one(&mut second, Request::read(7, 1, filled(&cache, 512, 0), 0));
    assert_eq!(read.packet.unwrap().data(), [9; 512]);

    // At the address that the wire uses.
    let direct = second.direct(7, 1).unwrap();
    let mut bytes = [0; 512];
    memory.read_into(direct.start, &mut bytes).unwrap();
    assert_eq!((direct.len(), bytes), (512, [9; 512]));
    assert_eq!((second.direct(7, 2), second.direct(u64::MAX, 2)), (None, None));
}

#[test]
fn what_does_not_fit_waits_and_what_is_wrong_comes_back() {
    let cache = pool(16, 1024).cache(16);
    let geometry = Geometry::of_bytes(8 * 512, 512).unwrap();
    let memory_store = MemoryStore::new(memory(8 * 512), 512, 2).unwrap();
    let stores: [Box<dyn Store>; 2] = [Box::new(memory_store), Box::new(NullStore::new(geometry, 2))];
    for mut store in stores {
        let mut requests: VecDeque<_> =
            (0..3).map(|tag| Request::write(tag, 1, filled(&cache, 512, 1), true, tag)).collect();
        assert_eq!((store.submit(&mut requests), store.room(), requests[0].tag), (2, 0, 2));
        assert_eq!(store.submit(&mut requests), 0);
        let mut done = Vec::with_capacity(1);
        assert_eq!((store.poll(&mut done), store.poll(&mut done), store.under_way()), (1, 0, 1));
        done.clear();
        assert_eq!((store.poll(&mut done), store.submit(&mut requests)), (1, 1));
        done.clear();
        assert_eq!((store.poll(&mut done), done[0].tag), (1, 2));

        let short = one(&mut *store, Request::read(0, 2, filled(&cache, 512, 0), 0));
        assert_eq!((short.result, short.packet.is_some()), (Err(Fault::BadMemory), true));
        let missing = Request { packet: None, ..Request::read(0, 1, filled(&cache, 512, 0), 0) };
        assert_eq!(one(&mut *store, missing).result, Err(Fault::BadMemory));
        let extra = Request { packet: Some(filled(&cache, 512, 0)), ..Request::without_data(Op::Discard, 0, 1, 0) };
        assert_eq!(one(&mut *store, extra).result, Err(Fault::BadMemory));
        for lba in [8, u64::MAX] {
            let zeroes = Op::WriteZeroes { fua: false, deallocate: false };
            assert_eq!(one(&mut *store, Request::without_data(zeroes, lba, 1, 0)).result, Err(Fault::OutOfRange));
        }
    }
}

/// Regression: reads of a store that keeps nothing left the packet as it was, so that it showed the
/// data of its last use.
#[test]
fn a_store_that_keeps_nothing_shows_no_data_of_others() {
    let cache = pool(4, 1024).cache(4);
    let mut store = NullStore::new(Geometry::of_bytes(8 * 512, 512).unwrap(), 2);
    assert!(one(&mut store, Request::write(3, 2, filled(&cache, 1024, 7), true, 0)).result.is_ok());
    let read = one(&mut store, Request::read(3, 2, filled(&cache, 1024, 9), 0));
    assert!(read.packet.unwrap().data() == [0; 1024]);
}

#[test]
fn blocks_have_sizes_that_exist() {
    for block_bytes in [0, 1, 8, 256, 264, 513, 3 * 512, 3 * 512 + 8, 528, 131_072, 131_080, u32::MAX] {
        assert_eq!(Geometry::of_bytes(1 << 20, block_bytes), Err(GeometryError::BlockBytes(block_bytes)));
    }
    let geometry = Geometry::of_bytes(10_000, 4096).unwrap();
    assert_eq!((geometry.blocks, geometry.len_bytes()), (2, 8192));
    // With protection information.
    let geometry = Geometry::of_bytes(10_000, 4104).unwrap();
    assert_eq!((geometry.blocks, geometry.len_bytes()), (2, 8208));
}
