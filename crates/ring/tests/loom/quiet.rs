//! The detection of quiet.
//!
//! One lcore has a packet and hands it on, the other takes it out of the world, like rtrb's ends: a
//! Release store of an index, an Acquire load. An owner notes the pulses in between; if its look at
//! the end finds quiet, the packet must have been taken. The mutants leave out a fence each and
//! must overlook the packet.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use verbline_ring::{Pulse, Quiet};

/// One before the owner notes, and two that it waits for.
const TURNS: usize = 3;

struct World {
    pulses: [Pulse; 2],
    tail: AtomicUsize,
    taken: AtomicUsize,
}

/// Has a packet from the start, and hands it on in its first turn.
fn hand_on(world: &World) {
    world.tail.store(1, Ordering::Release);
    world.pulses[0].beat(true);
    for _ in 1..TURNS {
        world.pulses[0].beat(false);
    }
}

fn receive(world: &World) {
    for _ in 0..TURNS {
        // Relaxed: its own word, read by others after it has ended.
        let found = world.tail.load(Ordering::Acquire) > world.taken.load(Ordering::Relaxed);
        if found {
            world.taken.store(1, Ordering::Relaxed);
        }
        world.pulses[1].beat(found);
    }
}

/// The owner has a thread of its own: loom does not preempt the first thread's loads for actions of
/// threads that have not begun.
fn look(note: fn(&World) -> Quiet, pulse: fn() -> Pulse) {
    let world = Arc::new(World { pulses: [pulse(), pulse()], tail: AtomicUsize::new(0), taken: AtomicUsize::new(0) });
    let owner = thread::spawn({
        let world = world.clone();
        move || note(&world)
    });
    let other = thread::spawn({
        let world = world.clone();
        move || hand_on(&world)
    });
    receive(&world);
    other.join().expect("an lcore doesn't panic");
    let mut quiet = owner.join().expect("the owner doesn't panic");
    if quiet.look(|lcore| world.pulses[lcore].read()) {
        assert_eq!(world.taken.load(Ordering::Relaxed), 1, "quiet, and a packet is under way");
    }
}

/// Three preemptions take four seconds; without a bound it takes a minute, and has passed, too.
fn check(note: fn(&World) -> Quiet, pulse: fn() -> Pulse) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || look(note, pulse));
}

fn fenced(world: &World) -> Quiet {
    Quiet::new(2, |lcore| world.pulses[lcore].read())
}

#[test]
fn quiet_means_that_no_packet_is_under_way() {
    check(fenced, Pulse::default);
}

// The mutants.

#[test]
#[should_panic(expected = "a packet is under way")]
fn mutant_whose_turns_end_without_a_fence_overlooks_a_packet() {
    check(fenced, Pulse::lacking_fence);
}

#[test]
#[should_panic(expected = "a packet is under way")]
fn mutant_that_notes_without_a_fence_overlooks_a_packet() {
    check(|world| Quiet::lacking_fence(2, |lcore| world.pulses[lcore].read()), Pulse::default);
}
