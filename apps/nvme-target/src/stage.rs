//! The target's stage: the queues of one port, and the commands of their hosts.
//!
//! A command is answered in the call that received it, unless it has to wait; then it gets a place
//! among the commands in flight. A command without room in the port's queues, or without a packet,
//! waits until others are done.

use std::collections::BTreeMap;
use std::sync::Arc;

use verbline::engine::{Completed, ConnectionChange, ConnectionEvent, ConnectionId, Opening};
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::{COMMAND_BYTES, Command, Nqn, RESPONSE_BYTES, Status, opcode};
use verbline_store::{FileStore, Store};

use crate::commands::Commands;
use crate::describe::{Described, HOST_NAME, OPERATIONS, TIMERS, describe, needs};
use crate::exchange::Known;
use crate::fair_share::Shares;
use crate::keep_alive_clock::Attended;
use crate::lcore_namespace::{Budget, Space, open_files};
use crate::namespace_changes::Namespaces;
use crate::namespace_table::Spaces;
use crate::port::{DATA_PACKETS, DataPool};
use crate::queue::Queues;
use crate::settings::{MEANING, SECTION, Settings};
use crate::shared::{Shared, Tally};
use crate::turns::{Links, Turns};

const DROPS: &[&str] = &["no_queue", "malformed", "queue_overrun", "no_place", "controller_over"];
const NO_QUEUE: DropReason = DropReason::Stage(0);
const MALFORMED: DropReason = DropReason::Stage(1);
const OVERRUN: DropReason = DropReason::Stage(2);
pub(crate) const NO_PLACE: DropReason = DropReason::Stage(3);
const CONTROLLER_OVER: DropReason = DropReason::Stage(4);

/// The tag of the timer for the stage's looks after its queues and stores.
pub(crate) const LOOK: u64 = 0;

/// The checked plan, in the form that the stage uses.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) settings: Settings,
    pub(crate) subsystem: Nqn,
    pub(crate) hosts: Vec<Nqn>,
    /// The hosts that must authenticate.
    pub(crate) known: Vec<Known>,
    pub(crate) listeners: Vec<std::net::SocketAddr>,
}

/// The stage's counters.
pub(crate) struct Counters {
    pub(crate) commands: Counter,
    pub(crate) failed: Counter,
    pub(crate) tally: Tally,
    pub(crate) waited: Counter,
    /// Reads of protected blocks, checked by the device and by the CPU.
    pub(crate) pipelined: Counter,
    pub(crate) cpu_checked: Counter,
    /// Commands that failed because the ring of their namespace's file is broken.
    pub(crate) ring_broken: Counter,
    /// Queues whose hosts did not take what they had asked for.
    pub(crate) stuck: Counter,
    pub(crate) keep_alive_expired: Counter,
    pub(crate) controllers: Counter,
    /// Failed authentications.
    pub(crate) unauthenticated: Counter,
    /// Queues that were disconnected because their hosts sent no good Connect in time.
    pub(crate) never_connected: Counter,
}

/// See the top of this file.
pub(crate) struct Target {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rules: Rules,
    pub(crate) spaces: Spaces,
    /// The files of namespaces, until the first call of the stage: only then do regions have
    /// memory.
    pub(crate) files: Option<BTreeMap<u32, FileStore>>,
    pub(crate) queues: Queues,
    pub(crate) commands: Commands,
    /// Operations that the port carries out at once per connection; the shares of all connections
    /// are in `room`.
    pub(crate) depth_wr: u32,
    /// Whether connections get signature keys.
    pub(crate) device_checks: bool,
    pub(crate) room: Shares,
    /// Packets held by commands.
    pub(crate) packets: Shares,
    /// Bytes of data in one packet: the most that a store moves at once for a command.
    pub(crate) piece_bytes: u32,
    /// The number of packets given back since the commands that wait for packets last had a turn.
    pub(crate) packets_freed: u32,
    /// Commands that wait for room, and commands that wait for packets.
    pub(crate) for_room: Turns,
    pub(crate) for_packets: Turns,
    pub(crate) links: Links,
    pub(crate) budget: Budget,
    pub(crate) attended: Attended,
    pub(crate) done: Vec<verbline_store::Done>,
    pub(crate) counters: Counters,
    /// The stage's name in the plan.
    pub(crate) name: String,
    pub(crate) namespaces: Arc<Namespaces>,
    /// Namespaces whose last use has ended, on their way to the thread that closes them.
    pub(crate) leaving: Vec<Space>,
    /// The places of shutdowns that wait for namespaces to leave.
    pub(crate) shutdowns: Vec<u32>,
    /// Added and removed namespaces; hosts are told at the next look.
    pub(crate) untold: Vec<u32>,
    /// The timer of the next look, and its time.
    pub(crate) look_timer: Option<(TimerId, Tick)>,
    /// The run is draining.
    is_stopping: bool,
}

