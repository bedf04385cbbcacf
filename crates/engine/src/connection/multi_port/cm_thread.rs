//! The cm thread of a port with many connections: it accepts requests or sends them itself, makes
//! the queue pairs, hands them to the lcore, and destroys them.
//!
//! Guarantees: its state is bounded by the port's slots, however many peers ask, stay silent or
//! leave. A peer that finds all slots taken is rejected, and a peer that does not finish its
//! handshake within [`ANSWER`] loses its slot. Every attempt that ends without a connection is
//! counted with its reason. The lcore is told by [`CmMailbox`], and never waited for. Errors that
//! the thread cannot recover from end the run. If the lcore ends first, in a run that failed, the
//! thread disconnects: no peer waits until the owner stops the run.

mod accept;
mod connect;
mod ending;

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use verbline_mem::ConnectionId;
use verbline_verbs::connection::{Connection, ConnectionError, ConnectionLink, Listener, Request};
use verbline_verbs::{Provider, QpError, QpMaker};

use crate::connection::acceptor::ConnectionPeer;
use crate::connection::cm_mailbox::{CmMailbox, TO_CM_KINDS, ToCm, ToLcore};
use crate::connection::handshake::{ANSWER, RELEASE};
use crate::connection::multi_port::accept_queue::AcceptQueue;
use crate::connection::multi_port::acceptor_guard::AcceptorGuard;
use crate::connection::multi_port::connection_slots::{ConnectionSlots, SlotState};
use crate::connection::multi_port::listener_ports::ListenerPorts;
use crate::connection::multi_port::running_time::OwnTime;
use crate::connection::multi_port::targets::Targets;
use crate::connection::port_qp::PortQp;
use crate::connection::spec::LocalPort;
use crate::control::event_fd;
use crate::control::event_fd::StopFlags;
use crate::errors::guarded::{Guarded, lock};
use crate::stats::connection_counters::{CmThreadStats, LastError};
use crate::stats::counter::Shared;

/// The most requests that wait for the cm thread.
pub(crate) const BACKLOG: u32 = 1024;

/// The parts of a cm thread.
pub(crate) struct CmThreadSpec {
    pub(crate) port: LocalPort,
    pub(crate) role: CmThreadRole,
    /// `None`: every request with a free slot is accepted.
    pub(crate) acceptor: Option<Arc<AcceptorGuard>>,
    /// Ports that listen or share a listener: the queue of admitted requests.
    pub(crate) accept_queue: Option<Arc<AcceptQueue<Admitted>>>,
    pub(crate) connections: u32,
    pub(crate) maker: QpMaker,
    pub(crate) mailbox: Arc<CmMailbox>,
    pub(crate) counts: Shared<CmThreadStats>,
    pub(crate) last_error: LastError,
}

/// The source of the port's connections.
pub(crate) enum CmThreadRole {
    Listen {
        /// `None` once no more connections are accepted.
        listener: Option<Listener>,
        /// The ports that share the listener.
        listener_ports: ListenerPorts<Admitted>,
    },
    /// Another port's cm thread listens.
    Join,
    /// `again`: lost connections are remade. `data`: the private data of each request, by slot, if
    /// the app sets it and not the plan.
    Connect {
        provider: Provider,
        to: Vec<(SocketAddr, Option<SocketAddr>)>,
        again: bool,
        data: Option<Guarded<DataOf>>,
    },
}

/// The private data of each request of a port that connects, by slot.
pub(crate) type DataOf = dyn FnMut(usize) -> Vec<u8> + Send;

/// A request that is to be accepted, and has a slot at the port.
#[derive(Debug)]
pub(crate) struct Admitted {
    request: Request,
    private_data: Vec<u8>,
    tag: u64,
}

/// The remains of a cm thread that has ended.
#[derive(Debug)]
pub(crate) struct EndedCmThread {
    /// The open connections, kept as long as their queue pairs.
    kept: Vec<Connection>,
    mailbox: Arc<CmMailbox>,
    counts: Shared<CmThreadStats>,
}

