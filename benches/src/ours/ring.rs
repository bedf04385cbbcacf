//! The hand-off between two cores in bulks of 32, with both at full speed: nanoseconds per item.
//!
//! The loop is that of DPDK's `ring_perf_autotest`: one thread puts the same array of 32 words in
//! again and again, the other takes 32 at a time into an array of its own, and the figure is the
//! mean of both sides' times per item. The array is read in place, like DPDK's: an array by value
//! would be copied into its iterator first.

use std::hint::{black_box, spin_loop};
use std::time::Duration;

use verbline_ring::{doorbell, spsc};

use super::repeated;
use crate::Figures;
use crate::pair::race;

/// Items moved at once.
pub const BULK: usize = 32;
/// Items in the ring, as in DPDK's test.
pub const DEPTH: usize = 4096;
const BULKS: usize = 1 << 17;

/// Ours: `ns` with the doorbell of an awake consumer rung after each bulk, as an lcore does;
/// `silent_ns` without it.
pub fn ours() -> Figures {
    Figures::of("ns", repeated(|| hand_off(true))).and("silent_ns", repeated(|| hand_off(false)))
}

/// rtrb unchanged, by chunks of 32: `ns`.
pub fn rtrb() -> Figures {
    Figures::of("ns", repeated(rtrb_hand_off))
}

fn hand_off(with_doorbell: bool) -> f64 {
    let (mut producer, mut consumer) = spsc::<u64>(DEPTH);
    let (waker, _awake) = doorbell().expect("an eventfd");
    let burst = black_box([7; BULK]);
    let near = || {
        for _ in 0..BULKS {
            while producer.room_for(BULK) < BULK {
                spin_loop();
            }
            producer.push_iter(BULK, burst.iter().copied());
            if with_doorbell {
                waker.ring();
            }
        }
    };
    let far = || {
        let mut taken = [0; BULK];
        let mut items = 0;
        while items < BULKS * BULK {
            let mut slots = taken.iter_mut();
            let popped = consumer.pop_into(BULK, |item| {
                if let Some(slot) = slots.next() {
                    *slot = item;
                }
            });
            if popped == 0 {
                spin_loop();
            }
            black_box(&mut taken);
            items += popped;
        }
    };
    an_item(race(near, far))
}

fn rtrb_hand_off() -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u64>::new(DEPTH);
    // Its memory is touched before the start, like ours.
    if let Ok(mut chunk) = producer.write_chunk(DEPTH) {
        chunk.as_mut_slices().0.fill(1);
    }
    let burst = black_box([7; BULK]);
    let near = || {
        for _ in 0..BULKS {
            loop {
                if let Ok(chunk) = producer.write_chunk_uninit(BULK) {
                    chunk.fill_from_iter(burst.iter().copied());
                    break;
                }
                spin_loop();
            }
        }
    };
    let far = || {
        let mut taken = [0; BULK];
        for _ in 0..BULKS {
            loop {
                if let Ok(chunk) = consumer.read_chunk(BULK) {
                    let mut slots = taken.iter_mut();
                    chunk.into_iter().for_each(|item| {
                        if let Some(slot) = slots.next() {
                            *slot = item;
                        }
                    });
                    break;
                }
                spin_loop();
            }
            black_box(&mut taken);
        }
    };
    an_item(race(near, far))
}

fn an_item([near, far]: [Duration; 2]) -> f64 {
    (near + far).as_nanos() as f64 / (2 * BULKS * BULK) as f64
}
