//! The initiator's stage: its connections, and their use.
//!
//! The admin queue connects first, and goes through the handshake. Then the I/O queues connect to
//! the controller, every block is written once, and the load begins. When a connection is lost, all
//! are reconnected, as the Linux host resets a controller: commands in flight are lost.

use verbline::cli::duration;
use verbline::engine::{Completed, ConnectionChange, ConnectionEvent, ConnectionId, Region};
use verbline::plan::{Asked, Needs, OperationKind, OutputOperations, Port, RegionNeed, Rights as PlanRights, Target};
use verbline::prelude::*;
use verbline_nvme::Nqn;
use verbline_nvme::secret::Key;

use crate::handshake_state::Handshake;
use crate::oracle::Oracle;
use crate::pattern;
use crate::queue::{Queue, State, Task};
use crate::results::{Counts, Measured, Results};
use crate::secret::read_secret;
use crate::settings::{BLOCK_BYTES, MEANING, MemoryKeys, NSID, Own, SECTION, Settings};

/// The stage's kind in the plan: the value of `use`.
pub(crate) const KIND: &str = "initiator";
/// The outputs to the target: the admin queue, and the I/O queues.
pub(crate) const ADMIN: OutId = OutId(0);
pub(crate) const IO: OutId = OutId(1);

const DROPS: &[&str] = &["malformed"];
const MALFORMED: DropReason = DropReason::Stage(0);

/// Timers.
pub(crate) const KEEP_ALIVE: u64 = 1;
pub(crate) const RETRY: u64 = 2;

/// The front of the region: data of admin commands.
pub(crate) const PAGE_BYTES: usize = 8192;

/// See the top of this file.
pub(crate) struct Initiator {
    pub(crate) settings: Settings,
    pub(crate) subsystem: Nqn,
    pub(crate) host: Nqn,
    /// The key by which the host authenticates.
    pub(crate) key: Option<Key>,
    /// The number of the last authentication.
    pub(crate) transaction: u16,
    pub(crate) region: Region,
    admin_port: u16,
    io_port: u16,
    pub(crate) admin: Option<ConnectionId>,
    /// The time at which the controller was lost, until there is one again.
    pub(crate) lost_ns: Option<Tick>,
    pub(crate) handshake: Handshake,
    /// The queues, by the places of their connections.
    pub(crate) queues: Vec<Queue>,
    /// `None` until the first handshake.
    pub(crate) oracle: Option<Oracle>,
    /// The number of blocks whose first write was begun.
    pub(crate) filled: usize,
    pub(crate) writes_to_flush: u32,
    pub(crate) rng: fastrand::Rng,
    pub(crate) writer: u32,
    pub(crate) scratch: Vec<u8>,
    /// `None` after it was handed over.
    pub(crate) measured: Option<Measured>,
    results: Results,
    pub(crate) answered: Counter,
    pub(crate) failed: Counter,
    pub(crate) mismatches: Counter,
    pub(crate) stopping: bool,
    has_failed: bool,
}

pub(crate) fn register(registry: &mut Registry, results: &Results) {
    let results = results.clone();
    registry
        .section_of::<Settings>(SECTION, MEANING)
        .stage(KIND, spec(), move |stage| Ok(Box::new(Initiator::new(stage, results.clone())?)));
    registry.needs(KIND, needs).params_of::<Params>(KIND, "an initiator");
}

fn spec() -> StageSpec {
    StageSpec {
        outputs: &["admin", "io"],
        source: true,
        timers: 2,
        drops: DROPS,
        summary: "reads and writes a namespace over NVMe, and verifies every block",
        ..StageSpec::default()
    }
}

/// Declares that the target READs and WRITEs the data of commands in place, by keys of the region
/// or by memory windows, which operations bind.
fn needs(asked: &Asked<'_>) -> Needs {
    let settings = asked.section(SECTION).map(Settings::read).and_then(Result::ok);
    let (Some(settings), Ok(params)) = (settings, asked.params().read::<Params>()) else { return Needs::default() };
    let rights = PlanRights::LOCAL_WRITE | PlanRights::REMOTE_READ | PlanRights::REMOTE_WRITE;
    let (rights, kinds) = match settings.keys {
        MemoryKeys::Region => (rights, None),
        MemoryKeys::Window => (rights | PlanRights::BIND, Some(&[OperationKind::Bind] as &[OperationKind])),
    };
    let what = "the target READs and WRITEs the data of commands there";
    Needs {
        operations: kinds.map(|kinds| OutputOperations { output: "io", kinds }).into_iter().collect(),
        regions: vec![RegionNeed { region: params.buffers, rights, what }],
        ..Needs::default()
    }
}

