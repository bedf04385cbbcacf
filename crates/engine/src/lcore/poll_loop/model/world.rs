//! Everything but the supervisor: an lcore, its device, the peer, the events and the time.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use verbline_mem::Batch;
use verbline_plan::IdlePolicy;
use verbline_verbs::connection::ConnectionLink;
use verbline_verbs::scripted_device::Queues;
use verbline_verbs::{QpMaker, QueuePair, Status, Transport, event::AsyncEventKind};

use crate::api::outputs::Outputs;
use crate::api::stage::{PortChange, PortEvent, Stage};
use crate::connection::cm_mailbox::{CmMailbox, Reconnecting};
use crate::connection::handshake::{PAUSE_MAX, PAUSE_MIN};
use crate::connection::spec::{SharedStatus, Status as ConnectionStatus};
use crate::connection::supervisor::LcoreSide;
use crate::control::event_fd::{EventFd, StopFlag, StopFlags};
use crate::control::notice::Notice;
use crate::control::run_control::{Control, LcoreInbox};
use crate::errors::guarded::lock;
use crate::idle::policy::Budget;
use crate::lcore::poll_loop::Lcore;
use crate::ports::rx_half::Receiving;
use crate::ports::single_port::Health;
use crate::ports::sink::{Link, Sink, SinkStats};
use crate::ports::tx_half::Sending;
use crate::rig::{Depths, Parts, Rig, port};
use crate::stats::clock::Tick;
use crate::stats::counter::Shared;
use crate::stats::counters::StageStats;
use crate::stats::drop_reason::DropReason;
use crate::stats::report::ConnectionState;

/// The port's sink, behind that of the stage.
const PORT: usize = 1;
const BURST: usize = 4;
/// A send of the stage has these; a marker of the port's own has none.
const BYTES: usize = 8;
/// Steps without a fault within which the connection must come back.
const CALM_STEPS: usize = 20_000;

#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) depths: Depths,
    /// Polls between two looks of the device at work to flush; `None`: it never flushes.
    pub(super) flushes_every: Option<u64>,
}

/// The reason why a line is over, for both of its ends.
pub(super) struct Ending {
    pub(super) event: EventFd,
    pub(super) reason: RefCell<Option<String>>,
    pub(super) qpn: u32,
}

/// Notes its stage's port changes.
pub(super) struct Witness(Arc<Mutex<Vec<PortChange>>>);

impl Stage for Witness {
    fn process(&mut self, input: &mut Batch, _: &mut Outputs<'_>) {
        input.clear();
    }

    fn port_event(&mut self, event: PortEvent, _: &mut Outputs<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.change);
    }
}

/// Everything but the supervisor.
pub(super) struct World {
    pub(super) lcore: Lcore,
    pub(super) control: Arc<Control>,
    pub(super) stage: Shared<StageStats>,
    pub(super) changes: Arc<Mutex<Vec<PortChange>>>,
    pub(super) shape: Shape,
    pub(super) maker: QpMaker,
    pub(super) stop: StopFlags,
    pub(super) status: SharedStatus,
    /// The bytes that choose the next steps, and the position in them.
    pub(super) tape: Vec<u8>,
    pub(super) at: usize,
    pub(super) calm: usize,
    /// The connection, until either end has ended it.
    pub(super) line: Option<Rc<Ending>>,
    /// Queue pairs that are of no more use.
    pub(super) dead: BTreeSet<u32>,
    /// Broken queue pairs, which the device flushes.
    pub(super) broken: Arc<Mutex<Vec<u32>>>,
    /// Events that have not been delivered yet.
    pub(super) events: VecDeque<u32>,
    /// The stages' last news of the port.
    pub(super) is_up: bool,
    pub(super) pauses: Pauses,
    pub(super) arrived: u64,
    pub(super) offered: u64,
    pub(super) failed: Arc<AtomicU64>,
    pub(super) connects: u64,
    pub(super) rig: Rig,
}