pub(crate) fn register(registry: &mut Registry, shared: &Arc<Shared>, namespaces: &Arc<Namespaces>) {
    let (shared, namespaces) = (Arc::clone(shared), Arc::clone(namespaces));
    let spec = StageSpec {
        outputs: &[HOST_NAME],
        operations: OPERATIONS,
        timers: TIMERS,
        drops: DROPS,
        holds_packets: DATA_PACKETS,
        message_bytes_max: RESPONSE_BYTES as u32,
        summary: "answers the commands of NVMe over Fabrics hosts",
        ..StageSpec::default()
    };
    let open = move |described: Described, opening: &Opening<'_>| -> Result<Box<dyn Stage>, StageError> {
        Ok(Box::new(Target::open(described, opening, Arc::clone(&shared), Arc::clone(&namespaces))?))
    };
    registry
        .section_of::<Settings>(SECTION, MEANING)
        .opening_stage("target", spec, describe, open)
        .needs("target", needs);
}

impl Target {
    /// Opens the files of namespaces, and leaves the memory of the stage's own regions for other
    /// stages.
    fn open(
        described: Described,
        stage: &Opening<'_>,
        shared: Arc<Shared>,
        namespaces: Arc<Namespaces>,
    ) -> Result<Target, StageError> {
        let Described { settings, known, port, connections, depth_wr, device_checks, room, packets } = described;
        let pool = stage.pool().cloned().zip(stage.pool_memory().cloned());
        let pool =
            pool.map(|(plan, memory)| DataPool { plan, memory }).ok_or("has no `pool`, for the data of commands")?;
        for name in settings.namespace.values().filter_map(|space| space.memory.as_ref()) {
            if let Ok(region) = stage.region(name) {
                shared.leave_memory(region);
            }
        }
        let files = open_files(&settings, &pool)?;
        for file in files.values() {
            file.wake_fd().map(|fd| stage.watch_fd(fd, FdInterest::Read, None)).transpose()?;
        }
        let tally = Tally {
            reads: stage.counter("reads"),
            writes: stage.counter("writes"),
            read_bytes: stage.counter("read_bytes"),
            written_bytes: stage.counter("written_bytes"),
        };
        shared.add_tally(tally.clone());
        namespaces.begin(stage.name(), &pool, connections, &settings);
        let most = settings.commands_max as usize;
        let name = |text: &String| crate::settings::name(text);
        Ok(Target {
            shared,
            spaces: Spaces::new(),
            files: Some(files),
            queues: Queues::new(port, connections),
            commands: Commands::new(most),
            depth_wr,
            device_checks,
            room,
            packets,
            piece_bytes: pool.plan.data_bytes,
            packets_freed: 0,
            for_room: Turns::new(connections),
            for_packets: Turns::new(connections),
            links: Links::new(most),
            budget: Budget::default(),
            attended: Attended::default(),
            done: Vec::with_capacity(256),
            counters: Counters {
                commands: stage.counter("commands"),
                failed: stage.counter("failed"),
                tally,
                waited: stage.counter("waited"),
                pipelined: stage.counter("pipelined"),
                cpu_checked: stage.counter("cpu_checked"),
                ring_broken: stage.counter("ring_broken"),
                stuck: stage.counter("stuck"),
                keep_alive_expired: stage.counter("keep_alive_expired"),
                controllers: stage.counter("controllers"),
                unauthenticated: stage.counter("unauthenticated"),
                never_connected: stage.counter("never_connected"),
            },
            name: stage.name().to_owned(),
            namespaces,
            leaving: Vec::new(),
            shutdowns: Vec::with_capacity(connections),
            untold: Vec::new(),
            look_timer: None,
            is_stopping: false,
            rules: Rules {
                subsystem: settings.nqn(),
                hosts: settings.hosts.iter().map(name).collect(),
                known,
                listeners: settings.listeners(stage.plan()),
                settings,
            },
        })
    }