/// `params` of an initiator: the region for the data of commands in flight, and overrides of
/// `[load]`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    buffers: String,
    nsid: Option<u32>,
    block_bytes: Option<u32>,
}

impl Keys for Params {
    const KEYS: &'static [AppKey] = &[
        AppKey::text("buffers", "a region's NAME", "the region that holds the data of commands under way"),
        NSID.optional("load's"),
        BLOCK_BYTES.optional("load's"),
    ];
}

impl Initiator {
    fn new(stage: &StageContext<'_>, results: Results) -> Result<Initiator, StageError> {
        let section = stage.raw_section(SECTION)?;
        let params: Params = stage.raw_params().read()?;
        let own = Own { nsid: params.nsid, block_bytes: params.block_bytes };
        let settings = Settings::read_with(section, stage.raw_params(), own)?;
        let region = stage
            .region(&params.buffers)
            .map_err(|error| StageError::from(stage.raw_params().refuse("buffers", error.to_string())))?;
        let (admin_port, _) = port_of(stage, ADMIN)?;
        let (io_port, queues) = port_of(stage, IO)?;
        if settings.keys == MemoryKeys::Window {
            bears_windows(io_port, settings.depth)?;
        }
        let needed = PAGE_BYTES + queues * usize::from(settings.depth) * settings.slot_bytes();
        if region.len_bytes() < needed {
            let message = format!(
                "{queues} queues of {} commands of {} bytes need {needed} bytes; region.{} has {}",
                settings.depth,
                settings.slot_bytes(),
                region.name(),
                region.len_bytes()
            );
            return Err(stage.raw_params().refuse("buffers", message).into());
        }
        let host = Settings::name(&settings.host);
        let secret = settings.secret.as_deref().map(read_secret).transpose();
        let secret = secret.map_err(|error| section.refuse("secret", error.to_string()))?;
        Ok(Initiator {
            subsystem: Settings::name(&settings.subsystem),
            key: secret.map(|secret| secret.key_of(&host)),
            transaction: 0,
            host,
            region,
            admin_port: admin_port.id.index() as u16,
            io_port: io_port.id.index() as u16,
            admin: None,
            lost_ns: None,
            handshake: Handshake::default(),
            queues: (0..queues).map(|_| Queue::new(settings.depth)).collect(),
            oracle: None,
            filled: 0,
            writes_to_flush: 0,
            rng: fastrand::Rng::with_seed(settings.seed),
            writer: fastrand::u32(..),
            scratch: vec![0; settings.slot_bytes().max(pattern::BYTES_MIN)],
            measured: Some(Measured::new(stage, settings.block_bytes.into())?),
            results,
            answered: stage.counter("answered"),
            failed: stage.counter("failed"),
            mismatches: stage.counter("mismatches"),
            stopping: false,
            has_failed: false,
            settings,
        })
    }

    /// Whether no new commands begin.
    pub(crate) fn is_over(&self) -> bool {
        self.stopping || self.has_failed
    }

    /// Ends the run as failed: the initiator can't go on.
    pub(crate) fn fail(&mut self, why: String) {
        tracing::error!("{why}");
        self.has_failed = true;
        if let Some(measured) = self.measured.as_mut() {
            measured.failures.push(why);
        }
    }

    pub(crate) fn count(&mut self, count: impl FnOnce(&mut Counts)) {
        if let Some(measured) = self.measured.as_mut() {
            count(&mut measured.counts);
        }
    }

    fn opened(&mut self, connection: ConnectionId, out: &mut Outputs<'_>) {
        if connection.port() == self.admin_port {
            self.admin = Some(connection);
            return self.begin_handshake(out);
        }
        // Connections of other ports use the same slot numbers.
        if connection.port() == self.io_port
            && let Some(queue) = self.queues.get_mut(connection.slot())
        {
            (queue.connection, queue.state) = (Some(connection), State::Open);
            self.connect_queues(out);
        }
    }

    fn ended(&mut self, connection: ConnectionId, out: &mut Outputs<'_>) {
        if self.admin == Some(connection) {
            self.admin = None;
            if self.handshake.is_leaving() {
                // Discovery is done: the next connection is to the subsystem.
                return self.handshake.stop(out);
            }
            return self.reset(out);
        }
        let queue = self.queues.get_mut(connection.slot()).filter(|queue| queue.connection == Some(connection));
        if let Some(queue) = queue {
            (queue.connection, queue.state) = (None, State::Down);
            self.reset(out);
        }
    }

