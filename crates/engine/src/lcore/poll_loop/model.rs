//! A connection that is lost and reconnected: the real lcore, its port's mailbox and the real
//! supervisor, step by step, on one thread.
//!
//! The supervisor runs, and wherever it waits, connects, disconnects or could have been overtaken,
//! the world around it takes steps that a tape of bytes chooses: a turn of the lcore, a message, a
//! send's completion, time, a peer that hangs up, a queue pair that breaks and its event, at once
//! or much later. The device behind the lcore flushes in good time, or never. When the tape ends,
//! no more faults happen, and the connection must come back.
//!
//! Checked after every step: another queue pair is made when the old one is empty, and not before
//! the pause is over; the lcore takes its port down when its present queue pair is of no more use,
//! and ignores news of any other; receives are posted as soon as there is another queue pair. And
//! in the end: every message was handed on, every packet sent has a fate, and everything is back in
//! the pool.
//!
//! A turn of the lcore is one step: anything that the supervisor could do in the middle of one, it
//! does before or behind it.

mod world;

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use verbline_verbs::QueuePair;
use verbline_verbs::connection::{ConnectionError, ConnectionLink, QpIncidents};

use self::world::{Ending, Shape, World};
use crate::connection::connector::Failure;
use crate::connection::spec::SharedStatus;
use crate::connection::supervisor::{ConnectionManager, Supervised, Supervisor};
use crate::control::event_fd::{self, StopFlag};
use crate::rig::Depths;
use crate::stats::clock::Tick;

/// The supervisor's hold on the world.
#[derive(Clone)]
struct Hold {
    world: Rc<RefCell<World>>,
    start: Instant,
}

impl Hold {
    /// Takes up to seven steps between two of the supervisor's.
    fn overtake(&self) {
        let mut world = self.world.borrow_mut();
        let steps = world.draw().unwrap_or(0) % 8;
        (0..steps).for_each(|_| world.step(Tick::MAX));
    }

    fn ticks(&self, at: Instant) -> Tick {
        at.duration_since(self.start).as_nanos() as Tick
    }
}

impl ConnectionManager for Hold {
    type Connection = Call;

    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.world.borrow().rig.time.now_ns())
    }

    fn wait<const N: usize>(&self, on: [BorrowedFd<'_>; N], until: Option<Instant>) -> [bool; N] {
        let until_ns = until.map_or(Tick::MAX, |until| self.ticks(until));
        // Only a rest waits on a single sign; every other wait has another source beside it.
        if let ([_], Some(_)) = (&on[..], until) {
            let mut world = self.world.borrow_mut();
            let now_ns = world.rig.time.now_ns();
            world.pauses.rest.get_or_insert((now_ns, until_ns));
        }
        loop {
            let ready = event_fd::wait(on, Some(self.start));
            if ready.contains(&true) || self.world.borrow().rig.time.now_ns() >= until_ns {
                return ready;
            }
            self.world.borrow_mut().step(until_ns);
        }
    }

    fn connect(&mut self, _: &SharedStatus, stop: &StopFlag) -> Result<(Call, QueuePair), Failure> {
        if stop.is_raised() {
            return Err(Failure::Stopped);
        }
        self.world.borrow_mut().check_connect();
        self.overtake();
        let mut world = self.world.borrow_mut();
        let mut qp = world.maker.make().unwrap();
        world.rig.bring_up(&mut qp);
        let ending = Ending::of(&qp);
        world.line = Some(Rc::clone(&ending));
        world.connects += 1;
        drop(world);
        // The peer sees the connection before the lcore has its queue pair.
        self.overtake();
        let mut world = self.world.borrow_mut();
        world.pauses.since_ns = world.rig.time.now_ns();
        drop(world);
        Ok((Call { ending, hold: self.clone() }, qp))
    }
}

/// The supervisor's end of a connection.
struct Call {
    ending: Rc<Ending>,
    hold: Hold,
}

impl AsFd for Call {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ending.event.as_fd()
    }
}

impl Supervised for Call {
    fn peer(&self) -> String {
        format!("{:#x}", self.ending.qpn)
    }

    fn link(&self) -> ConnectionLink {
        ConnectionLink::Process
    }

    fn incidents(&self) -> Option<QpIncidents> {
        None
    }

    fn end_reason(&mut self, patience: Duration) -> Result<Option<String>, ConnectionError> {
        let until_ns = self.hold.world.borrow().rig.time.now_ns() + patience.as_nanos() as Tick;
        while self.ending.reason.borrow().is_none() && self.hold.world.borrow().rig.time.now_ns() < until_ns {
            self.hold.world.borrow_mut().step(until_ns);
        }
        Ok(self.ending.reason.borrow().clone())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.hold.overtake();
        let mut world = self.hold.world.borrow_mut();
        if !world.stop.connecting.is_raised() {
            assert!(world.dead.contains(&self.ending.qpn), "a connection is given up that nothing is wrong with");
        }
        if world.line.as_ref().is_some_and(|line| Rc::ptr_eq(line, &self.ending)) {
            world.line = None;
        }
    }
}

fn run(shape: &Shape, tape: Vec<u8>) {
    let (world, lcore, ending) = World::new(shape, tape);
    let (stop, status, clock) = (world.stop.clone(), Arc::clone(&world.status), world.rig.time.clock());
    let hold = Hold { world: Rc::new(RefCell::new(world)), start: Instant::now() };
    let (port, address) = ("port".to_owned(), "10.9.9.1:1".parse().unwrap());
    let line = Call { ending, hold: hold.clone() };
    let (manager, reconnects) = (hold.clone(), true);
    let supervisor = Supervisor { port, address, manager, reconnects, lcore, status, stop, clock };
    let line = supervisor.run(line).expect("it ends with a connection");
    hold.world.borrow_mut().check_sums();
    drop(line);
    let World { lcore, rig, .. } = Rc::into_inner(hold.world).expect("nobody else has it").into_inner();
    lcore.tear_down(|stage, said| panic!("{stage}: {said}"));
    let account = rig.pool.account();
    assert_eq!((account.free, account.held), (account.packets, 0));
}

fn shape() -> impl Strategy<Value = Shape> {
    let flushes = prop_oneof![4 => (1u64..4).prop_map(Some), 1 => Just(None)];
    (1u32..9, 1u32..17, flushes).prop_flat_map(|(tx_wr, rx_wr, flushes_every)| {
        (1..=tx_wr)
            .prop_map(move |signal_every_wr| Shape { depths: Depths { tx_wr, rx_wr, signal_every_wr }, flushes_every })
    })
}

proptest! {
    #[test]
    fn a_connection_comes_back_and_everything_has_a_fate(
        shape in shape(),
        tape in prop::collection::vec(any::<u8>(), 0..1_000),
    ) {
        run(&shape, tape);
    }
}
