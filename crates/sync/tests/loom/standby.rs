//! Models of the thread that works while nobody polls.

use super::model;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use verbline_sync::standby::{Standby, Work};

/// The state under a wire's lock.
#[derive(Default)]
struct Inner {
    polls: u64,
    is_armed: bool,
    completions: u32,
}

/// The kernel's state: readable descriptors.
#[derive(Default)]
struct Readable {
    datagrams: u32,
    bell: bool,
    event: bool,
    is_over: bool,
    /// Whether the owner waits for its event, and the thread for its bell.
    owner_sleeps: bool,
    thread_stands_by: bool,
    /// Nobody will ever wake the owner.
    is_lost: bool,
}

impl Readable {
    /// Ends the model if it would stand still.
    fn look(&mut self) {
        let waits = self.owner_sleeps && self.thread_stands_by && self.datagrams > 0;
        if waits && !self.bell && !self.event {
            (self.is_lost, self.is_over) = (true, true);
        }
    }
}

#[derive(Default)]
struct Wire {
    inner: Mutex<Inner>,
    readable: Mutex<Readable>,
    changed: Condvar,
}

impl Wire {
    fn change(&self, change: impl FnOnce(&mut Readable)) {
        let mut readable = self.readable.lock().unwrap();
        change(&mut readable);
        readable.look();
        drop(readable);
        self.changed.notify_all();
    }

    fn wait_until(&self, so: impl Fn(&Readable) -> bool) {
        let mut readable = self.readable.lock().unwrap();
        while !so(&readable) && !readable.is_over {
            readable = self.changed.wait(readable).unwrap();
        }
    }

    /// Takes in datagrams; an armed queue raises its event.
    fn take_in(&self, inner: &mut Inner) {
        let came = std::mem::take(&mut self.readable.lock().unwrap().datagrams);
        inner.completions += came;
        if came > 0 && std::mem::take(&mut inner.is_armed) {
            self.change(|readable| readable.event = true);
        }
    }

    /// The owner's poll: leaves the work to the thread, if that is at it.
    fn poll(&self) -> u32 {
        if let Ok(mut inner) = self.inner.try_lock() {
            inner.polls += 1;
            self.take_in(&mut inner);
        }
        std::mem::take(&mut self.inner.lock().unwrap().completions)
    }

    fn arm(&self, rings: bool) {
        self.inner.lock().unwrap().is_armed = true;
        if rings {
            self.change(|readable| readable.bell = true);
        }
    }
}

struct Thread(Arc<Wire>);

impl Work for Thread {
    fn turn(&mut self) -> (u64, Option<u64>) {
        let mut inner = self.0.inner.lock().unwrap();
        self.0.take_in(&mut inner);
        (inner.polls, None)
    }
    fn polls(&mut self) -> u64 {
        self.0.inner.lock().unwrap().polls
    }
    fn wait_for_work(&mut self, _: Option<u64>) {
        self.0.wait_until(|readable| readable.bell || readable.datagrams > 0);
    }
    /// The time never passes here: the bell alone must do.
    fn wait_for_bell(&mut self) {
        self.0.change(|readable| readable.thread_stands_by = true);
        self.0.wait_until(|readable| readable.bell);
        self.0.change(|readable| readable.thread_stands_by = false);
    }
    fn was_rung(&mut self) -> bool {
        std::mem::take(&mut self.0.readable.lock().unwrap().bell)
    }
}

/// An owner polls so often that the thread may stand by, arms, polls once more and sleeps; a
/// datagram comes at any time.
fn an_owner_sleeps(rings: bool) {
    model(move || {
        let wire = Arc::new(Wire::default());
        let serves = {
            let wire = wire.clone();
            thread::spawn(move || {
                let (mut standby, mut work) = (Standby::new(1), Thread(wire));
                while !work.0.readable.lock().unwrap().is_over {
                    standby.step(&mut work);
                }
            })
        };
        let peer = {
            let wire = wire.clone();
            thread::spawn(move || wire.change(|readable| readable.datagrams += 1))
        };
        let mut seen = wire.poll() + wire.poll();
        if seen == 0 {
            wire.arm(rings);
            seen = wire.poll();
        }
        if seen == 0 {
            wire.change(|readable| readable.owner_sleeps = true);
            wire.wait_until(|readable| readable.event);
            wire.change(|readable| readable.owner_sleeps = false);
            seen = wire.poll();
        }
        wire.change(|readable| readable.is_over = true);
        peer.join().unwrap();
        serves.join().unwrap();
        assert_eq!((wire.readable.lock().unwrap().is_lost, seen), (false, 1));
    });
}

#[test]
fn an_owner_that_armed_and_sleeps_is_woken() {
    an_owner_sleeps(true);
}

/// The mutant: arming does not ring.
#[test]
#[should_panic(expected = "(true")]
fn without_the_bell_it_sleeps_for_ever() {
    an_owner_sleeps(false);
}