    /// Closes every connection, to be reconnected; commands in flight are lost.
    pub(crate) fn reset(&mut self, out: &mut Outputs<'_>) {
        self.lost_ns.get_or_insert(out.now_ns());
        let mut had_commands = false;
        self.handshake.stop(out);
        if let Some(admin) = self.admin.take() {
            out.close(admin);
        }
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            // A connection that is open and has no controller may stay.
            if queue.state != State::Open {
                queue.connection.take().map(|connection| out.close(connection));
                queue.state = State::Down;
            }
            while let Some(pending) = self.queues[index].take_any() {
                self.give_up(pending.task);
                had_commands = true;
            }
        }
        if had_commands && self.stopping && !self.has_failed {
            self.fail("the target was lost after the stop, with commands under way; see whether it runs".to_owned());
        }
    }

    /// Gives up a command that is lost with its connection.
    fn give_up(&mut self, task: Task) {
        if let Some(oracle) = self.oracle.as_mut() {
            match task {
                Task::Read { block, .. } => oracle.end_read(block),
                Task::Write { block, .. } => oracle.end_write(block, false),
                Task::Connect | Task::Authenticate(_) | Task::Flush => {}
            }
        }
        if !matches!(task, Task::Connect | Task::Authenticate(_)) {
            self.count(|counts| counts.cut_off += 1);
        }
    }
}

impl Stage for Initiator {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.is_over() {
            return Next::Done;
        }
        // The next event is a response, a timer, a connection, or room in a send queue.
        if self.begin_all(out) { Next::At(Tick::MAX) } else { Next::Idle }
    }

    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let len = input.len();
        for packet in input.drain_front(len) {
            let taken = match packet.connection() {
                Some(connection) if connection.port() == self.admin_port => {
                    self.admin_answered(connection, &packet, out)
                }
                Some(connection) => self.io_answered(connection, &packet, out),
                None => false,
            };
            if !taken {
                self.count(|counts| counts.malformed += 1);
                out.drop(packet, MALFORMED);
            }
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            self.bound(done, out);
        }
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        for timer in due {
            match timer.tag {
                KEEP_ALIVE => self.keep_alive_due(out),
                _ => self.retry_due(out),
            }
        }
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        match event.change {
            ConnectionChange::Opened => self.opened(event.connection, out),
            ConnectionChange::Closed { .. } | ConnectionChange::Failed { .. } => self.ended(event.connection, out),
        }
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        if let Some(lost_ns) = self.lost_ns.filter(|_| !self.has_failed) {
            let lasted = duration(out.now_ns().saturating_sub(lost_ns));
            self.fail(format!("not connected at the end: the target has been gone for {lasted}; see whether it runs"));
        } else if self.admin.is_some() && !self.handshake.is_done() && !self.has_failed {
            let step = self.handshake.step;
            self.fail(format!("no answer to {step:?} at the end; see whether the peer is an NVMe target, and runs"));
        }
        if let Some(measured) = self.measured.as_mut() {
            measured.latencies.end(out.now_ns());
        }
        // What is under way is answered in the drain, and judged.
        self.stopping = true;
    }

    fn awaits_packets(&self) -> bool {
        !self.has_failed && self.queues.iter().any(|queue| !queue.is_idle())
    }
}

/// The port that an output leads to, and its number of connections.
fn port_of<'plan>(stage: &StageContext<'plan>, out: OutId) -> Result<(&'plan Port, usize), StageError> {
    let plan = stage.plan();
    let own = plan.stages().iter().find(|own| own.name == stage.name());
    let port = own.and_then(|own| match own.outputs[usize::from(out.0)] {
        Target::Port(id) => Some(&plan[id]),
        Target::Stage(_) | Target::Ring(_) | Target::Spread(_) | Target::Drop => None,
    });
    let many = port.and_then(|port| Some((port, port.connections.as_ref()?)));
    let Some((port, many)) = many.filter(|(port, _)| !port.connect_to.is_empty()) else {
        return Err(
            "sends to ports with `connect` and `connections`: one for the admin queue, one for the others".into()
        );
    };
    Ok((port, many.max as usize))
}

/// Checks the port of the I/O queues for `keys = "window"`: without windows no command could be
/// sent.
fn bears_windows(port: &Port, depth: u16) -> Result<(), StageError> {
    let name = &port.name;
    let wanted = if port.windows < depth.into() {
        format!("`windows = {depth}`, one a command; it has {}", port.windows)
    } else if !port.immediates {
        "`immediates = true`, which shows which key a response took back".to_owned()
    } else {
        return Ok(());
    };
    Err(format!("`keys = \"window\"` needs {wanted}: write it in [port.{name}]").into())
}

impl Drop for Initiator {
    fn drop(&mut self) {
        if let Some(measured) = self.measured.take() {
            self.results.leave(measured);
        }
    }
}

#[cfg(test)]
mod tests;
