//! Random reads and writes of a file through a store, driven as by an lcore.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbline_store::{Done, FileSpec, FileStore, Request, Store};

use super::pool::pool;
use crate::Figures;

/// Bytes of a transfer.
const BLOCK: u32 = 4096;
/// The warm-up, and the measured time.
const WARM_UP: Duration = Duration::from_millis(300);
const TIME: Duration = Duration::from_millis(1500);

/// Transfers of 4 KiB, `depth` in flight: `per_s`, and `p99_ns` of one.
///
/// Runs on the first of the CPUs, like the peer.
///
/// # Panics
/// If the file can't be opened, or a transfer fails: there is nothing to measure then.
pub fn random(path: &Path, writes: bool, depth: usize) -> Figures {
    let _pinned = crate::pair::pin(crate::pair::cpus()[0]);
    // With the headroom, two pages: room for a page-aligned block, as direct I/O requires.
    let pool = pool(2 * depth as u32, 2 * BLOCK - 64);
    let spec = FileSpec { pools: vec![pool.clone()], ..FileSpec::new(path, BLOCK, depth as u32) };
    let mut store = FileStore::open(&spec).unwrap_or_else(|error| panic!("{error}"));
    store.notes().iter().for_each(|note| eprintln!("note: {note}"));
    let cache = pool.cache(2 * depth);
    let (blocks, mut rng) = (store.geometry().blocks, Rng::with_seed(7));
    let mut requests = VecDeque::with_capacity(depth);
    for tag in 0..depth as u64 {
        let mut packet = cache.get_of_len(2 * BLOCK as usize - 64).expect("a packet for each transfer");
        // From the next page boundary, one page long.
        let to_page = packet.addr().next_multiple_of(BLOCK.into()) - packet.addr();
        assert!(packet.trim_front(to_page as usize) && packet.set_len(BLOCK as usize));
        requests.push_back(Request::read(0, 1, packet, tag));
    }
    let mut done = Vec::<Done>::with_capacity(depth);
    let (began, mut counted_from, mut count) = (Instant::now(), None, 0_u64);
    let mut latency = hdrhistogram::Histogram::<u64>::new_with_max(10_000_000_000, 3).expect("the bounds are in order");
    let mut started = vec![Instant::now(); depth];
    loop {
        let now = Instant::now();
        for request in &mut requests {
            let packet = request.packet.take().expect("each has one");
            let (lba, tag) = (rng.u64(0..blocks), request.tag);
            started[tag as usize] = now;
            *request = match writes {
                true => Request::write(lba, 1, packet, false, tag),
                false => Request::read(lba, 1, packet, tag),
            };
        }
        store.submit(&mut requests);
        if store.poll(&mut done) == 0 && store.may_sleep() {
            sleep_until_done(&store);
        }
        if !done.is_empty() && counted_from.is_some() {
            let now = Instant::now();
            count += done.len() as u64;
            for one in &done {
                latency.saturating_record((now - started[one.tag as usize]).as_nanos() as u64);
            }
        }
        for one in done.drain(..) {
            assert!(one.result.is_ok(), "a transfer failed: {:?}", one.result);
            requests.push_back(Request { op: one.op, lba: 0, blocks: 1, packet: one.packet, tag: one.tag });
        }
        match counted_from {
            None if began.elapsed() > WARM_UP => counted_from = Some(Instant::now()),
            Some(from) if from.elapsed() > TIME => {
                let per_s = count as f64 / from.elapsed().as_secs_f64();
                return Figures::of("per_s", per_s).and("p99_ns", latency.value_at_quantile(0.99) as f64);
            }
            _ => {}
        }
    }
}

/// Sleeps like an lcore in event mode, and like fio: completions may need this CPU, e.g. for the
/// kernel's workers of file systems that block.
fn sleep_until_done(store: &FileStore) {
    let Some(fd) = store.wake_fd() else { return };
    // A signal, or a second, ends it too; the next poll shows the result.
    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec { tv_sec: 1, tv_nsec: 0 }));
}
