//! The doorbell and the fences.
//!
//! Two shapes of model. In `exchange` the sleeper really blocks, and a missed wake-up is a
//! deadlock, which loom reports (by an abort: its own objects can't be dropped then). In
//! `one_sleep` it lets the producers finish and then asks whether the bell was rung, so that a
//! missed wake-up is an ordinary panic. The mutants leave out one step each and must panic: that
//! shows both that the step is needed and that the models would notice.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use verbline_ring::{Sleeper, Wake, Waker, doorbell, doorbell_lacking_fence, fence};

/// A ring as seen by the doorbell: rtrb publishes by a Release store of its tail and looks by an
/// Acquire load.
#[derive(Clone)]
struct Tail(Arc<AtomicUsize>);

impl Tail {
    fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    fn publish(&self, tail: usize) {
        self.0.store(tail, Ordering::Release);
    }

    fn look(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// A producer that publishes `items`, one per batch; returns the number of its rings that woke the
/// lcore.
fn produce(tail: Tail, waker: Waker, items: usize) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let rings = (1..=items).map(|published| {
            tail.publish(published);
            waker.ring()
        });
        rings.filter(|woke| *woke).count()
    })
}

/// Polls all `tails` until `items` were seen, and sleeps whenever there is nothing new. Returns the
/// number of sleeps that were rung.
fn consume(tails: &[Tail], sleeper: &mut Sleeper, items: usize) -> usize {
    let (mut seen, mut rung) = (0, 0);
    while seen < items {
        let now = poll(tails);
        if now > seen {
            seen = now;
            continue;
        }
        let armed = sleeper.arm();
        let wake = if poll(tails) > seen {
            sleeper.disarm(armed)
        } else {
            sleeper.wait(armed, None).expect("the event has no errors")
        };
        rung += usize::from(wake == Wake::Rung);
    }
    rung
}

fn poll(tails: &[Tail]) -> usize {
    tails.iter().map(Tail::look).sum()
}

/// Runs `producers` against one sleeper, and counts: for each sleep that was rung, exactly one ring
/// woke it.
fn exchange(producers: usize, items_each: usize) {
    let (waker, mut sleeper) = bell();
    let tails: Vec<Tail> = (0..producers).map(|_| Tail::new()).collect();
    let threads: Vec<_> = tails.iter().map(|tail| produce(tail.clone(), waker.clone(), items_each)).collect();
    let rung = consume(&tails, &mut sleeper, producers * items_each);
    let rings: usize = threads.into_iter().map(|thread| thread.join().expect("a producer doesn't panic")).sum();
    assert_eq!(rings, rung);
}

/// One attempt to sleep while two producers publish one item each. An unseen item must have rung
/// the bell.
fn one_sleep((waker, mut sleeper): (Waker, Sleeper), poll_again: bool) {
    let tails = [Tail::new(), Tail::new()];
    let threads = tails.clone().map(|tail| produce(tail, waker.clone(), 1));
    let before = poll(&tails);
    let armed = sleeper.arm();
    let blocks = !poll_again || poll(&tails) == before;
    let rings: usize = threads.map(|thread| thread.join().expect("a producer doesn't panic")).into_iter().sum();
    let wake = sleeper.woken(armed);
    assert_eq!(rings, usize::from(wake == Wake::Rung), "one write a sleep");
    assert!(!blocks || before == tails.len() || wake == Wake::Rung, "it blocks, and nobody wakes it");
}

fn bell() -> (Waker, Sleeper) {
    doorbell().expect("no errors under loom")
}

#[test]
fn two_producers_wake_one_sleeper() {
    // Unbounded this takes hours; `one_sleep` below has two producers without a bound.
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(|| exchange(2, 1));
}

#[test]
fn what_the_poll_after_arming_misses_rings_the_bell_once() {
    loom::model(|| one_sleep(bell(), true));
}

#[test]
fn a_ring_that_crosses_a_disarm_costs_the_next_sleep_nothing() {
    loom::model(|| exchange(1, 2));
}

#[test]
fn a_rung_sleeper_sees_what_its_waker_wrote_before_ringing() {
    loom::model(|| {
        let (waker, mut sleeper) = bell();
        let note = Arc::new(AtomicUsize::new(0));
        let armed = sleeper.arm();
        let writer = thread::spawn({
            let note = note.clone();
            move || {
                note.store(1, Ordering::Relaxed);
                waker.ring();
            }
        });
        if sleeper.disarm(armed) == Wake::Rung {
            assert_eq!(note.load(Ordering::Relaxed), 1);
        }
        writer.join().expect("the writer doesn't panic");
    });
}

#[test]
fn a_dropped_token_and_a_dropped_sleeper_leave_nothing_asleep() {
    loom::model(|| {
        let (waker, mut sleeper) = bell();
        let tail = Tail::new();
        drop(sleeper.arm());
        let producer = produce(tail.clone(), waker.clone(), 1);
        consume(&[tail], &mut sleeper, 1);
        producer.join().expect("the producer doesn't panic");
        let _forgotten = sleeper.arm();
        drop(sleeper);
        assert!(!waker.ring());
    });
}

#[test]
fn fences_order_a_write_before_a_read() {
    loom::model(|| dekker(fence::light, fence::heavy));
}

// The mutants.

#[test]
#[should_panic(expected = "nobody wakes it")]
fn mutant_that_does_not_poll_again_after_arming_loses_a_wake_up() {
    loom::model(|| one_sleep(bell(), false));
}

#[test]
#[should_panic(expected = "nobody wakes it")]
fn mutant_without_the_light_fence_loses_a_wake_up() {
    loom::model(|| one_sleep(doorbell_lacking_fence(true, false).expect("no errors under loom"), true));
}

#[test]
#[should_panic(expected = "nobody wakes it")]
fn mutant_without_the_heavy_fence_loses_a_wake_up() {
    loom::model(|| one_sleep(doorbell_lacking_fence(false, true).expect("no errors under loom"), true));
}

#[test]
#[should_panic(expected = "neither saw the other")]
fn mutant_without_a_fence_reorders_a_write_and_a_read() {
    loom::model(|| dekker(|| (), fence::heavy));
}

fn dekker(light: impl Fn() + Send + 'static, heavy: impl Fn()) {
    let words = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let other = thread::spawn({
        let words = words.clone();
        move || {
            words.0.store(1, Ordering::Relaxed);
            light();
            words.1.load(Ordering::Relaxed)
        }
    });
    words.1.store(1, Ordering::Relaxed);
    heavy();
    let seen = words.0.load(Ordering::Relaxed);
    assert!(seen + other.join().expect("it doesn't panic") > 0, "neither saw the other");
}
