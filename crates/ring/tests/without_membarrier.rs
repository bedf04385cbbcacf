//! Without membarrier(2) in the kernel the fences are full ones, and the doorbell works all the
//! same. A file of its own: fences are chosen once per process.
#![cfg(not(loom))]

mod seccomp;

use verbline_ring::fence::{Mechanism, mechanism};
use verbline_ring::{Wake, doorbell, spsc};

#[test]
fn both_fences_are_full_and_a_sleeper_misses_nothing() {
    const ITEMS: u64 = 5_000;
    seccomp::refuse_membarrier();
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    assert_eq!(mechanism(), Mechanism::SeqCst);
    let (mut producer, mut consumer) = spsc(8);
    let armed = sleeper.arm();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0..ITEMS;
            while !next.is_empty() {
                producer.push_iter(3, &mut next);
                waker.ring();
                std::thread::yield_now();
            }
        });
        // Armed before there was a producer, so at least the first sleep is rung.
        assert_eq!(sleeper.wait(armed, None).expect("no error"), Wake::Rung);
        let mut taken = 0;
        while taken < ITEMS {
            taken += consumer.pop_into(8, drop) as u64;
            let armed = sleeper.arm();
            if consumer.is_empty() && taken < ITEMS {
                sleeper.wait(armed, None).expect("no error");
            } else {
                sleeper.disarm(armed);
            }
        }
    });
}
