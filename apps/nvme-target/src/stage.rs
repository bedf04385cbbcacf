//! The target's stage: the queues of one port, and the commands of their hosts.
//!
//! A command is answered in the call that received it, if nothing has to be waited for; else it has
//! a place among the commands under way until it is. What finds no room in the port's queues, or no
//! packet, waits for those that are done.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use verbline::engine::{Completed, ConnectionChange, ConnectionEvent, ConnectionId, Opening};
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::cm::Request;
use verbline_nvme::{COMMAND_BYTES, Command, Nqn, RESPONSE_BYTES, Status, opcode};
use verbline_store::{FileStore, Store};

use crate::commands::{Commands, Step};
use crate::describe::{Described, HOST, HOST_NAME, OPERATIONS, TIMERS, describe, needs};
use crate::exchange::Known;
use crate::namespaces::{Namespaces, SPACES_MAX};
use crate::queue::Queues;
use crate::settings::{NSID_MAX, SECTION, Settings};
use crate::shared::{Shared, Tally};
use crate::space::{Space, open_files};

const DROPS: &[&str] = &["no_queue", "malformed", "queue_overrun"];
const NO_QUEUE: DropReason = DropReason::Stage(0);
const MALFORMED: DropReason = DropReason::Stage(1);
const OVERRUN: DropReason = DropReason::Stage(2);

/// The tag of the timer by which the stage looks after its queues and stores.
pub(crate) const LOOK: u64 = 0;
/// How often it does.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// What the plan says, as it is used.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) settings: Settings,
    pub(crate) subsystem: Nqn,
    pub(crate) hosts: Vec<Nqn>,
    /// Those that have to prove who they are.
    pub(crate) known: Vec<Known>,
    pub(crate) listeners: Vec<std::net::SocketAddr>,
}

/// What is counted.
pub(crate) struct Counters {
    pub(crate) commands: Counter,
    pub(crate) failed: Counter,
    pub(crate) tally: Tally,
    pub(crate) waited: Counter,
    /// Reads whose blocks the device checked.
    pub(crate) pipelined: Counter,
    pub(crate) keep_alive_expired: Counter,
    pub(crate) controllers: Counter,
    /// Authentications that failed.
    pub(crate) unauthenticated: Counter,
    /// Queues that were disconnected since their hosts sent no good Connect in time.
    pub(crate) never_connected: Counter,
}

/// See the top of this file.
pub(crate) struct Target {
    pub(crate) shared: Arc<Shared>,
    pub(crate) rules: Rules,
    /// `None` until the first call: regions have their memory from then on.
    pub(crate) spaces: Option<Vec<Space>>,
    /// Files of namespaces, until then.
    files: BTreeMap<u32, FileStore>,
    /// The place of each namespace, by its number.
    pub(crate) place_of: Vec<Option<u16>>,
    pub(crate) queues: Queues,
    pub(crate) commands: Commands,
    /// Commands that found no room, or no packet.
    pub(crate) blocked: VecDeque<u32>,
    pub(crate) done: Vec<verbline_store::Done>,
    pub(crate) counters: Counters,
    /// As the plan calls the stage.
    pub(crate) name: String,
    pub(crate) namespaces: Arc<Namespaces>,
    /// Places of namespaces on their way out, and what takes them.
    pub(crate) leaving: Vec<(u16, Space)>,
    /// Namespaces that came or went, of which hosts are told at the next look.
    pub(crate) untold: Vec<u32>,
    is_looking: bool,
    /// The run drains.
    is_stopping: bool,
}

