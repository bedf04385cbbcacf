//! The ring alone: accepted and refused requests, returned packets, and a file's bytes.
#![cfg(feature = "uring")]

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::support::{pool_of, spec};
use verbline_mem::uring::{Completed, FileRing, PushError, RingError, RingSpec, Submission, What, ZEROS_MAX};
use verbline_mem::{Pool, PoolCache};

fn ring(depth: u32, pools: &[Pool]) -> FileRing {
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    FileRing::open(file, &RingSpec { depth, pools: pools.to_vec() }).unwrap_or_else(|error| panic!("{error}"))
}

fn entry(what: What, cache: &PoolCache, len: usize, tag: u64) -> Submission {
    let mut packet = cache.get_of_len(len).expect("packets enough");
    packet.data_mut().fill(tag as u8);
    Submission { what, packet: Some(packet), tag }
}

/// Starts the pushed requests, and waits for all of them.
fn all_done(ring: &mut FileRing) -> Vec<Completed> {
    let (start, mut done) = (Instant::now(), Vec::new());
    while ring.under_way() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60));
        ring.submit().unwrap();
        ring.complete(usize::MAX, |one| done.push(one));
    }
    done.sort_by_key(|one| one.tag);
    done
}

#[test]
fn what_is_written_is_read_by_registered_packets_and_by_others() {
    let pools = [pool_of(spec(16, 4096, 64)), pool_of(spec(16, 4096, 0))];
    for registered in [&pools[..], &pools[..1], &[]] {
        let mut ring = ring(16, registered);
        assert!(ring.unregistered().is_none());
        let caches = pools.each_ref().map(|pool| pool.cache(16));
        for tag in 0..8 {
            let what = What::Write { offset: tag * 3000, skip: 1, dsync: tag % 2 == 0 };
            ring.push(entry(what, &caches[tag as usize % 2], 3001, tag)).unwrap();
        }
        let done = all_done(&mut ring);
        assert!(done.iter().all(|one| one.result == Ok(3000) && one.packet.as_ref().unwrap().len() == 3001));
        for tag in 0..8 {
            let what = What::Read { offset: tag * 3000, skip: 1 };
            ring.push(entry(what, &caches[(tag as usize + 1) % 2], 3001, 100 + tag)).unwrap();
        }
        for (number, one) in all_done(&mut ring).into_iter().enumerate() {
            let packet = one.packet.unwrap();
            assert_eq!((packet.data()[0], one.result), (100 + number as u8, Ok(3000)), "what is skipped stays");
            assert_eq!(packet.data()[1..], [number as u8; 3000]);
        }
        assert_eq!(ring.unknown(), 0);
    }
}

#[test]
fn a_ring_that_is_full_and_a_transfer_of_nothing_are_refused() {
    let pool = pool_of(spec(8, 64, 0));
    let cache = pool.cache(8);
    let mut ring = ring(2, &[]);
    let read = What::Read { offset: 0, skip: 0 };
    let nothing = [
        Submission { what: read, packet: None, tag: 1 },
        entry(What::Read { offset: 0, skip: 64 }, &cache, 64, 1),
        entry(What::Write { offset: 0, skip: 65, dsync: false }, &cache, 64, 1),
        Submission { what: What::WriteZeros { offset: 0, len: 0, dsync: false }, packet: None, tag: 1 },
        Submission { what: What::WriteZeros { offset: 0, len: ZEROS_MAX + 1, dsync: false }, packet: None, tag: 1 },
    ];
    for entry in nothing {
        let (had, what) = (entry.packet.is_some(), entry.what);
        let (back, error) = ring.push(entry).unwrap_err();
        assert_eq!((back.packet.is_some(), back.what, error), (had, what, PushError::NoData));
    }
    ring.push(entry(read, &cache, 64, 1)).unwrap();
    ring.push(entry(read, &cache, 64, 2)).unwrap();
    assert_eq!((ring.room(), ring.under_way()), (0, 2));
    let (back, error) = ring.push(entry(read, &cache, 64, 3)).unwrap_err();
    assert_eq!((back.tag, back.packet.is_some(), error), (3, true, PushError::Full));
    // The end of the file: nothing is read.
    assert_eq!(all_done(&mut ring).iter().map(|one| one.result).collect::<Vec<_>>(), [Ok(0), Ok(0)]);
}

#[test]
fn zeros_syncs_and_errors_come_back_as_they_are() {
    let mut ring = ring(8, &[]);
    let without = |what, tag| Submission { what, packet: None, tag };
    ring.push(without(What::WriteZeros { offset: 0, len: ZEROS_MAX, dsync: true }, 0)).unwrap();
    assert_eq!(all_done(&mut ring)[0].result, Ok(ZEROS_MAX));
    ring.push(without(What::Sync, 1)).unwrap();
    ring.push(without(What::ZeroRange { offset: 0, len: 4096 }, 2)).unwrap();
    ring.push(without(What::PunchHole { offset: 0, len: 0 }, 3)).unwrap();
    let done = all_done(&mut ring);
    assert_eq!(done[0].result, Ok(0));
    // Not every file system supports it.
    assert!(matches!(done[1].result, Ok(0) | Err(95)), "{done:?}");
    assert!(done[2].result.is_err(), "a hole of no bytes");
}

#[test]
fn a_ring_that_goes_gives_back_what_it_holds() {
    let pool = pool_of(spec(32, 4096, 0));
    let cache = pool.cache(32).bind();
    let mut ring = ring(32, std::slice::from_ref(&pool));
    for tag in 0..32 {
        ring.push(entry(What::Write { offset: tag * 4096, skip: 0, dsync: true }, &cache, 4096, tag)).unwrap();
    }
    // Some are with the kernel, and some were never passed to it.
    ring.submit().unwrap();
    drop(ring);
    assert_eq!(pool.account().held, 0);
}

#[test]
fn a_depth_that_no_ring_has_is_refused() {
    for depth in [0, 16_385, u32::MAX] {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let error = FileRing::open(file, &RingSpec { depth, pools: Vec::new() }).unwrap_err();
        assert!(matches!(error, RingError::Depth { .. }), "{error}");
    }
}
