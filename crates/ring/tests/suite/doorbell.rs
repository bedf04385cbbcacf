//! The doorbell with its real eventfd: known failures of other implementations, one test each, and
//! misuse.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::time::Duration;
use verbline_ring::{Producer, Sleeper, Wake, Waker, doorbell, spsc};

/// Wakers are shared between lcores; a sleeper and a ring's end move to theirs.
const _: () = {
    const fn shared<T: Clone + Send + Sync>() {}
    const fn moved<T: Send>() {}
    shared::<Waker>();
    moved::<(Sleeper, Producer<u64>)>();
};

/// Whether blocking on the doorbell would return at once.
fn readable(sleeper: &Sleeper) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&sleeper.as_fd(), PollFlags::IN)], Some(&now)).expect("poll works") > 0
}

#[test]
fn ringing_an_awake_lcore_writes_nothing() {
    let (waker, sleeper) = doorbell().expect("an eventfd");
    assert!(!waker.ring());
    assert!(!readable(&sleeper));
}

/// The event between the last poll and the arm: it rings no bell, so only the poll after arming can
/// see it.
#[test]
fn work_between_the_last_poll_and_the_arm_is_seen_by_the_poll_after_it() {
    let (mut producer, mut consumer) = spsc(4);
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    assert!(consumer.is_empty());
    producer.push_iter(1, [7]);
    assert!(!waker.ring());
    let armed = sleeper.arm();
    assert!(!readable(&sleeper), "nobody will wake it");
    assert!(!consumer.is_empty(), "the poll after arming must see it");
    assert_eq!(sleeper.disarm(armed), Wake::Other);
    assert_eq!(consumer.pop(), Some(7));
}

#[test]
fn work_after_the_arm_wakes() {
    let (mut producer, mut consumer) = spsc(4);
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    let armed = sleeper.arm();
    assert!(consumer.is_empty());
    producer.push_iter(1, [7]);
    assert!(waker.ring());
    assert_eq!(sleeper.wait(armed, None).expect("no error"), Wake::Rung);
    assert_eq!(consumer.pop(), Some(7));
    assert!(!readable(&sleeper));
}

/// A queue drained only partly after a wake: the remaining items ring no bell, and the poll after
/// the next arm sees them.
#[test]
fn what_a_partial_drain_leaves_keeps_the_lcore_awake() {
    let (mut producer, mut consumer) = spsc(16);
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    let armed = sleeper.arm();
    producer.push_iter(10, 0..10);
    waker.ring();
    assert_eq!(sleeper.wait(armed, None).expect("no error"), Wake::Rung);
    assert_eq!(consumer.pop_into(2, drop), 2);
    let armed = sleeper.arm();
    assert!(!readable(&sleeper));
    assert!(!consumer.is_empty());
    sleeper.disarm(armed);
    assert_eq!(consumer.pop_into(16, drop), 8);
}

/// Several wakers at the same time: one write, one wake, and nothing left that would cut the next
/// sleep short.
#[test]
fn many_wakers_write_once() {
    const WAKERS: usize = 4;
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    for _ in 0..20 {
        let armed = sleeper.arm();
        let start = Barrier::new(WAKERS);
        let woke: usize = std::thread::scope(|scope| {
            let ring = || {
                start.wait();
                usize::from(waker.ring())
            };
            let rings: Vec<_> = (0..WAKERS).map(|_| scope.spawn(ring)).collect();
            rings.into_iter().map(|ring| ring.join().expect("no panic")).sum()
        });
        assert_eq!(woke, 1);
        let mut count = [0; 8];
        rustix::io::read(sleeper.as_fd(), &mut count).expect("it was rung");
        assert_eq!(u64::from_ne_bytes(count), 1, "one write a sleep");
        assert_eq!(sleeper.woken(armed), Wake::Rung);
        assert!(!readable(&sleeper));
    }
}

/// A wake by another cause is reported as such, and the doorbell works on.
#[test]
fn a_spurious_wake_is_reported_and_harmless() {
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    let armed = sleeper.arm();
    assert_eq!(sleeper.wait(armed, Some(Duration::ZERO)).expect("no error"), Wake::Other);
    assert!(!waker.ring(), "it is awake");
    let armed = sleeper.arm();
    assert!(waker.ring());
    assert_eq!(sleeper.woken(armed), Wake::Rung);
}

/// A wake source that stays readable would keep an lcore spinning: even an outside write must not
/// leave it so.
#[test]
fn the_doorbell_never_stays_readable() {
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    rustix::io::write(sleeper.as_fd(), &3u64.to_ne_bytes()).expect("an eventfd can be written");
    let armed = sleeper.arm();
    assert!(readable(&sleeper));
    assert_eq!(sleeper.woken(armed), Wake::Other);
    assert!(!readable(&sleeper));
    let armed = sleeper.arm();
    waker.ring();
    assert_eq!(sleeper.woken(armed), Wake::Rung);
    assert!(!readable(&sleeper));
}

/// A ring that crosses a disarm leaves a write behind, which doesn't end the next sleep.
#[test]
fn a_ring_that_crosses_a_disarm_does_not_cut_the_next_sleep_short() {
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    let armed = sleeper.arm();
    assert!(waker.ring());
    assert_eq!(sleeper.disarm(armed), Wake::Rung);
    assert!(readable(&sleeper), "the write is still there");
    let armed = sleeper.arm();
    assert!(!readable(&sleeper));
    assert!(waker.ring(), "and this sleep can be rung");
    assert_eq!(sleeper.woken(armed), Wake::Rung);
}

#[test]
fn a_dropped_token_is_made_good_by_the_next_arm() {
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    drop(sleeper.arm());
    assert!(waker.ring());
    let armed = sleeper.arm();
    assert!(!readable(&sleeper));
    assert!(waker.ring());
    assert_eq!(sleeper.woken(armed), Wake::Rung);
    assert!(!readable(&sleeper));
}

#[test]
fn wakers_outlive_their_sleeper_in_peace() {
    let (waker, mut sleeper) = doorbell().expect("an eventfd");
    let _armed = sleeper.arm();
    drop(sleeper);
    assert!(!waker.ring());
}

#[test]
fn a_token_is_only_good_for_its_own_sleeper_and_sleep() {
    let message = |refused: Box<dyn std::any::Any + Send>| *refused.downcast::<String>().expect("a message");
    let ((_, mut one), (_, mut two)) = (doorbell().expect("an eventfd"), doorbell().expect("an eventfd"));
    let (of_one, of_two) = (one.arm(), two.arm());
    let refused = catch_unwind(AssertUnwindSafe(|| two.disarm(of_one))).expect_err("another's token");
    assert!(message(refused).contains("goes back to the sleeper that armed it"));
    assert_eq!(two.woken(of_two), Wake::Other);
    let stale = one.arm();
    let newest = one.arm();
    let refused = catch_unwind(AssertUnwindSafe(|| one.wait(stale, None))).expect_err("a stale token");
    assert!(message(refused).contains("before that arms again"));
    assert_eq!(one.disarm(newest), Wake::Other);
}
