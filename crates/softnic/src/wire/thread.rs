//! The wire's own thread: takes turns while nobody polls, so that peers are answered, lost packets
//! are sent again and sleepers are woken.
//!
//! [`Standby`] decides when it serves. While it does, it sleeps until a datagram comes, a deadline
//! passes, or the doorbell or the alarm rings; while it stands by, it looks now and then whether
//! anybody polls.
//!
//! Guarantees: the wire's lock alone decides who works, so both at once are slower and never wrong.
//! Nothing is lost between them: arrived datagrams lie in the socket, which this thread finds
//! readable when it begins to serve, at most a tick after the last poll.

use crate::data_path::errors::Errors;
use crate::data_path::flush;
use crate::objects::guards::{self, Pinned};
use crate::queues::timer;
use crate::wire::device_wire::Wire;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use verbline_sync::guard::Guard;
use verbline_sync::standby::{Standby, Work};

/// The interval of its looks for a polling thread, while there is one.
const TICK: Duration = Duration::from_millis(4);
/// Polls in a row that show an owner awake: more than the one that follows arming.
const POLLS: u64 = 32;

/// The thread, before it has its wire. Dropped, it ends.
pub(super) struct Waiting(SyncSender<(&'static Wire, &'static Guard)>);

impl Waiting {
    /// Starts it: before the socket is opened, which nobody would read without a thread.
    pub(super) fn start(device: &str) -> io::Result<Waiting> {
        let (give, take) = sync_channel(1);
        let started = std::thread::Builder::new().name(format!("vl-wire-{device}"));
        started.spawn(move || take.recv().into_iter().for_each(|(wire, guard)| run(wire, guard)))?;
        Ok(Waiting(give))
    }

    /// From now on it serves this wire, as long as the process lives.
    pub(super) fn serve(self, wire: &'static Wire) {
        let guard: &'static Guard = Box::leak(Box::default());
        guards::register(&[guard]);
        // It waits for this alone, and has room for it.
        let _ = self.0.send((wire, guard));
    }
}

fn run(wire: &Wire, guard: &Guard) {
    let (mut standby, mut work) = (Standby::new(POLLS), WireWork { wire, guard });
    loop {
        standby.step(&mut work);
    }
}

struct WireWork<'a> {
    wire: &'a Wire,
    guard: &'a Guard,
}

impl Work for WireWork<'_> {
    fn turn(&mut self) -> (u64, Option<u64>) {
        let mut errors = Errors::new();
        let state = {
            let inside = self.guard.enter();
            let mut inner = self.wire.lock();
            inner.turn(Pinned::inside(&inside), &mut errors);
            (inner.polls, inner.deadline_ns())
        };
        flush::finish(errors);
        state
    }

    fn polls(&mut self) -> u64 {
        self.wire.lock().polls
    }

    fn wait_for_work(&mut self, due_ns: Option<u64>) {
        // From here on, a thread that posts or takes in something due sooner rings the alarm.
        if !self.wire.lock().may_sleep(due_ns) {
            return;
        }
        let timeout = due_ns.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(timer::now_ns())));
        let [own, others] = self.wire.link.waits_for();
        wait(&[self.wire.doorbell.as_fd(), self.wire.alarm.as_fd(), own, others], timeout);
        self.wire.alarm.was_rung();
    }

    fn wait_for_bell(&mut self) {
        wait(&[self.wire.doorbell.as_fd()], Some(TICK));
    }

    fn was_rung(&mut self) -> bool {
        self.wire.doorbell.was_rung()
    }
}

/// Waits until one of them is readable, or the time is over.
fn wait(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) {
    let readable = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = fds.iter().map(readable).collect();
    let timeout = timeout
        .map(|left| libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos().into() });
    let limit = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: all locals: the pollfds with their number, and a limit or none.
    unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit, std::ptr::null()) };
}