pub(crate) fn register(registry: &mut Registry, shared: &Arc<Shared>, namespaces: &Arc<Namespaces>) {
    let (shared, namespaces) = (Arc::clone(shared), Arc::clone(namespaces));
    let spec = StageSpec {
        outputs: &[HOST_NAME],
        operations: OPERATIONS,
        timers: TIMERS,
        drops: DROPS,
        holds_packets: 256,
        message_bytes_max: RESPONSE_BYTES as u32,
        summary: "answers the commands of NVMe over Fabrics hosts",
        ..StageSpec::default()
    };
    let open = move |described: Described, opening: &Opening<'_>| -> Result<Box<dyn Stage>, StageError> {
        Ok(Box::new(Target::open(described, opening, Arc::clone(&shared), Arc::clone(&namespaces))?))
    };
    registry.section(SECTION).opening_stage("target", spec, describe, open).needs("target", needs);
}

impl Target {
    /// Opens the files of namespaces, and leaves the memory of others for stages that have none.
    fn open(
        Described { settings, known, port, connections }: Described,
        stage: &Opening<'_>,
        shared: Arc<Shared>,
        namespaces: Arc<Namespaces>,
    ) -> Result<Target, StageError> {
        for name in settings.namespace.values().filter_map(|space| space.memory.as_ref()) {
            if let Ok(region) = stage.region(name) {
                shared.leave_memory(region);
            }
        }
        let files = open_files(&settings, stage.pool())?;
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
        namespaces.begin(stage.name(), stage.pool(), &settings);
        let most = settings.commands_max as usize;
        let name = |text: &String| crate::settings::name(text);
        Ok(Target {
            shared,
            spaces: None,
            files,
            place_of: vec![None; NSID_MAX as usize + 1],
            queues: Queues::new(port, connections),
            commands: Commands::new(most),
            blocked: VecDeque::with_capacity(most),
            done: Vec::with_capacity(256),
            counters: Counters {
                commands: stage.counter("commands"),
                failed: stage.counter("failed"),
                tally,
                waited: stage.counter("waited"),
                pipelined: stage.counter("pipelined"),
                keep_alive_expired: stage.counter("keep_alive_expired"),
                controllers: stage.counter("controllers"),
                unauthenticated: stage.counter("unauthenticated"),
                never_connected: stage.counter("never_connected"),
            },
            name: stage.name().to_owned(),
            namespaces,
            leaving: Vec::new(),
            untold: Vec::new(),
            is_looking: false,
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

    /// Opens the namespaces, once. One that can't be opened is not there.
    fn open_spaces(&mut self, out: &Outputs<'_>) {
        if self.spaces.is_some() {
            return;
        }
        let settings = &self.rules.settings;
        let numbered = settings.numbered();
        let mut spaces = Vec::with_capacity(SPACES_MAX.max(numbered.len()));
        for (nsid, how) in numbered {
            let file = self.files.remove(&nsid);
            match Space::open(nsid, &how, settings, settings.commands_max as usize, &self.shared, file) {
                Ok(mut space) => {
                    out.pool().inspect(|pool| space.store.use_pool(pool));
                    self.place_of[nsid as usize] = Some(spaces.len() as u16);
                    spaces.push(space);
                }
                Err(error) => tracing::error!(nsid, %error, "a namespace is not there"),
            }
        }
        self.spaces = Some(spaces);
    }

    /// A capsule has come.
    #[inline]
    fn take(&mut self, packet: Packet, out: &mut Outputs<'_>) {
        let Some(connection) = packet.connection() else { return out.drop(packet, NO_QUEUE) };
        let Some(at) = self.queues.find(connection) else { return out.drop(packet, NO_QUEUE) };
        let Some(queue) = self.queues.get(at) else { return out.drop(packet, NO_QUEUE) };
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

    /// A host that breaks the rules of its queue is disconnected.
    fn cut_off(&mut self, connection: ConnectionId, packet: Packet, reason: DropReason, out: &mut Outputs<'_>) {
        tracing::info!(%connection, bytes = packet.len(), "a host is disconnected: its capsule breaks the rules");
        out.drop(packet, reason);
        out.close(connection);
    }

    fn opened(&mut self, connection: ConnectionId, out: &mut Outputs<'_>) {
        let asked = out.peer(connection).and_then(|peer| Request::read(&peer.private_data).ok());
        let keys = out.signature_keys(HOST);
        let connect_by_ns = out.now_ns() + u64::from(self.rules.settings.connect_timeout_ms) * 1_000_000;
        let opened = asked.and_then(|asked| self.queues.open(connection, &asked, keys, connect_by_ns));
        self.renew_spaces(out);
        if opened.is_none() {
            // Without the acceptor anybody may be here.
            out.close(connection);
        }
        if !self.is_looking {
            self.is_looking = out.arm_timer(out.now_ns() + LOOK_EVERY_NS, LOOK).is_some();
        }
    }

    fn closed(&mut self, connection: ConnectionId, out: &mut Outputs<'_>) {
        let Some(at) = self.queues.find(connection) else { return };
        self.queues.close(at);
        let waits = |step: Step| matches!(step, Step::Fetching | Step::Storing);
        let idle: Vec<u32> = self.commands.of_queue(at).filter(|(_, own)| !waits(own.step)).map(|(at, _)| at).collect();
        for command in idle {
            self.forget(command);
        }
        if let Some(queue) = self.queues.get_mut(at)
            && queue.admin.is_some()
        {
            let timer = queue.admin.as_mut().and_then(|admin| admin.timer.take());
            timer.map(|timer| out.cancel_timer(timer));
            // The host is gone: its other queues go, too.
            queue.controller.as_ref().inspect(|controller| controller.end());
            self.sweep(out);
        }
        self.end_queue(at);
    }

    /// Ends a queue of which nothing is under way any more.
    pub(crate) fn end_queue(&mut self, at: u16) {
        if let Some(seat) = self.queues.take_done(at).and_then(|queue| queue.seat) {
            self.shared.leave(seat);
        }
    }

    /// Closes the queues whose controllers are over.
    pub(crate) fn sweep(&mut self, out: &mut Outputs<'_>) {
        for at in self.queues.places() {
            let Some(queue) = self.queues.get(at).filter(|queue| queue.is_open) else { continue };
            if queue.controller.as_ref().is_some_and(|controller| controller.is_over()) {
                out.close(queue.connection);
            }
        }
    }

    /// Looks after what no command tells of: controllers that ended on other lcores, and the sizes
    /// of namespaces.
    fn look(&mut self, out: &mut Outputs<'_>) {
        self.end_unconnected(out);
        self.end_unauthenticated(out);
        self.sweep(out);
        self.renew_spaces(out);
        self.refresh_spaces(out);
        self.is_looking = !self.queues.is_empty() && out.arm_timer(out.now_ns() + LOOK_EVERY_NS, LOOK).is_some();
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
        self.open_spaces(out);
        self.settle(out);
        let spaces = || self.spaces.iter().flatten();
        // Commands in parts, whose next part no store has been asked for.
        if spaces().any(|space| !space.requests.is_empty() && space.store.room() > 0) {
            return Next::Busy;
        }
        let mut busy = spaces().filter(|space| space.store.under_way() > 0).peekable();
        match (busy.peek().is_some(), busy.all(|space| space.is_watched && space.store.may_sleep())) {
            (false, _) => Next::At(Tick::MAX),
            // A descriptor tells of what is under way.
            (true, true) if !self.is_stopping => Next::Idle,
            // Stores that wake nobody are done at the next poll; and the drain waits for what keeps
            // an lcore busy.
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
        self.settle(out);
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        for timer in due {
            match timer.tag {
                LOOK => self.look(out),
                tag => self.keep_alive_due((tag - 1) as u16, out),
            }
        }
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        self.open_spaces(out);
        match event.change {
            ConnectionChange::Opened => self.opened(event.connection, out),
            ConnectionChange::Closed { .. } | ConnectionChange::Failed { .. } => self.closed(event.connection, out),
        }
    }
}
