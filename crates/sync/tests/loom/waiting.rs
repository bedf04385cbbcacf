//! Models of waiting: taking objects away, objects held for long, and work that nobody waits for.

use super::model;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;
use verbline_sync::Backoff;
use verbline_sync::guard::{Guard, Holds, Taken, present};
use verbline_sync::lock::SpinLock;
use verbline_sync::turn::Turn;
use verbline_sync::versions::Versions;

/// Waits like `guards::quiesce`.
fn quiesce(guard: &Guard, taken: Taken) {
    for ((), presence) in present([((), guard)]) {
        let mut backoff = Backoff::new();
        while !presence.is_over(guard, taken) {
            backoff.wait();
        }
    }
}

/// A data path follows a pointer inside its guard; the control path takes the object away, waits,
/// and frees it.
#[test]
fn what_was_taken_away_is_not_used_after_quiesce() {
    model(|| {
        let guard = Arc::new(Guard::new());
        let reachable = Arc::new(AtomicBool::new(true));
        let object = Arc::new(loom::cell::UnsafeCell::new(1u64));
        let user = {
            let (guard, reachable, object) = (guard.clone(), reachable.clone(), object.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let _inside = guard.enter();
                    if reachable.load(Ordering::Acquire) {
                        // SAFETY: reachable, and we are inside: loom fails the test if this races
                        // with the write.
                        assert_eq!(object.with(|object| unsafe { *object }), 1);
                    }
                }
            })
        };
        reachable.store(false, Ordering::Release);
        quiesce(&guard, Taken::Anything);
        // SAFETY: nobody can be using it: the test checks just this.
        object.with_mut(|object| unsafe { *object = 0 });
        user.join().unwrap();
    });
}

/// Two objects. A data path holds the first in a long transfer, and uses the second afterwards:
/// `finds_anew` is whether it finds it anew, or uses its earlier pointer.
fn one_of_two_is_taken_away(taken: usize, finds_anew: bool) {
    model(move || {
        let guard = Arc::new(Guard::new());
        let reachable: Arc<[AtomicBool; 2]> = Arc::new([AtomicBool::new(true), AtomicBool::new(true)]);
        let objects: Arc<[loom::cell::UnsafeCell<u64>; 2]> =
            Arc::new(std::array::from_fn(|_| loom::cell::UnsafeCell::new(1)));
        let user = {
            let (guard, reachable, objects) = (guard.clone(), reachable.clone(), objects.clone());
            thread::spawn(move || {
                // SAFETY: found, and held, by the test's construction: loom fails it if this races.
                let read = |object: usize| objects[object].with(|object| assert_eq!(unsafe { *object }, 1));
                let find = |object: usize| reachable[object].load(Ordering::Acquire);
                let _inside = guard.enter();
                let found = [find(0), find(1)];
                let narrowed = guard.narrow(Holds::default().with(0));
                if found[0] {
                    read(0);
                }
                drop(narrowed);
                if found[0] {
                    read(0);
                }
                if if finds_anew { find(1) } else { found[1] } {
                    read(1);
                }
            })
        };
        reachable[taken].store(false, Ordering::Release);
        quiesce(&guard, Taken::Number(taken as u64));
        // SAFETY: nobody can be using it: the test checks just this.
        objects[taken].with_mut(|object| unsafe { *object = 0 });
        user.join().unwrap();
    });
}

#[test]
fn what_a_long_transfer_holds_is_not_taken_from_it() {
    one_of_two_is_taken_away(0, true);
}

#[test]
fn what_a_long_transfer_does_not_hold_is_taken_while_it_lasts() {
    one_of_two_is_taken_away(1, true);
}

/// The mutant goes on using an object that it found before and did not name as held.
#[test]
#[should_panic]
fn what_was_not_held_must_be_found_anew() {
    one_of_two_is_taken_away(1, false);
}

/// A thread that takes away another object is done while the transfer lasts.
#[test]
fn who_takes_something_else_away_does_not_wait_for_a_long_transfer() {
    model(|| {
        let (guard, done) = (Arc::new(Guard::new()), Arc::new(AtomicBool::new(false)));
        let _inside = guard.enter();
        let _narrowed = guard.narrow(Holds::default().with(0));
        let control = {
            let (guard, done) = (guard.clone(), done.clone());
            thread::spawn(move || {
                quiesce(&guard, Taken::Number(1));
                done.store(true, Ordering::Relaxed);
            })
        };
        control.join().unwrap();
        assert!(done.load(Ordering::Relaxed));
    });
}