impl EndedCmThread {
    /// Disconnects. The lcore is gone: connections that it never heard of count as not made.
    pub(crate) fn close(self) {
        self.counts.unanswered.add(self.mailbox.unheard() as u64);
        drop(self.kept);
    }
}

/// The source of an epoll event; smaller numbers are slots.
const LISTENER: u64 = 1 << 32;
const MAILBOX: u64 = LISTENER + 1;
const CONNECTING: u64 = LISTENER + 2;
const WATCHING: u64 = LISTENER + 3;
const ACCEPT_QUEUE: u64 = LISTENER + 4;
const LCORE_ENDED: u64 = LISTENER + 5;

/// See the top of this file.
pub(crate) struct CmThread {
    spec: CmThreadSpec,
    slots: ConnectionSlots<SlotState>,
    /// The acceptor's tag of the connection in each slot.
    tags: Vec<u64>,
    epoll: OwnedFd,
    stop: StopFlags,
    /// The clock of the deadlines.
    time: OwnTime,
    /// Handshakes under way, and queue pairs to be released, both oldest first.
    begun: VecDeque<(Instant, ConnectionId)>,
    closing: VecDeque<(Instant, ConnectionId)>,
    heard: Vec<ToCm>,
    is_taking: bool,
    /// Ports that connect only.
    targets: Targets,
}

