//! Shared by several test files: packets, memory, and the oracle for every store.

pub(crate) mod oracle;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};
use verbline_mem::{Packet, PageChoice, PageSize, PeerRegion, Pool, PoolCache, PoolSpec, Region, RegionSpec};
use verbline_store::{Done, Request, Store};

pub(crate) fn region(len_bytes: usize) -> Region {
    let spec =
        RegionSpec { name: "test".into(), len_bytes, pages: PageChoice::Exactly(PageSize::Small4K), lock: false };
    Region::map(&spec).expect("base pages")
}

pub(crate) fn memory(len_bytes: usize) -> Arc<PeerRegion> {
    Arc::new(PeerRegion::of_first(region(len_bytes), len_bytes))
}

/// Packets of `data_bytes` each, on page boundaries.
pub(crate) fn pool(packets: u32, data_bytes: u32) -> Pool {
    let spec = PoolSpec { name: "test".into(), packets, data_bytes, headroom_bytes: 0 };
    Pool::new(region(Pool::required_bytes(&spec)), spec).expect("a pool that fits its region")
}

pub(crate) fn filled(cache: &PoolCache, len_bytes: usize, byte: u8) -> Packet {
    let mut packet = cache.get_of_len(len_bytes).expect("a packet");
    packet.data_mut().fill(byte);
    packet
}

/// Submits one request, and polls until it is done.
pub(crate) fn one(store: &mut dyn Store, request: Request) -> Done {
    let mut requests = VecDeque::from([request]);
    assert_eq!(store.submit(&mut requests), 1);
    let mut done = Vec::with_capacity(1);
    until(|| store.poll(&mut done) == 1);
    assert_eq!(store.under_way(), 0);
    done.remove(0)
}

/// Waits until the condition holds: far longer than anything takes.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "a minute is over");
        std::thread::yield_now();
    }
}

/// A seccomp filter that makes these calls fail with `errno`: all of a kind, or those that one of
/// its rules matches.
pub(crate) fn failing(calls: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>, errno: Errno) -> BpfProgram {
    let fails = SeccompAction::Errno(errno.raw_os_error() as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(calls.into_iter().collect(), SeccompAction::Allow, fails, arch);
    filter.unwrap().try_into().unwrap()
}
