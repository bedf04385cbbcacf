//! Files by io_uring, on this machine's file systems: past the page cache and through it.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use crate::common::oracle::Oracle;
use crate::common::{filled, one, pool, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;
use verbline_mem::Pool;
use verbline_store::{DirectIo, Done, Fault, FileError, FileSpec, FileStore, Op, Request, Store};

const BLOCK: usize = 4096;

/// Folders of different file systems: the one for temporary files, and tmpfs.
fn folders() -> Vec<TempDir> {
    let shm = tempfile::tempdir_in("/dev/shm");
    if shm.is_err() {
        eprintln!("skipped: no tmpfs at /dev/shm to try as well");
    }
    [tempfile::tempdir(), shm].into_iter().flatten().collect()
}

fn spec(path: &Path, blocks: u64, depth: u32, pools: &[Pool]) -> FileSpec {
    let create_bytes = Some(blocks * BLOCK as u64);
    FileSpec { create_bytes, pools: pools.to_vec(), ..FileSpec::new(path, BLOCK as u32, depth) }
}

fn open(spec: &FileSpec) -> FileStore {
    let store = FileStore::open(spec).unwrap_or_else(|error| panic!("{error}"));
    for note in store.notes() {
        eprintln!("note: {note}");
    }
    store
}

#[test]
fn random_operations_agree_with_an_oracle() {
    for (seed, folder) in folders().iter().enumerate() {
        for (direct, registered) in [(DirectIo::Auto, true), (DirectIo::Auto, false), (DirectIo::Never, true)] {
            let pool = pool(64, 8 * BLOCK as u32);
            let pools = if registered { vec![pool.clone()] } else { Vec::new() };
            let path = folder.path().join(format!("{direct:?}-{registered}"));
            let mut store = open(&FileSpec { direct, ..spec(&path, 64, 16, &pools) });
            let cache = pool.cache(64).bind();
            let mut oracle = Oracle::new(&store, &cache, seed as u64, 24);
            oracle.run(&mut store, 400);
            drop(store);
            assert_eq!(fs::read(&path).unwrap(), oracle.bytes, "what others read in the file");
            drop(oracle);
            assert_eq!(pool.account().held, 0);
        }
    }
}

/// Blocks with protection information behind them, a size that no device has: through the page
/// cache.
#[test]
fn blocks_of_520_bytes_agree_with_an_oracle() {
    for (seed, folder) in folders().iter().enumerate() {
        for block_bytes in [520, 4104] {
            let pool = pool(64, 8 * block_bytes);
            let path = folder.path().join(format!("{block_bytes}"));
            let create_bytes = Some(64 * u64::from(block_bytes) + 100);
            let pools = vec![pool.clone()];
            let mut store = open(&FileSpec { create_bytes, pools, ..FileSpec::new(&path, block_bytes, 16) });
            assert_eq!((store.geometry().blocks, store.geometry().align_bytes), (64, 1));
            let cache = pool.cache(64).bind();
            let mut oracle = Oracle::new(&store, &cache, seed as u64, 24);
            oracle.run(&mut store, 400);
            drop(store);
            assert_eq!(fs::read(&path).unwrap()[..oracle.bytes.len()], oracle.bytes);
            drop(oracle);
            assert_eq!(pool.account().held, 0);
        }
    }
}

#[test]
fn a_ring_that_is_full_of_completions_loses_none() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(64, BLOCK as u32);
    let mut store = open(&spec(&folder.path().join("file"), 64, 32, std::slice::from_ref(&pool)));
    let cache = pool.cache(64);
    let mut done = Vec::with_capacity(5);
    for round in 0..4 {
        let write = |lba| Request::write(lba, 1, filled(&cache, BLOCK, 1), false, lba);
        let mut requests: VecDeque<_> = (0..40).map(write).collect();
        assert_eq!((store.submit(&mut requests), store.room(), requests.len()), (32, 0, 8), "round {round}");
        let mut seen = [false; 32];
        // All are done before the first is taken: the ring's own queue is completely full.
        until(|| readable(&store));
        std::thread::sleep(std::time::Duration::from_millis(20));
        until(|| {
            store.poll(&mut done);
            for one in done.drain(..) {
                assert!(one.result.is_ok() && !std::mem::replace(&mut seen[one.tag as usize], true));
            }
            store.under_way() == 0
        });
        assert_eq!(seen, [true; 32]);
    }
}

/// Polls its descriptor, without waiting.
fn readable(store: &dyn Store) -> bool {
    let fd = store.wake_fd().expect("a file's ring");
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
}

#[test]
fn an_lcore_that_sleeps_is_woken() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(8, BLOCK as u32);
    let mut store = open(&spec(&folder.path().join("file"), 8, 4, std::slice::from_ref(&pool)));
    let cache = pool.cache(8);
    assert!(store.may_sleep() && !readable(&store));
    for tag in 0..50 {
        let request = match tag % 3 {
            0 => Request::write(tag % 8, 1, filled(&cache, BLOCK, 1), true, tag),
            1 => Request::read(tag % 8, 1, filled(&cache, BLOCK, 1), tag),
            _ => Request::flush(tag),
        };
        store.submit(&mut VecDeque::from([request]));
        assert!(store.may_sleep());
        let mut done = Vec::<Done>::with_capacity(1);
        while done.is_empty() {
            let fd = store.wake_fd().unwrap();
            let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec { tv_sec: 20, tv_nsec: 0 }));
            assert_eq!(ready, Ok(1), "asleep for good");
            store.poll(&mut done);
        }
        assert_eq!((done[0].tag, done[0].result), (tag, Ok(())));
    }
}