/// A key's configuration, with accesses that loom sees: two words that belong together.
struct Config(loom::cell::UnsafeCell<[u64; 2]>);

// SAFETY: read by holders of a version, written by the owner of its slot: loom fails the test if
// those meet.
unsafe impl Sync for Config {}

impl Config {
    fn new() -> Config {
        Config(loom::cell::UnsafeCell::new([0; 2]))
    }
    fn read(&self) -> u64 {
        // SAFETY: the reader holds this version, which nobody writes meanwhile, or loom fails.
        let [first, second] = self.0.with(|words| unsafe { *words });
        assert_eq!(first, second, "a mixture");
        first
    }
    fn write(&self, number: u64) {
        // SAFETY: the writer has this slot to itself, or loom fails.
        self.0.with_mut(|words| unsafe { *words = [number; 2] });
    }
}

fn configure(key: &Versions<Config>) {
    key.replace(Config::new, |before, after| after.write(before.read() + 1));
}

/// A transfer through a key, while two threads configure it, one of them twice, into a slot that
/// was freed.
#[test]
fn a_transfer_sees_one_configuration_and_no_configuration_is_lost() {
    model(|| {
        let key = Arc::new(Versions::new(Config::new));
        let configurers: Vec<_> = [2, 1]
            .map(|times| {
                let key = key.clone();
                thread::spawn(move || (0..times).for_each(|_| configure(&key)))
            })
            .into_iter()
            .collect();
        let held = key.hold();
        let number = held.read();
        assert_eq!(held.read(), number, "it changed under a transfer");
        drop(held);
        configurers.into_iter().for_each(|configurer| configurer.join().unwrap());
        assert_eq!(key.hold().read(), 3);
    });
}

/// Two peers, each in the middle of a transfer through its own key, invalidate each other's: like
/// `indirect::send`, which holds its source.
#[test]
fn two_transfers_that_invalidate_each_others_keys_both_end() {
    model(|| {
        let keys: Arc<[Versions<Config>; 2]> = Arc::new(std::array::from_fn(|_| Versions::new(Config::new)));
        let peer = {
            let keys = keys.clone();
            thread::spawn(move || {
                let source = keys[1].hold();
                configure(&keys[0]);
                source.read();
            })
        };
        let source = keys[0].hold();
        configure(&keys[1]);
        source.read();
        drop(source);
        peer.join().unwrap();
        assert_eq!([keys[0].hold().read(), keys[1].hold().read()], [1, 1]);
    });
}

/// The mutant is the former code: a key's lock is held during the transfer.
#[test]
#[should_panic]
fn with_a_lock_a_key_two_transfers_wait_for_each_other() {
    model(|| {
        let keys: Arc<[SpinLock<u64>; 2]> = Arc::new(std::array::from_fn(|_| SpinLock::new(0)));
        let peer = {
            let keys = keys.clone();
            thread::spawn(move || {
                let _source = keys[1].lock();
                *keys[0].lock() += 1;
            })
        };
        let source = keys[0].lock();
        *keys[1].lock() += 1;
        drop(source);
        peer.join().unwrap();
    });
}

/// Two threads each have work: one may do it for both, and neither waits.
#[test]
fn what_is_left_to_another_is_done() {
    struct Queue {
        turn: Turn,
        posted: [AtomicBool; 2],
        done: [AtomicU64; 2],
    }
    fn progress(queue: &Queue) {
        let mut taken = queue.turn.take();
        while let Some(turn) = taken {
            for (posted, done) in queue.posted.iter().zip(&queue.done) {
                if posted.load(Ordering::Relaxed) {
                    posted.store(false, Ordering::Relaxed);
                    done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
            }
            taken = turn.give_up();
        }
    }
    model(|| {
        let queue = Arc::new(Queue { turn: Turn::new(), posted: Default::default(), done: Default::default() });
        let other = {
            let queue = queue.clone();
            thread::spawn(move || {
                queue.posted[1].store(true, Ordering::Relaxed);
                progress(&queue);
            })
        };
        queue.posted[0].store(true, Ordering::Relaxed);
        progress(&queue);
        other.join().unwrap();
        assert_eq!([0, 1].map(|at| queue.done[at].load(Ordering::Relaxed)), [1, 1]);
    });
}
