//! A kernel without io_uring, a process that may not use it, and a process that may no longer: by a
//! seccomp filter on a thread.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::common::{failing, filled, one, pool, until};
use rustix::io::Errno;
use seccompiler::{BpfProgram, apply_filter};
use verbline_store::{Fault, FileError, FileSpec, FileStore, Request, Store};

const IO_URING_SETUP: i64 = 425;
const IO_URING_ENTER: i64 = 426;

/// A file for a store, and a filter that ends this call with this error.
fn file_and_filter(call: i64, errno: Errno) -> (tempfile::NamedTempFile, BpfProgram) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    (file, failing([(call, Vec::new())], errno))
}

/// The error of opening a store if io_uring_setup(2) fails with this number.
fn refused_with(errno: Errno) -> FileError {
    let (file, filter) = file_and_filter(IO_URING_SETUP, errno);
    let opened = std::thread::spawn(move || {
        apply_filter(&filter).unwrap();
        FileStore::open(&FileSpec::new(file.path(), 4096, 8)).map(drop)
    });
    opened.join().unwrap().unwrap_err()
}

#[test]
fn a_kernel_without_io_uring_is_named_as_such() {
    let text = refused_with(Errno::NOSYS).to_string();
    assert!(text.contains("this kernel has no io_uring") && text.contains("Linux 5.6"), "{text}");
}

#[test]
fn a_filter_or_sysctl_that_forbids_it_is_named_with_what_to_do() {
    let text = refused_with(Errno::PERM).to_string();
    for part in ["may not use io_uring", "kernel.io_uring_disabled is ", "seccomp", "--security-opt"] {
        assert!(text.contains(part), "no {part:?}: {text}");
    }
    // A sysctl that forbids nothing was blamed as well.
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    assert!(disabled.trim() != "0" || !text.contains("io_uring_disabled=0"), "{text}");
}

/// A filter that comes while the store is in use: requests in flight, and later ones, fail with the
/// kernel's error; every packet is back, the lcore may sleep, and the ring ends at once.
#[test]
fn a_ring_that_the_kernel_refuses_for_good_answers_everything() {
    let (file, filter) = file_and_filter(IO_URING_ENTER, Errno::PERM);
    let body = std::thread::spawn(move || {
        let pool = pool(32, 4096);
        let cache = pool.cache(32).bind();
        let spec = FileSpec { pools: vec![pool.clone()], ..FileSpec::new(file.path(), 4096, 16) };
        let mut store = FileStore::open(&spec).unwrap();
        assert_eq!(one(&mut store, Request::write(0, 1, filled(&cache, 4096, 9), true, 0)).result, Ok(()));
        apply_filter(&filter).unwrap();
        let write = |lba| Request::write(lba, 1, filled(&cache, 4096, 9), false, lba);
        let mut requests: VecDeque<_> = (0..8).map(write).chain([Request::flush(8)]).collect();
        assert_eq!(store.submit(&mut requests), 9);
        let mut done = Vec::with_capacity(16);
        until(|| {
            store.poll(&mut done);
            done.len() == 9
        });
        done.push(one(&mut store, write(9)));
        let fault = Fault::RingBroken(Errno::PERM.raw_os_error());
        assert!(done.iter().all(|done| done.result == Err(fault)), "{done:?}");
        assert_eq!((store.counts().ring_broken, store.room(), store.may_sleep()), (10, 16, true));
        let text = fault.to_string();
        for part in ["ring is broken", "io_uring_enter(2) failed: Operation not permitted", "opened anew", "seccomp"] {
            assert!(text.contains(part), "no {part:?}: {text}");
        }
        let began = Instant::now();
        drop((done, store));
        assert!(began.elapsed() < Duration::from_secs(5), "nothing is waited for");
        assert_eq!(pool.account().held, 0);
    });
    body.join().unwrap();
}