#[test]
fn a_file_that_shrinks_and_grows_is_seen() {
    for folder in folders() {
        let path = folder.path().join("file");
        let pool = pool(8, 2 * BLOCK as u32);
        let mut store = open(&spec(&path, 8, 4, std::slice::from_ref(&pool)));
        let cache = pool.cache(8);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(5 * BLOCK as u64).unwrap();
        let behind = one(&mut store, Request::read(7, 1, filled(&cache, BLOCK, 0), 0));
        let across = one(&mut store, Request::read(4, 2, filled(&cache, 2 * BLOCK, 0), 0));
        assert_eq!((behind.result, across.result), (Err(Fault::OutOfRange), Err(Fault::OutOfRange)));
        assert!(one(&mut store, Request::read(4, 1, filled(&cache, BLOCK, 0), 0)).result.is_ok());
        assert_eq!((store.geometry().blocks, store.refresh().unwrap().blocks), (8, 5));
        file.set_len(9 * BLOCK as u64 + 100).unwrap();
        assert_eq!(store.refresh().unwrap().blocks, 9);
        let grown = one(&mut store, Request::read(8, 1, filled(&cache, BLOCK, 7), 0));
        assert_eq!((grown.result, grown.packet.unwrap().data()), (Ok(()), &[0; BLOCK][..]));
    }
}

#[test]
fn what_is_read_only_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, [3; 2 * BLOCK]).unwrap();
    let mut store = open(&FileSpec { read_only: true, ..FileSpec::new(&path, BLOCK as u32, 4) });
    let cache = pool(8, BLOCK as u32).cache(8);
    assert!(store.geometry().read_only);
    let zeroes = Op::WriteZeroes { fua: false, deallocate: true };
    for request in [
        Request::write(0, 1, filled(&cache, BLOCK, 1), false, 0),
        Request::without_data(zeroes, 0, 1, 0),
        Request::without_data(Op::Discard, 0, 1, 0),
    ] {
        assert_eq!(one(&mut store, request).result, Err(Fault::ReadOnly));
    }
    let read = one(&mut store, Request::read(1, 1, filled(&cache, BLOCK, 0), 0));
    assert_eq!(read.packet.unwrap().data(), [3; BLOCK]);
    assert!(one(&mut store, Request::flush(0)).result.is_ok());
}

#[test]
fn data_that_direct_io_cannot_use_is_refused_and_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(8, 2 * BLOCK as u32);
    let mut store = open(&spec(&folder.path().join("file"), 8, 4, std::slice::from_ref(&pool)));
    let align_bytes = store.geometry().align_bytes;
    if align_bytes == 1 {
        return eprintln!("skipped: no direct I/O in {}", folder.path().display());
    }
    let cache = pool.cache(8);
    let mut packet = filled(&cache, BLOCK + 8, 5);
    assert!(packet.trim_front(8) && !store.geometry().is_aligned(&packet));
    assert_eq!(one(&mut store, Request::write(0, 1, packet, false, 0)).result, Err(Fault::Misaligned));
    let mut packet = filled(&cache, BLOCK + align_bytes as usize, 5);
    assert!(packet.trim_front(align_bytes as usize) && store.geometry().is_aligned(&packet));
    assert_eq!(one(&mut store, Request::write(0, 1, packet, true, 0)).result, Ok(()));
}

#[test]
fn what_is_under_way_when_a_store_goes_gives_its_packets_back() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(64, BLOCK as u32);
    let mut store = open(&spec(&folder.path().join("file"), 64, 32, std::slice::from_ref(&pool)));
    let cache = pool.cache(64).bind();
    let mut requests: VecDeque<_> =
        (0..32).map(|lba| Request::write(lba, 1, filled(&cache, BLOCK, 1), true, lba)).collect();
    assert_eq!(store.submit(&mut requests), 32);
    // On another thread than the submitting one.
    std::thread::spawn(move || drop(store)).join().unwrap();
    assert_eq!(pool.account().held, 0);
}

#[test]
fn what_is_no_store_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("short"), [0; 100]).unwrap();
    let refused = |spec: FileSpec| FileStore::open(&spec).unwrap_err();

    let error = refused(FileSpec::new(path("none"), 4096, 8));
    assert!(matches!(error, FileError::System { call: "stat(2)", .. }), "{error}");
    assert!(matches!(refused(FileSpec::new(folder.path(), 4096, 8)), FileError::Kind { .. }));
    assert!(matches!(refused(FileSpec::new("/dev/null", 4096, 8)), FileError::Kind { .. }));
    assert!(matches!(refused(FileSpec::new(path("short"), 4096, 8)), FileError::Empty { len_bytes: 100, .. }));
    assert!(matches!(refused(FileSpec::new(path("short"), 1000, 8)), FileError::Geometry { .. }));
    fs::write(path("one"), [0; 8192]).unwrap();
    for depth in [0, 100_000] {
        let error = refused(FileSpec::new(path("one"), 4096, depth));
        assert!(matches!(error, FileError::Ring { .. }) && error.to_string().contains("from 1 to 16384"), "{error}");
    }
    // Regression: a file of less than a block stayed, and kept its length when a larger one was
    // requested.
    for create_bytes in [0, 100] {
        let error = refused(FileSpec { create_bytes: Some(create_bytes), ..FileSpec::new(path("small"), 4096, 8) });
        assert!(matches!(error, FileError::TooShort { len_bytes, .. } if len_bytes == create_bytes), "{error}");
        assert!(!path("small").exists(), "nothing is made of {create_bytes} bytes");
    }
    // More than any disk has: no partial file stays.
    let error = refused(FileSpec { create_bytes: Some(1 << 60), ..FileSpec::new(path("huge"), 4096, 8) });
    assert!(error.to_string().contains("free space there") && !path("huge").exists(), "{error}");
}
