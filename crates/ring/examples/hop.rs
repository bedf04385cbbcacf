//! What a hop between two lcores costs: ours against raw rtrb chunks, and against the bare exchange
//! of a cache line.
//!
//! `cargo run -p verbline-ring --release --example hop [CPU CPU]`
//!
//! Two pinned threads. *Bulk* moves batches of 32 handles (8 bytes each) from a `Vec` on one core
//! to a `Vec` on the other, as fast as both go: nanoseconds an item. *Hop* sends one such batch
//! there and one back, and halves the time; it can't get below the bare exchange, one word that two
//! cores write in turn. Ours includes ringing the doorbell of the (awake) consumer after each
//! batch.
//!
//! The kinds take turns, so that a disturbance hits all alike. "Best" is each kind's least
//! disturbed round, and the ratio in front is of those; the other is the median of the ratios round
//! by round.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use verbline_ring::{Waker, doorbell, spsc};

const BATCH: usize = 32;
const DEPTH: usize = 1024;
const BULK_BATCHES: u64 = 1 << 16;
const HOPS: u64 = 10_000;
const ROUNDS: usize = 41;

fn main() {
    let cpus: Vec<usize> = std::env::args().skip(1).map(|arg| arg.parse().expect("a CPU's number")).collect();
    let cpus: [usize; 2] = cpus.try_into().unwrap_or([0, 1]);
    let (waker, _awake) = doorbell().expect("an eventfd");
    println!("fences: {:?}; CPUs {} and {}", verbline_ring::fence::mechanism(), cpus[0], cpus[1]);

    let bulk: Vec<_> = (0..ROUNDS).map(|_| [bulk_raw(cpus), bulk_ours(cpus, &waker), bulk_copied(cpus)]).collect();
    report("bulk, ns an item", ["raw rtrb", "ours", "raw, memcpy"], &bulk);
    let hops: Vec<_> = (0..ROUNDS).map(|_| [hop_bare(cpus), hop_raw(cpus), hop_ours(cpus, &waker)]).collect();
    report("hop, ns a batch", ["bare cache line", "raw rtrb", "ours"], &hops);
}

/// Prints each kind beside the first one of its row.
fn report<const N: usize>(title: &str, kinds: [&str; N], rounds: &[[f64; N]]) {
    println!("{title}:");
    for (kind, name) in kinds.iter().enumerate() {
        let best = |kind: usize| rounds.iter().map(|round| round[kind]).fold(f64::INFINITY, f64::min);
        let mut ratios: Vec<f64> = rounds.iter().map(|round| round[kind] / round[0]).collect();
        ratios.sort_by(f64::total_cmp);
        let (ratio, median) = (best(kind) / best(0), ratios[ratios.len() / 2]);
        println!("  {name:<16} best {:>8.2}   ratio {ratio:.3}   median ratio {median:.3}", best(kind));
    }
}

/// Runs both sides, each on its CPU, from one starting line; returns nanoseconds until both are
/// done.
fn race(cpus: [usize; 2], far: impl FnOnce() + Send, near: impl FnOnce() + Send) -> f64 {
    let start = Barrier::new(2);
    let on = |cpu: usize| {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set).expect("a CPU that this process may use");
        start.wait();
    };
    std::thread::scope(|scope| {
        let far = scope.spawn(|| {
            on(cpus[1]);
            far();
        });
        let near = scope.spawn(|| {
            on(cpus[0]);
            let begin = Instant::now();
            near();
            begin
        });
        let begin = near.join().expect("the near side doesn't panic");
        far.join().expect("the far side doesn't panic");
        begin.elapsed().as_nanos() as f64
    })
}

fn fill(batch: &mut Vec<u64>, number: u64) {
    batch.clear();
    batch.extend(number..number + BATCH as u64);
}

fn bulk_raw(cpus: [usize; 2]) -> f64 {
    let (mut tx, mut rx) = rtrb::RingBuffer::<u64>::new(DEPTH);
    let produce = move || {
        let mut batch = Vec::with_capacity(BATCH);
        for number in 0..BULK_BATCHES {
            fill(&mut batch, number);
            loop {
                if let Ok(chunk) = tx.write_chunk_uninit(BATCH) {
                    chunk.fill_from_iter(batch.drain(..));
                    break;
                }
                spin_loop();
            }
        }
    };
    let consume = move || {
        let mut batch = Vec::with_capacity(BATCH);
        let mut taken = 0;
        while taken < BULK_BATCHES {
            if let Ok(chunk) = rx.read_chunk(BATCH) {
                batch.clear();
                chunk.into_iter().for_each(|item| push_within(&mut batch, item));
                black_box(&batch);
                taken += 1;
            } else {
                spin_loop();
            }
        }
    };
    race(cpus, produce, consume) / (BULK_BATCHES as f64 * BATCH as f64)
}

