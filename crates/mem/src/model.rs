//! Loom models of the free list and of a pool's end, over the code that ships.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p verbline-mem --release --lib`
//!
//! How faults show: every packet has a loom `UnsafeCell`, which fails the model when two threads
//! access it at once or when a hand-over does not order them; and `FreeList`'s drop under loom
//! accesses every atomic exclusively, which fails the model when a put may still be going on.

use std::ptr::NonNull;
use std::sync::Arc as StdArc;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use crate::freelist::{FreeList, Want};
use crate::{Batch, PageChoice, PageSize, Pool, PoolSpec, Region, RegionSpec, leaked_pools};

/// A free list and what its indices stand for.
struct World {
    list: FreeList,
    packets: Vec<UnsafeCell<u32>>,
}

// SAFETY: only the thread that has taken a cell's index reaches the cell, which is what the models
// check.
unsafe impl Sync for World {}
// SAFETY: the thread that has taken a cell's index owns the cell, whichever thread that is; see
// `Sync`.
unsafe impl Send for World {}

impl World {
    fn new(packets: u32) -> Self {
        Self { list: FreeList::full(packets).unwrap(), packets: (0..packets).map(|_| UnsafeCell::new(0)).collect() }
    }

    fn take(&self, want: usize) -> Vec<u32> {
        self.take_between(want, want)
    }

    fn take_between(&self, least: usize, most: usize) -> Vec<u32> {
        let mut indices = vec![0; most];
        let taken = self.list.take(Want { least, most }, |k, index| indices[k] = index);
        indices.truncate(taken);
        indices
    }

    /// Writes what the index stands for: the model fails if another may be at it.
    fn own(&self, indices: &[u32]) {
        for &index in indices {
            // SAFETY: the index was taken and not yet put; loom checks that this makes it ours.
            self.packets[index as usize].with_mut(|value| unsafe { *value += 1 });
        }
    }

    fn put(&self, indices: &[u32]) {
        // SAFETY: `self` is borrowed throughout; each index was taken from this list.
        unsafe { FreeList::put(NonNull::from(&self.list), indices, |&index| index) };
    }
}

fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

#[test]
fn an_index_is_one_threads_at_a_time_and_none_is_lost() {
    model(3, || {
        let world = Arc::new(World::new(3));
        let there = world.clone();
        let other = thread::spawn(move || {
            let got = there.take(2);
            there.own(&got);
            there.put(&got);
        });
        let got = world.take(2);
        world.own(&got);
        world.put(&got);
        other.join().unwrap();
        assert!(world.list.all_home());
        let mut all = world.take(4);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}

/// A takes [0, 1] and puts 0 back while B walks from 0: the index on top is the same, the one below
/// is not. The tag tells.
#[test]
fn a_walk_that_was_overtaken_takes_nothing() {
    model(4, || {
        let world = Arc::new(World::new(2));
        let there = world.clone();
        let other = thread::spawn(move || {
            let top = there.take(1);
            let below = there.take(1);
            there.own(&top);
            there.own(&below);
            there.put(&top);
            below
        });
        let got = world.take(1);
        world.own(&got);
        let kept = other.join().unwrap();
        assert!(kept.iter().all(|index| !got.contains(index)));
        world.put(&got);
        world.put(&kept);
        let mut all = world.take(3);
        all.sort_unstable();
        assert_eq!(all, [0, 1]);
    });
}

/// Both take a part of the same chunk: what each leaves is put back, and is the other's or on the
/// list at the end.
#[test]
fn a_chunk_that_is_taken_in_part_is_not_lost() {
    model(4, || {
        let world = Arc::new(World::new(2));
        let there = world.clone();
        let other = thread::spawn(move || {
            let got = there.take(1);
            there.own(&got);
            got
        });
        let got = world.take(1);
        world.own(&got);
        let others = other.join().unwrap();
        let left = world.take(2);
        world.own(&left);
        let mut all = [got, others, left].concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1]);
    });
}

/// One takes whole chunks only, while the other takes the same ones apart.
#[test]
fn a_walk_over_whole_chunks_is_overtaken_like_any() {
    model(3, || {
        let world = Arc::new(World::new(4));
        let there = world.clone();
        let other = thread::spawn(move || {
            let got = there.take(1);
            there.own(&got);
            there.put(&got);
        });
        let got = world.take_between(1, 3);
        world.own(&got);
        other.join().unwrap();
        world.put(&got);
        let mut all = world.take(5);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3]);
    });
}

fn pool(packets: u32) -> Pool {
    let spec = PoolSpec { name: "model".into(), packets, data_bytes: 64, headroom_bytes: 0 };
    let region = RegionSpec {
        name: "model".into(),
        len_bytes: Pool::required_bytes(&spec),
        pages: PageChoice::Exactly(PageSize::Small4K),
        lock: false,
    };
    Pool::new(Region::map(&region).unwrap(), spec).unwrap()
}

/// Counts on drop, as an MR that is deregistered.
struct Gone(StdArc<std::sync::atomic::AtomicUsize>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn with_mr(pool: &Pool) -> StdArc<std::sync::atomic::AtomicUsize> {
    let gone = StdArc::default();
    pool.attach_mr(crate::MrBinding { pd_id: 1, lkey: 2, keep: Box::new(Gone(StdArc::clone(&gone))) }).unwrap();
    gone
}

/// The last handle goes while another thread drops the last packet: freed with nothing in flight,
/// or leaked. Both must come to pass.
#[test]
fn a_pool_that_goes_as_a_packet_returns_is_freed_whole_or_leaked() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static FREED: AtomicBool = AtomicBool::new(false);
    static LEAKED: AtomicBool = AtomicBool::new(false);
    model(3, || {
        let leaked_before = leaked_pools();
        let pool = pool(2);
        let gone = with_mr(&pool);
        let packet = pool.cache(0).get().unwrap();
        let other = thread::spawn(move || drop(packet));
        drop(pool);
        other.join().unwrap();
        let freed = gone.load(Ordering::Relaxed) == 1;
        assert_eq!(leaked_pools() - leaked_before, usize::from(!freed));
        if freed { &FREED } else { &LEAKED }.store(true, Ordering::Relaxed);
    });
    assert!(FREED.load(Ordering::Relaxed) && LEAKED.load(Ordering::Relaxed));
}

/// A cache on one thread goes as the other thread's handle does: the last of the two frees, and all
/// is home by then.
#[test]
fn the_last_of_handle_and_cache_frees() {
    model(2, || {
        let pool = pool(2);
        let gone = with_mr(&pool);
        let cache = pool.cache(2);
        let other = thread::spawn(move || {
            let cache = cache.bind();
            let mut batch = Batch::with_capacity(2);
            cache.get_bulk(&mut batch, 2);
            drop(batch);
        });
        drop(pool);
        other.join().unwrap();
        assert_eq!(gone.load(std::sync::atomic::Ordering::Relaxed), 1);
    });
}