    /// Takes a capsule.
    #[inline]
    fn take(&mut self, packet: Packet, out: &mut Outputs<'_>) {
        let Some(connection) = packet.connection() else { return out.drop(packet, NO_QUEUE) };
        let Some(at) = self.queues.find(connection) else { return out.drop(packet, NO_QUEUE) };
        let Some(queue) = self.queues.get(at) else { return out.drop(packet, NO_QUEUE) };
        if queue.is_over() {
            return self.leave_unanswered(connection, packet, out);
        }
        self.counters.commands.add(1);
        if queue.cids.len() >= usize::from(queue.entries) {
            return self.cut_off(connection, packet, OVERRUN, out);
        }
        let Some(cid) = Command::cid_of(packet.data()).filter(|_| packet.len() >= COMMAND_BYTES) else {
            return self.cut_off(connection, packet, MALFORMED, out);
        };
        let is_known = queue.cids.contains(&cid);
        let (is_admin, is_connected, is_locked) = (queue.qid == 0, queue.controller.is_some(), queue.is_locked());
        let command = match Command::read(packet.data()) {
            Ok(command) if is_known => {
                return self.refuse(at, packet, &command, Status::ID_CONFLICT.do_not_retry(), out);
            }
            Ok(command) => command,
            Err(error) => {
                let command = Command::new(0, cid, verbline_nvme::Sgl::NONE);
                return self.refuse(at, packet, &command, error.status, out);
            }
        };
        match (command.opcode, is_connected, is_admin) {
            (opcode::fabrics::OPCODE, ..) => self.fabrics(at, command, packet, out),
            (_, false, _) => self.refuse(at, packet, &command, Status::SEQUENCE_ERROR.do_not_retry(), out),
            _ if is_locked => self.refuse(at, packet, &command, Status::AUTHENTICATION_REQUIRED.do_not_retry(), out),
            (_, true, true) => self.admin(at, command, packet, out),
            (_, true, false) => self.io(at, command, packet, out),
        }
    }

    /// Leaves a command of an ended controller unanswered: its host notices the end of the
    /// connection, and tries again over another.
    #[cold]
    pub(crate) fn leave_unanswered(&self, connection: ConnectionId, packet: Packet, out: &mut Outputs<'_>) {
        out.drop(packet, CONTROLLER_OVER);
        out.close(connection);
    }

    /// Disconnects a host that breaks the rules of its queue.
    fn cut_off(&mut self, connection: ConnectionId, packet: Packet, reason: DropReason, out: &mut Outputs<'_>) {
        tracing::info!(%connection, bytes = packet.len(), "a host is disconnected: its capsule breaks the rules");
        out.drop(packet, reason);
        out.close(connection);
    }
}

impl Stage for Target {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let len = input.len();
        for packet in input.drain_front(len) {
            self.take(packet, out);
        }
        self.settle(out);
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.files.is_some() {
            self.open_spaces();
            self.attended.begin(out.now_ns());
            self.look_again(out);
        }
        self.settle(out);
        let busy = || self.spaces.iter_busy();
        // Commands whose next request could go to a store now.
        if busy().any(|space| !(space.waiting.is_empty() && space.requests.is_empty()) && space.store.room() > 0) {
            return Next::Busy;
        }
        let mut busy = busy().peekable();
        match (busy.peek().is_some(), busy.all(|space| space.is_watched && space.store.may_sleep())) {
            (false, _) => Next::At(Tick::MAX),
            // A descriptor wakes the lcore when requests are done.
            (true, true) if !self.is_stopping => Next::Idle,
            // Stores that wake nobody are done at the next poll. And the drain waits only while the
            // stage reports work.
            (true, _) => Next::Busy,
        }
    }

    fn stop(&mut self, _: &mut Outputs<'_>) {
        self.is_stopping = true;
    }

    fn fd_ready(&mut self, _: FdReady, out: &mut Outputs<'_>) -> FdNext {
        self.settle(out);
        FdNext::Watch
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            self.operated(done, out);
        }
        self.serve_room(out);
        self.settle(out);
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        if due.iter().any(|timer| timer.tag == LOOK) {
            self.look(out);
        }
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        self.open_spaces();
        match event.change {
            ConnectionChange::Opened => self.opened(event.connection, out),
            ConnectionChange::Closed { .. } | ConnectionChange::Failed { .. } => self.closed(event.connection, out),
        }
    }
}
