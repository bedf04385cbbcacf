//! Rings, doorbell and fences across real threads. Bounded by count, and blocking instead of timed:
//! a lost wake-up shows as a test that doesn't end.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use verbline_ring::{Consumer, Producer, Waker, doorbell, fence, spsc};

/// Puts `0..items` in, in batches of changing size, yielding when the ring is full.
fn produce(mut producer: Producer<u64>, waker: Waker, items: u64, nap: bool) {
    let mut next = 0..items;
    for round in 0.. {
        if next.is_empty() {
            break;
        }
        if producer.push_iter(1 + round % 37, &mut next) == 0 {
            thread::yield_now();
        }
        waker.ring();
        if nap && round % 8 == 0 {
            thread::yield_now();
        }
    }
    drop(producer);
    // So that a sleeper learns that this end is gone.
    waker.ring();
}

/// Takes up to 32; returns their number. Each must follow its predecessor.
fn take(consumer: &mut Consumer<u64>, expected: &mut u64) -> usize {
    consumer.pop_into(32, |item| {
        assert_eq!(item, *expected);
        *expected += 1;
    })
}

#[test]
fn every_item_arrives_once_and_in_order() {
    const ITEMS: u64 = 1_000_000;
    let (producer, mut consumer) = spsc(100);
    let (waker, _awake) = doorbell().expect("an eventfd");
    thread::scope(|scope| {
        scope.spawn(|| produce(producer, waker, ITEMS, false));
        let mut expected = 0;
        loop {
            let last = consumer.is_abandoned();
            match take(&mut consumer, &mut expected) {
                0 if last => break,
                0 => thread::yield_now(),
                _ => {}
            }
        }
        assert_eq!(expected, ITEMS);
    });
}

/// The consumer sleeps at once when it has nothing, and without a limit.
#[test]
fn a_sleeper_with_two_producers_misses_nothing() {
    const ITEMS: u64 = 20_000;
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    let (producers, mut consumers): (Vec<_>, Vec<_>) = (0..2).map(|_| spsc(16)).unzip();
    thread::scope(|scope| {
        for producer in producers {
            let waker = waker.clone();
            scope.spawn(|| produce(producer, waker, ITEMS, true));
        }
        let mut expected = [0; 2];
        loop {
            let done = consumers.iter().all(Consumer::is_abandoned);
            let taken: usize = consumers.iter_mut().zip(&mut expected).map(|(ring, next)| take(ring, next)).sum();
            if taken > 0 {
                continue;
            }
            if done {
                break;
            }
            let armed = sleeper.arm();
            if consumers.iter().all(|ring| ring.is_empty() && !ring.is_abandoned()) {
                sleeper.wait(armed, None).expect("no error");
            } else {
                sleeper.disarm(armed);
            }
        }
        assert_eq!(expected, [ITEMS; 2]);
    });
}

/// Dekker's pattern on the real fences: at least one side sees the other's write, every time.
#[test]
fn light_and_heavy_fences_order_a_write_before_a_read() {
    const ROUNDS: usize = 3_000;
    let (light_word, heavy_word) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // The round that each side has ended, and the light side's readings. SeqCst throughout: not
    // under test.
    let (started, ended, seen) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while started.load(Ordering::SeqCst) < round {
                    thread::yield_now();
                }
                light_word.store(round, Ordering::Relaxed);
                fence::light();
                seen.store(heavy_word.load(Ordering::Relaxed), Ordering::SeqCst);
                ended.store(round, Ordering::SeqCst);
            }
        });
        for round in 1..=ROUNDS {
            started.store(round, Ordering::SeqCst);
            heavy_word.store(round, Ordering::Relaxed);
            fence::heavy();
            let light_seen = light_word.load(Ordering::Relaxed);
            while ended.load(Ordering::SeqCst) < round {
                thread::yield_now();
            }
            assert!(light_seen == round || seen.load(Ordering::SeqCst) == round, "neither saw the other in {round}");
        }
    });
}
