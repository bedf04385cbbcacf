//! A producer's requests to its consumer to drop items.
//!
//! The ring is two indices, published as rtrb does. The producer fills it, asks for room for its
//! waiting items, and pushes as soon as there is room, in some turns more than that needs. The
//! consumer drops by the real rule, and takes an item now and then. In every interleaving, dropped
//! items are older than kept ones, and no item is dropped for which there is room beside the later
//! ones.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use verbline_ring::{Displaced, Displacer, displacement};

const DEPTH: u64 = 2;
const ITEMS: u64 = 3;

/// Items are numbered; the ring holds those from `head` to `tail`.
struct Ring {
    head: AtomicU64,
    tail: AtomicU64,
}

/// Makes `ITEMS` items, the last of which wait without room in the ring; tries `turns` times.
fn produce(ring: &Ring, mut displacer: Displacer, turns: usize) {
    let mut pushed = 0;
    for _ in 0..turns {
        let room = ring.head.load(Ordering::Acquire) + DEPTH - pushed;
        let more = room.min(ITEMS - pushed);
        pushed += more;
        ring.tail.store(pushed, Ordering::Release);
        displacer.ask(more as usize, (ITEMS - pushed) as usize);
    }
}

struct Consumer {
    ring: Arc<Ring>,
    displaced: Displaced,
    head: u64,
    dropped: u64,
}

impl Consumer {
    /// Like `RingConsumer`: drops the items asked for, then takes up to `take`.
    fn poll(&mut self, take: u64) {
        let asked = self.displaced.in_the_way() as u64;
        self.dropped += self.advance(asked);
        assert!(self.head <= ITEMS - DEPTH || asked == 0, "an item was dropped that had room");
        self.advance(take);
    }

    fn advance(&mut self, items: u64) -> u64 {
        let items = items.min(self.ring.tail.load(Ordering::Acquire) - self.head);
        self.head += items;
        self.ring.head.store(self.head, Ordering::Release);
        self.displaced.note_taken(items as usize);
        items
    }
}

/// The consumer polls before the producer has ended, taking the next of `takes` each time, and then
/// once more.
fn run(takes: &'static [u64]) {
    let mut model = loom::model::Builder::new();
    // All interleavings take minutes. Four preemptions suffice to refute requests that carry a
    // number of items.
    model.preemption_bound = Some(4);
    model.check(move || {
        let ring = Arc::new(Ring { head: 0.into(), tail: 0.into() });
        let (displacer, displaced) = displacement(DEPTH as usize);
        let producer = thread::spawn({
            let ring = ring.clone();
            move || produce(&ring, displacer, 3)
        });
        let mut consumer = Consumer { ring, displaced, head: 0, dropped: 0 };
        for take in takes {
            consumer.poll(*take);
        }
        producer.join().expect("the producer doesn't panic");
        // The producer's last request is seen, unless the consumer has acted on it.
        consumer.poll(0);
        let pushed = consumer.ring.tail.load(Ordering::Relaxed);
        assert!(pushed == ITEMS || consumer.head > 0, "one waits, and nothing makes room for it");
    });
}

#[test]
fn what_is_dropped_has_no_room_and_the_last_ask_is_not_lost() {
    run(&[0, 0]);
}

#[test]
fn what_is_taken_is_not_dropped_as_well() {
    run(&[1, 0]);
}