impl CmThread {
    pub(crate) fn new(spec: CmThreadSpec, stop: StopFlags) -> std::io::Result<CmThread> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: &dyn AsFd, data| {
            epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(data), epoll::EventFlags::IN)
        };
        if let CmThreadRole::Listen { listener: Some(listener), .. } = &spec.role {
            add(listener, LISTENER)?;
        }
        if let Some(accept_queue) = &spec.accept_queue {
            add(&**accept_queue, ACCEPT_QUEUE)?;
        }
        add(&*spec.mailbox, MAILBOX)?;
        add(&*stop.connecting, CONNECTING)?;
        add(&*stop.watching, WATCHING)?;
        add(&*stop.lcore_ended, LCORE_ENDED)?;
        let slots = ConnectionSlots::new(spec.port.index as u16, spec.connections);
        let tags = vec![0; spec.connections as usize];
        let heard = Vec::with_capacity(spec.connections as usize * TO_CM_KINDS);
        let (begun, closing) = (VecDeque::new(), VecDeque::new());
        let to = if let CmThreadRole::Connect { to, .. } = &spec.role { &to[..] } else { &[] };
        let targets = Targets::new(to, spec.connections as usize);
        let time = OwnTime::new();
        Ok(CmThread { spec, slots, tags, targets, epoll, stop, time, begun, closing, heard, is_taking: true })
    }

    /// Runs until watching is stopped. `None`: its lcore ended first, and the peers are told.
    pub(crate) fn run(mut self) -> Option<EndedCmThread> {
        while !self.stop.watching.is_raised() && !self.stop.lcore_ended.is_raised() {
            self.connect_more();
            let timeout = self.until_next();
            if let Err(errno) = self.turn(timeout.as_ref()) {
                self.fail(format!("port.{} cannot wait for its connections: {errno}", self.spec.port.name));
                event_fd::wait([self.stop.watching.as_fd(), self.stop.lcore_ended.as_fd()], None);
                break;
            }
        }
        // Both stops may have come while this thread waited for its CPU.
        self.stop_taking();
        self.let_go();
        let counts = Shared::clone(&self.spec.counts);
        let kept = self.slots.drain().filter_map(|held| {
            // The run ends before these handshakes do.
            counts.unanswered.add(matches!(held, SlotState::Asked { .. } | SlotState::Accepted { .. }).into());
            match held {
                SlotState::Open { connection } | SlotState::Accepted { connection, .. } => Some(connection),
                SlotState::Asked { .. } | SlotState::Closing { .. } | SlotState::Over => None,
            }
        });
        let ended = EndedCmThread { kept: kept.collect(), mailbox: self.spec.mailbox, counts };
        if self.stop.watching.is_raised() || !self.stop.lcore_ended.is_raised() {
            return Some(ended);
        }
        ended.close();
        None
    }

    /// Waits for events, and handles them.
    pub(crate) fn turn(&mut self, timeout: Option<&Timespec>) -> rustix::io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 64];
        self.time.begin_wait();
        let waited = epoll::wait(&self.epoll, &mut buffer, timeout);
        self.time.end_wait(timeout.and_then(|timeout| Duration::try_from(*timeout).ok()));
        let ready: Vec<u64> = match waited {
            Ok((ready, _)) => ready.iter().map(|event| event.data.u64()).collect(),
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        for what in ready {
            match what {
                LISTENER => self.take_requests(),
                ACCEPT_QUEUE => self.take_admitted(),
                MAILBOX => self.hear(),
                CONNECTING => self.stop_taking(),
                WATCHING | LCORE_ENDED => {}
                place => self.look_at(place as usize),
            }
        }
        self.give_up_late();
        Ok(())
    }

    fn make(&self) -> Result<Box<PortQp>, QpError> {
        Ok(Box::new(PortQp::new(self.spec.port.make(&self.spec.maker)?)))
    }

    /// Handles an event of the connection in a slot.
    fn look_at(&mut self, slot: usize) {
        let Some(connection) = self.slots.at(slot) else { return };
        match self.slots.lift(connection) {
            // Readable: the answer has come.
            Some(SlotState::Asked { connecting, mut qp }) => match connecting.finish(&mut qp, ANSWER) {
                Ok(made) => {
                    self.targets.made(connection.slot(), self.time.now());
                    self.open(connection, made, qp);
                }
                Err(error) => {
                    let is_rejection = matches!(error, ConnectionError::Rejected { .. });
                    self.spec.counts.rejected_by_peer.add(is_rejection.into());
                    if is_rejection {
                        self.tell_rejection(&error);
                    }
                    self.forget(connection, qp, &error);
                }
            },
            Some(SlotState::Accepted { connection: mut made, qp }) => match made.wait_established(Duration::ZERO) {
                Ok(()) => self.open(connection, made, qp),
                Err(ConnectionError::TimedOut { .. }) => {
                    self.slots.put(connection, SlotState::Accepted { connection: made, qp });
                }
                Err(error) => self.forget(connection, qp, &error),
            },
            Some(SlotState::Open { connection: mut made }) => {
                let reason = match made.wait_disconnected(Duration::ZERO) {
                    Ok(false) => return self.slots.put(connection, SlotState::Open { connection: made }),
                    Ok(true) => made.end_reason().unwrap_or("it ended"),
                    Err(error) => {
                        tracing::debug!(port = %self.spec.port.name, %connection, %error, "a connection is lost");
                        "the connection manager failed"
                    }
                };
                self.targets.broke(connection.slot(), self.time.now());
                self.spec.mailbox.tell_lcore(ToLcore::Close { connection, reason });
                self.begin_close(connection, true);
            }
            Some(over @ (SlotState::Closing { .. } | SlotState::Over)) => self.slots.put(connection, over),
            None => {}
        }
    }

    fn open(&mut self, connection: ConnectionId, made: Connection, qp: Box<PortQp>) {
        let peer = Some(Box::new(ConnectionPeer {
            address: made.peer_addr(),
            local: made.local_addr(),
            private_data: made.private_data().into(),
            tag: self.tags[connection.slot()],
        }));
        self.spec.counts.over_udp.add((made.link() == ConnectionLink::Udp).into());
        self.slots.put(connection, SlotState::Open { connection: made });
        self.spec.mailbox.tell_lcore(ToLcore::Open { connection, qp, peer });
    }

    fn begin_close(&mut self, connection: ConnectionId, was_open: bool) {
        self.slots.put(connection, SlotState::Closing { was_open });
        self.closing.push_back((self.time.now(), connection));
    }

    /// Gives up a peer that was asked or accepted. The lcore releases its queue pair.
    fn forget(&mut self, connection: ConnectionId, qp: Box<PortQp>, why: &dyn std::fmt::Display) {
        self.not_made(connection, why);
        self.spec.mailbox.tell_lcore(ToLcore::Forget { connection, qp });
        self.begin_close(connection, false);
    }

    /// Counts a connection that was not made. A port that connects tries again after a pause.
    fn not_made(&mut self, connection: ConnectionId, why: &dyn std::fmt::Display) {
        tracing::debug!(port = %self.spec.port.name, %why, "a connection was not made");
        self.spec.counts.unanswered.add(1);
        // A panic leaves the old words or the new.
        *lock(&self.spec.last_error) = Some(why.to_string());
        self.targets.failed(connection.slot(), self.time.now());
    }

    /// Frees a connection's slot, and ends the connection for the acceptor.
    fn give_back(&mut self, connection: ConnectionId) {
        self.slots.free(connection);
        self.targets.over(connection.slot());
        let tag = std::mem::take(&mut self.tags[connection.slot()]);
        self.leave(tag);
    }

    /// Frees the reserved slot of an admitted request.
    fn leave(&mut self, tag: u64) {
        if let Some(accept_queue) = &self.spec.accept_queue {
            accept_queue.give_back();
        }
        self.end_of(tag);
    }

    /// Tells the acceptor that its connection is over.
    fn end_of(&mut self, tag: u64) {
        if let Some(Err(sentence)) = self.spec.acceptor.as_ref().map(|acceptor| acceptor.ended(tag)) {
            self.fail(sentence);
        }
    }

    /// Handles the lcore's messages.
    fn hear(&mut self) {
        let mut heard = std::mem::take(&mut self.heard);
        self.spec.mailbox.take_for_cm(&mut heard);
        for message in heard.drain(..) {
            match message {
                ToCm::Over { connection, down_reason } => {
                    // Dropping the connection tells the peer.
                    if let Some(SlotState::Open { .. }) = self.slots.get(connection) {
                        let is_closed_here = down_reason == 0;
                        if !is_closed_here {
                            self.targets.broke(connection.slot(), self.time.now());
                        }
                        self.begin_close(connection, true);
                    }
                }
                // Ports with one queue pair only.
                ToCm::Drained { .. } => {}
                ToCm::Told { peer } => drop(peer),
                ToCm::Released { connection, qp } => {
                    self.spec.counts.forced.add((!qp.is_drained()).into());
                    drop(qp);
                    let was_open = matches!(self.slots.get(connection), Some(SlotState::Closing { was_open: true }));
                    match self.spec.role {
                        CmThreadRole::Connect { again: false, .. } if was_open => {
                            self.slots.put(connection, SlotState::Over)
                        }
                        _ => self.give_back(connection),
                    }
                }
            }
        }
        self.heard = heard;
    }

    /// Gives up unfinished handshakes, and forces queue pairs that do not drain.
    fn give_up_late(&mut self) {
        let now = self.time.now();
        while let Some((since, connection)) = self.begun.front().copied() {
            let waits =
                matches!(self.slots.get(connection), Some(SlotState::Accepted { .. } | SlotState::Asked { .. }));
            if waits && now < since + ANSWER {
                break;
            }
            self.begun.pop_front();
            if waits
                && let Some(SlotState::Accepted { qp, .. } | SlotState::Asked { qp, .. }) = self.slots.lift(connection)
            {
                self.forget(connection, qp, &"it did not finish in time");
            }
        }
        while let Some((since, connection)) = self.closing.front().copied() {
            let waits = matches!(self.slots.get(connection), Some(SlotState::Closing { .. }));
            if waits && now < since + RELEASE {
                break;
            }
            self.closing.pop_front();
            if waits {
                self.spec.mailbox.tell_lcore(ToLcore::Force { connection });
            }
        }
    }

    /// The timeout of the next wait for events.
    fn until_next(&self) -> Option<Timespec> {
        let begun = self.begun.front().map(|(since, _)| *since + ANSWER);
        let closing = self.closing.front().map(|(since, _)| *since + RELEASE);
        let retry = self.targets.next_at().filter(|_| self.may_ask());
        let next = begun.into_iter().chain(closing).chain(retry).min()?;
        let left = next.saturating_duration_since(self.time.now());
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() })
    }
}