fn bulk_ours(cpus: [usize; 2], waker: &Waker) -> f64 {
    let (mut tx, mut rx) = spsc::<u64>(DEPTH);
    let produce = move || {
        let mut batch = Vec::with_capacity(BATCH);
        for number in 0..BULK_BATCHES {
            fill(&mut batch, number);
            while !batch.is_empty() {
                let fits = tx.room_for(batch.len());
                if tx.push_iter(fits, batch.drain(..fits)) > 0 {
                    waker.ring();
                } else {
                    spin_loop();
                }
            }
        }
    };
    let consume = move || {
        let mut batch = Vec::with_capacity(BATCH);
        let mut taken = 0;
        while taken < BULK_BATCHES as usize * BATCH {
            batch.clear();
            let popped = rx.pop_into(BATCH, |item| push_within(&mut batch, item));
            if popped > 0 {
                black_box(&batch);
                taken += popped;
            } else {
                spin_loop();
            }
        }
    };
    race(cpus, produce, consume) / (BULK_BATCHES as f64 * BATCH as f64)
}

/// What copying whole slices would give: only `Copy` items can, so it bounds what a push from a
/// slice could gain.
fn bulk_copied(cpus: [usize; 2]) -> f64 {
    let (mut tx, mut rx) = rtrb::RingBuffer::<u64>::new(DEPTH);
    let produce = move || {
        let mut batch = Vec::with_capacity(BATCH);
        for number in 0..BULK_BATCHES {
            fill(&mut batch, number);
            while tx.push_entire_slice(&batch).is_err() {
                spin_loop();
            }
        }
    };
    let consume = move || {
        let mut batch = [0; BATCH];
        for _ in 0..BULK_BATCHES {
            while rx.pop_entire_slice(&mut batch).is_err() {
                spin_loop();
            }
            black_box(&batch);
        }
    };
    race(cpus, produce, consume) / (BULK_BATCHES as f64 * BATCH as f64)
}

/// As a packet batch does: never grows.
#[inline]
fn push_within(batch: &mut Vec<u64>, item: u64) {
    if batch.len() < batch.capacity() {
        batch.push(item);
    }
}

fn hop_bare(cpus: [usize; 2]) -> f64 {
    let word = &crossbeam_utils::CachePadded::new(AtomicU64::new(0));
    // Release and Acquire, each the other side's partner: what a hand-off needs at least.
    let turns = move |mine: u64| {
        for turn in 0..HOPS {
            while word.load(Ordering::Acquire) != 2 * turn + mine {
                spin_loop();
            }
            word.store(2 * turn + mine + 1, Ordering::Release);
        }
    };
    race(cpus, move || turns(1), move || turns(0)) / (2.0 * HOPS as f64)
}

fn hop_raw(cpus: [usize; 2]) -> f64 {
    let (mut there, mut back) = (rtrb::RingBuffer::<u64>::new(DEPTH), rtrb::RingBuffer::<u64>::new(DEPTH));
    let send = |tx: &mut rtrb::Producer<u64>, batch: &mut Vec<u64>| {
        let chunk = tx.write_chunk_uninit(BATCH).expect("one batch is on its way at a time");
        chunk.fill_from_iter(batch.drain(..));
    };
    let receive = |rx: &mut rtrb::Consumer<u64>, batch: &mut Vec<u64>| {
        loop {
            if let Ok(chunk) = rx.read_chunk(BATCH) {
                return chunk.into_iter().for_each(|item| push_within(batch, item));
            }
            spin_loop();
        }
    };
    ping_pong(
        cpus,
        |batch| send(&mut there.0, batch),
        |batch| receive(&mut back.1, batch),
        |batch| send(&mut back.0, batch),
        |batch| receive(&mut there.1, batch),
    )
}

fn hop_ours(cpus: [usize; 2], waker: &Waker) -> f64 {
    let (mut there, mut back) = (spsc::<u64>(DEPTH), spsc::<u64>(DEPTH));
    let send = |tx: &mut verbline_ring::Producer<u64>, batch: &mut Vec<u64>| {
        tx.push_iter(BATCH, batch.drain(..));
        waker.ring();
    };
    let receive = |rx: &mut verbline_ring::Consumer<u64>, batch: &mut Vec<u64>| {
        while batch.len() < BATCH {
            if rx.pop_into(BATCH, |item| push_within(batch, item)) == 0 {
                spin_loop();
            }
        }
    };
    ping_pong(
        cpus,
        |batch| send(&mut there.0, batch),
        |batch| receive(&mut back.1, batch),
        |batch| send(&mut back.0, batch),
        |batch| receive(&mut there.1, batch),
    )
}

/// One batch there, the same one back: nanoseconds a hop.
fn ping_pong(
    cpus: [usize; 2],
    mut near_send: impl FnMut(&mut Vec<u64>) + Send,
    mut near_receive: impl FnMut(&mut Vec<u64>) + Send,
    mut far_send: impl FnMut(&mut Vec<u64>) + Send,
    mut far_receive: impl FnMut(&mut Vec<u64>) + Send,
) -> f64 {
    let far = move || {
        let mut batch = Vec::with_capacity(BATCH);
        for _ in 0..HOPS {
            far_receive(&mut batch);
            far_send(&mut batch);
        }
    };
    let near = move || {
        let mut batch = Vec::with_capacity(BATCH);
        fill(&mut batch, 1);
        for _ in 0..HOPS {
            near_send(&mut batch);
            near_receive(&mut batch);
        }
        black_box(&batch);
    };
    race(cpus, far, near) / (2.0 * HOPS as f64)
}
