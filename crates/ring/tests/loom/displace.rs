//! What a producer asks its consumer to drop.
//!
//! The ring is two indices, published as rtrb does. The producer fills it, asks for what waits, and
//! pushes as soon as there is room; the consumer drops by the real rule. Whatever the two do at the
//! same time, what is dropped is older than what is kept, and nothing is dropped that nothing waits
//! for.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use verbline_ring::Displacement;

const DEPTH: u64 = 2;

/// Items are numbered; the ring holds those from `head` to `tail`.
struct Ring {
    head: AtomicU64,
    tail: AtomicU64,
    displaced: Displacement,
}

/// Makes `items`, of which the last wait where the ring has no room; tries `turns` times.
fn produce(ring: &Ring, items: u64, turns: usize) {
    let mut pushed = 0;
    for _ in 0..turns {
        let room = ring.head.load(Ordering::Acquire) + DEPTH - pushed;
        pushed += room.min(items - pushed);
        ring.tail.store(pushed, Ordering::Release);
        ring.displaced.ask(items - pushed);
    }
}

/// As `RingConsumer` does: gives how many it dropped.
fn displace(ring: &Ring, head: &mut u64) -> u64 {
    let asked = ring.displaced.take();
    let len = ring.tail.load(Ordering::Acquire) - *head;
    let dropped = asked.saturating_sub(DEPTH - len).min(len);
    *head += dropped;
    ring.head.store(*head, Ordering::Release);
    dropped
}

#[test]
fn no_more_is_dropped_than_waits_and_the_last_ask_is_not_lost() {
    loom::model(|| {
        const ITEMS: u64 = 3;
        let ring = Arc::new(Ring { head: 0.into(), tail: 0.into(), displaced: Displacement::default() });
        let producer = thread::spawn({
            let ring = ring.clone();
            move || produce(&ring, ITEMS, 2)
        });
        let mut head = 0;
        let mut dropped = displace(&ring, &mut head);
        dropped += displace(&ring, &mut head);
        producer.join().expect("the producer doesn't panic");
        // What the producer said last is still there, if the consumer has not acted on it.
        dropped += displace(&ring, &mut head);
        assert!(dropped <= ITEMS - DEPTH, "{dropped} of {ITEMS} dropped, and {DEPTH} fit");
        let pushed = ring.tail.load(Ordering::Relaxed);
        assert!(pushed == ITEMS || dropped == ITEMS - DEPTH, "one waits, and nothing makes room for it");
    });
}