/// The supervisor's pauses, as made and as due.
pub(super) struct Pauses {
    pub(super) since_ns: Tick,
    pub(super) next: Duration,
    /// The start and the end of its rest.
    pub(super) rest: Option<(Tick, Tick)>,
}

impl World {
    /// Builds a world with an open connection.
    pub(super) fn new(shape: &Shape, tape: Vec<u8>) -> (World, LcoreSide, Rc<Ending>) {
        let Depths { tx_wr, rx_wr, signal_every_wr } = shape.depths;
        let rig = Rig::new(4 * (tx_wr + rx_wr) + 64);
        let source = rig.source();
        let spec = Rig::spec(&source.cq, Transport::Rc, shape.depths, 0);
        let (mut qp, maker) = (rig.pd.create_qp(&spec).unwrap(), rig.pd.qp_maker(&spec));
        rig.bring_up(&mut qp);
        let line = Ending::of(&qp);
        let (waker, doorbell) = verbline_ring::doorbell().unwrap();
        let control = Arc::new(Control::new(vec![waker]));
        let inbox = LcoreInbox { control: Arc::clone(&control), lcore: 0 };
        let mailbox = Arc::new(CmMailbox::new(inbox, 0, 1).unwrap());
        let receiving = Receiving::new(0, Link::Sink(0), rx_wr as usize, BURST, true);
        let sending = Sending::new(PORT, signal_every_wr, tx_wr as usize);
        let reconnect = Reconnecting::new(Arc::clone(&mailbox), 0);
        let port = port(0, qp, Some(receiving), Some(sending), Some(reconnect));
        let sink = Sink::new(BURST, DropReason::TxFull, SinkStats::Port(Shared::clone(&port.stats)));
        let changes = Arc::default();
        let stage = Box::new(Witness(Arc::clone(&changes)));
        let budget = Budget::none(IdlePolicy::Poll);
        let (ports, sinks) = (vec![port], vec![sink]);
        let parts = Parts { budget, ports, sinks, stage, source: Some(source), doorbell, burst: BURST };
        let (lcore, stage) = rig.lcore(&control, parts);
        let (broken, failed) = (Arc::default(), Arc::default());
        rig.script.on_poll(device(shape, &rig, Arc::clone(&broken), Arc::clone(&failed)));
        let mut status = ConnectionStatus::new();
        status.connected(String::new(), ConnectionLink::Process, None, Duration::ZERO);
        let world = World {
            lcore,
            control,
            stage,
            changes,
            shape: shape.clone(),
            maker,
            stop: StopFlags {
                connecting: Arc::new(StopFlag::new().unwrap()),
                watching: Arc::new(StopFlag::new().unwrap()),
                lcore_ended: Arc::new(StopFlag::new().unwrap()),
            },
            status: Arc::new(Mutex::new(status)),
            tape,
            at: 0,
            calm: 0,
            line: Some(Rc::clone(&line)),
            dead: BTreeSet::new(),
            broken,
            events: VecDeque::new(),
            is_up: true,
            pauses: Pauses { since_ns: 0, next: PAUSE_MIN, rest: None },
            arrived: 0,
            offered: 0,
            failed,
            connects: 0,
            rig,
        };
        (world, LcoreSide::new(mailbox, 0), line)
    }

    /// The next byte of the tape; `None` when it is at its end.
    pub(super) fn draw(&mut self) -> Option<u8> {
        let drawn = self.tape.get(self.at).copied();
        self.at += 1;
        drawn
    }

    pub(super) fn qpn(&self) -> u32 {
        self.lcore.ports[0].qp.qpn()
    }

    /// Takes one step, before `until_ns` at the latest.
    pub(super) fn step(&mut self, until_ns: Tick) {
        match self.draw() {
            None => self.calm_step(until_ns),
            Some(0..96) => self.turn(),
            Some(drawn @ 96..128) => self.pass(1 << (drawn % 32), until_ns),
            Some(128..164) => self.arrive(),
            Some(164..200) => self.offer(),
            Some(200..220) => _ = self.rig.script.queues().end_send(self.live_qpn(), Status::SUCCESS),
            Some(220..228) => self.disconnect(),
            Some(228..236) => self.shatter(),
            Some(236..) => self.tell_event(),
        }
    }

    /// Takes one step without a fault: the connection must come back, and then the run is over.
    pub(super) fn calm_step(&mut self, until_ns: Tick) {
        self.calm += 1;
        self.tell_event();
        while self.rig.script.queues().end_send(self.live_qpn(), Status::SUCCESS).is_some() {}
        self.turn();
        self.pass(1_000_000, until_ns);
        let is_right = self.is_up && self.lcore.ports[0].health == Health::Up && self.qpn() == self.live_qpn();
        if is_right && self.events.is_empty() && lock(&self.status).state == ConnectionState::Connected {
            self.stop.connecting.raise();
            self.stop.watching.raise();
        }
        assert!(self.calm < CALM_STEPS, "it does not come right: {:?}, {:?}", lock(&self.status), self.lcore.ports[0]);
    }

    /// Returns the connection's queue pair if it is usable, else a number that no queue pair has.
    pub(super) fn live_qpn(&self) -> u32 {
        self.line.as_ref().map(|line| line.qpn).filter(|qpn| !self.dead.contains(qpn)).unwrap_or(0)
    }

    pub(super) fn pass(&self, ns: u64, until_ns: Tick) {
        self.rig.time.pass(ns.min(until_ns.saturating_sub(self.rig.time.now_ns())));
    }

    pub(super) fn arrive(&mut self) {
        let came = self.rig.script.queues().receive(self.live_qpn(), 100);
        self.arrived += u64::from(came);
    }

    /// Sends a packet, as the stage would.
    pub(super) fn offer(&mut self) {
        let Some(mut packet) = self.lcore.state.ctx.caches[0].get() else { return };
        assert!(packet.set_len(BYTES));
        self.lcore.state.ctx.sinks[PORT].push(packet);
        self.lcore.settled = false;
        self.offered += 1;
    }

    /// The peer ends the connection.
    pub(super) fn disconnect(&mut self) {
        if let Some(line) = self.line.take() {
            self.dead.insert(line.qpn);
            line.end("the peer disconnected");
        }
    }

    /// Breaks the queue pair: its oldest work request fails, the rest is flushed, and an event
    /// follows.
    pub(super) fn shatter(&mut self) {
        let qpn = self.live_qpn();
        // An lcore learns from its completions that a new queue pair has already failed, if the
        // device returns them at all.
        if qpn == 0 || (qpn != self.qpn() && self.shape.flushes_every.is_none()) {
            return;
        }
        let failed = self.rig.script.queues().end_send(qpn, Status::RETRY_EXC_ERR);
        // Relaxed: one thread.
        self.failed.fetch_add(failed.is_some().into(), Ordering::Relaxed);
        self.dead.insert(qpn);
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).push(qpn);
        self.events.push_back(qpn);
    }

    /// Delivers the oldest event to the lcore, however old it is.
    pub(super) fn tell_event(&mut self) {
        if let Some(qpn) = self.events.pop_front() {
            self.control.notify(0, Notice::QpFailed { port: 0, qpn, event: AsyncEventKind::QpFatal });
        }
    }

    /// Like [`Lcore::run`].
    pub(super) fn turn(&mut self) {
        let had = self.qpn();
        if self.control.word() != self.lcore.seen {
            self.lcore.read_notices().unwrap();
        }
        self.lcore.run_turn();
        let changes = std::mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner));
        for change in changes {
            match change {
                PortChange::Down => {
                    assert!(self.is_up && self.dead.contains(&had), "a port is down that nothing is wrong with");
                    self.is_up = false;
                }
                PortChange::Up => {
                    assert!(!self.is_up, "a port is up again that was not down");
                    self.is_up = true;
                }
                PortChange::LinkDown | PortChange::LinkUp => panic!("{change:?} of no link"),
            }
        }
        let (port, depth) = (&self.lcore.ports[0], self.shape.depths.rx_wr as usize);
        if port.health == Health::Up {
            let worth = BURST.min(depth).min(depth.div_ceil(4));
            let posted = port.qp.recvs_outstanding();
            assert!(posted + worth > depth, "{posted} of {depth} receives are posted");
        }
    }

    /// The supervisor is about to make another connection.
    pub(super) fn check_connect(&mut self) {
        let (port, now_ns) = (&self.lcore.ports[0], self.rig.time.now_ns());
        // The wait for a device that gives nothing back is bounded.
        assert!(port.qp.is_drained() || self.shape.flushes_every.is_none(), "the old queue pair is in use: {port:?}");
        let Pauses { since_ns, next, rest } = &mut self.pauses;
        let rest = rest.take();
        let lived = Duration::from_nanos(rest.map_or(now_ns, |(from_ns, _)| from_ns) - *since_ns);
        if lived >= PAUSE_MAX {
            assert_eq!(rest, None, "it lived for {lived:?}");
            *next = PAUSE_MIN;
            return;
        }
        let (from_ns, until_ns) = rest.expect("a connection that did not live is not made again at once");
        assert_eq!(Duration::from_nanos(until_ns - from_ns), *next);
        assert!(now_ns >= until_ns);
        *next = (*next * 2).min(PAUSE_MAX);
    }

    /// After the last turn: every message and every packet has a fate.
    pub(super) fn check_sums(&mut self) {
        // Waiting packets go out, at least one in two turns.
        for _ in 0..2 * BURST {
            self.turn();
            while self.rig.script.queues().end_send(self.live_qpn(), Status::SUCCESS).is_some() {}
        }
        self.turn();
        let (port, lcore) = (&self.lcore.ports[0], &self.lcore.state.ctx.stats);
        let (stats, drops) = (&port.stats, |reason| port.stats.drops.count(reason));
        assert_eq!((stats.rx_packets.value(), self.stage.packets_in.value()), (self.arrived, self.arrived));
        let refused = drops(DropReason::TxFull) + drops(DropReason::PortDown);
        assert_eq!(stats.tx_packets.value() + refused, self.offered);
        // Relaxed: one thread.
        let failed = self.failed.load(Ordering::Relaxed);
        // If the device flushes nothing, nobody knows the fate of the packets it took.
        match self.shape.flushes_every {
            Some(_) => assert_eq!(drops(DropReason::SendError), failed),
            None => assert!((failed..=stats.tx_packets.value()).contains(&drops(DropReason::SendError))),
        }
        assert_eq!((drops(DropReason::RecvError), stats.stale.value(), lcore.strays.value()), (0, 0, 0));
        assert_eq!(lock(&self.status).times, 1 + self.connects);
    }
}

/// The device while it is polled: time passes, and it flushes.
fn device(
    shape: &Shape,
    rig: &Rig,
    broken: Arc<Mutex<Vec<u32>>>,
    failed: Arc<AtomicU64>,
) -> impl FnMut(&mut Queues) + Send + 'static {
    let (time, flushes_every, mut polls) = (rig.time.clone(), shape.flushes_every, 0);
    move |queues| {
        polls += 1;
        let Some(every) = flushes_every else { return time.pass(20_000_000) };
        time.pass(1_000);
        if polls % every == 0 {
            let broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
            for qpn in queues.in_error().into_iter().chain(broken.iter().copied()) {
                let sends = queues.flush(qpn);
                let packets = sends.iter().filter(|send| send.len_bytes > 0).count();
                // Relaxed: one thread.
                failed.fetch_add(packets as u64, Ordering::Relaxed);
            }
        }
    }
}

impl Ending {
    pub(super) fn of(qp: &QueuePair) -> Rc<Ending> {
        Rc::new(Ending { event: EventFd::new().unwrap(), reason: RefCell::default(), qpn: qp.qpn() })
    }

    pub(super) fn end(&self, reason: &str) {
        *self.reason.borrow_mut() = Some(reason.to_owned());
        self.event.signal();
    }
}
