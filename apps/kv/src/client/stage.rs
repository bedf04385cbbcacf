//! The client's stage.
//!
//! An operation begins on the next connection with room, and ends with its reply, its READ, its
//! time-out, or its connection. Its id is the tag of its timer and of its READ.

use verbline::cli::{Latencies, Silence};
use verbline::engine::{Completed, ConnectionChange, ConnectionEvent, ConnectionId};
use verbline::plan::{Asked, Needs, OperationKind, OutputOperations, Target};
use verbline::prelude::*;

use super::in_flight::InFlight;
use super::oracle::{Oracle, write_value};
use super::peers::Peers;
use super::work::{KEY_BYTES, Task, Work, name_of};
use crate::protocol::{HEADER_BYTES, Location, Opcode, Reply, Request};
use crate::results::{Counts, Measured, Results};
use crate::settings::{MEANING, Settings};

mod ending;
mod reading;
#[cfg(test)]
mod tests;

/// To the server: requests on the packet's connection, and READs of its tables on the operation's
/// connection.
const SEND: OutId = OutId(0);

/// The client's drops: messages that are not replies.
const DROPS: &[&str] = &["malformed"];
const MALFORMED: DropReason = DropReason::Stage(0);

/// The tag of the timer that closes a connection: no operation has this id, as the upper half of an
/// id is never 0.
const CLOSE_TAG: u64 = 0;

/// Registers the kind of stage.
pub(crate) fn register(registry: &mut Registry, results: &Results) {
    let results = results.clone();
    let spec = StageSpec {
        outputs: &["send"],
        source: true,
        drops: DROPS,
        summary: "puts and gets keys over many connections, and checks the answers",
        ..StageSpec::default()
    };
    let make = move |stage: &StageContext<'_>| -> Result<Box<dyn Stage>, StageError> {
        let settings = Settings::read(stage)?;
        let (port, connections) = connections_of(stage)?;
        Ok(Box::new(Client {
            number: settings.client + place_of(stage),
            work: Work::new(&settings),
            oracle: Oracle::new(fastrand::u32(..), settings.keys as usize),
            in_flight: InFlight::new(connections * settings.window as usize),
            reading: 0,
            peers: Peers::new(port, connections, settings.window),
            tables: vec![None; usize::from(settings.shards)],
            lookups: vec![Lookup::default(); usize::from(settings.shards)],
            asked: 0,
            closes: false,
            measured: Some(Measured::new(stage)?),
            results: results.clone(),
            operations: stage.counter("operations"),
            wrong_values: stage.counter("wrong_values"),
            timed_out: stage.counter("timed_out"),
            locates_timed_out: stage.counter("locates_timed_out"),
            silence: Silence::default(),
            is_stopped: false,
            settings,
        }))
    };
    registry.section_of::<Settings>("kv", MEANING).stage("client", spec, make).needs("client", needs);
}

/// The client's memory per key. Each operation in flight has a slot and a timer, and may be a READ.
/// A PUT is the longest request.
fn needs(asked: &Asked<'_>) -> Needs {
    let Some(settings) = asked.section("kv").and_then(|section| Settings::of(section).ok()) else {
        return Needs::default();
    };
    let under_way = u64::from(asked.connections("send").unwrap_or(1)) * u64::from(settings.window);
    let reads = OutputOperations { output: "send", kinds: &[OperationKind::Read] };
    Needs {
        timers: vec![
            ("operations under way: connections x kv.window", under_way),
            ("kv.close_every_ms", (settings.close_every_ms > 0).into()),
        ],
        operations: Vec::from_iter((settings.get_share * settings.read_share > 0.0).then_some(reads)),
        memory_bytes: vec![
            ("keys and their PUTs", Oracle::memory_bytes(settings.keys.into())),
            ("operations under way", InFlight::<Pending>::memory_bytes(under_way)),
        ],
        packet_bytes: vec![
            ("header", HEADER_BYTES as u64),
            ("key", KEY_BYTES as u64),
            ("kv.value_bytes", settings.value_bytes.into()),
        ],
        ..Needs::default()
    }
}

/// The number of the plan's clients before this one: each has keys of its own.
fn place_of(stage: &StageContext<'_>) -> u32 {
    let clients = stage.plan().stages().iter().filter(|other| other.kind == stage.kind());
    clients.take_while(|other| other.name != stage.name()).count() as u32
}

/// The port that the client sends to, and its number of connections.
fn connections_of(stage: &StageContext<'_>) -> Result<(u16, usize), StageError> {
    let plan = stage.plan();
    let own = plan.stages().iter().find(|own| own.name == stage.name());
    let port = own.and_then(|own| match own.outputs[usize::from(SEND.0)] {
        Target::Port(id) => plan[id].connections.as_ref().map(|many| (id.index() as u16, many.max as usize)),
        Target::Stage(_) | Target::Ring(_) | Target::Spread(_) | Target::Drop => None,
    });
    port.ok_or_else(|| {
        "sends to a port with `connections`: write `connect = \"ADDRESS:PORT\"` and `connections = 256` there".into()
    })
}

/// An operation in flight.
#[derive(Debug)]
struct Pending {
    task: Task,
    peer: ConnectionId,
    /// The lowest generation that a GET may find.
    floor: u32,
    began_ns: Tick,
    timer: Option<TimerId>,
    /// For a READ: the current one of the key's two buckets, and the number of torn results.
    bucket: usize,
    torn: u8,
}

/// The requests for a table's location.
#[derive(Clone, Copy, Debug, Default)]
struct Lookup {
    /// The location was known at any time.
    is_answered: bool,
    /// Requests that timed out.
    in_vain: u32,
}

struct Client {
    settings: Settings,
    /// The client's number, which selects its keys.
    number: u32,
    work: Work,
    oracle: Oracle,
    in_flight: InFlight<Pending>,
    /// READs in flight.
    reading: usize,
    peers: Peers,
    /// The locations of the shards' tables, as known so far.
    tables: Vec<Option<Location>>,
    lookups: Vec<Lookup>,
    /// The number of tables requested.
    asked: usize,
    /// The timer that closes connections is armed.
    closes: bool,
    /// `None` after it was handed over.
    measured: Option<Measured>,
    results: Results,
    operations: Counter,
    /// Values that are older than an answered PUT, or that no PUT wrote.
    wrong_values: Counter,
    timed_out: Counter,
    /// Those of them that asked a shard where its table is.
    locates_timed_out: Counter,
    silence: Silence,
    is_stopped: bool,
}

impl Stage for Client {
    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.is_stopped {
            return Next::Done;
        }
        self.arm_closing(out);
        while self.begin(out) {}
        // Replies, READs, timers and opened connections are the next causes of work.
        Next::At(Tick::MAX)
    }

    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        let len = input.len();
        for packet in input.drain_front(len) {
            match Reply::read(packet.data()) {
                Some(reply) => {
                    self.silence.heard(out.now_ns());
                    self.answered(&reply, out);
                }
                None => {
                    self.count(|counts| counts.malformed += 1);
                    out.drop(packet, MALFORMED);
                }
            }
        }
    }

    fn operations(&mut self, done: &mut Completed<'_>, out: &mut Outputs<'_>) {
        while let Some(done) = done.pop() {
            let (tag, result) = (done.tag, done.result);
            match (result, done.into_packet()) {
                (Ok(()), Some(packet)) => {
                    self.silence.heard(out.now_ns());
                    self.was_read(tag, packet, out);
                }
                // The connection is over, or the table is not where the server reported it.
                _ => self.fall_back(tag, out),
            }
        }
    }

    fn timers(&mut self, due: &[DueTimer], out: &mut Outputs<'_>) {
        for timer in due {
            match timer.tag {
                CLOSE_TAG => {
                    self.closes = false;
                    if let Some(connection) = self.peers.last() {
                        // It takes no more operations from now on; its end is reported some turns
                        // later.
                        self.peers.close(connection);
                        out.close(connection);
                    }
                }
                id => {
                    if let Some(pending) = self.in_flight.take(id) {
                        self.timed_out.add(1);
                        self.count(|counts| counts.timed_out += 1);
                        self.measure(&pending, Latencies::give_up, out.now_ns());
                        if let Task::Locate { shard } = pending.task {
                            self.locates_timed_out.add(1);
                            self.lookups[shard].in_vain += 1;
                        }
                        self.give_up(&pending);
                    }
                }
            }
        }
    }

    fn connection_event(&mut self, event: ConnectionEvent, out: &mut Outputs<'_>) {
        if event.change == ConnectionChange::Opened {
            return self.peers.open(event.connection);
        }
        let is_lost = self.peers.close(event.connection);
        if is_lost {
            // The server closed it: the next server at this address has its tables elsewhere.
            self.tables.fill(None);
            self.asked = 0;
        }
        let mut last = None;
        loop {
            last = self.in_flight.find(last, |pending| pending.peer == event.connection);
            let Some(id) = last else { break };
            let Some(pending) = self.in_flight.take(id) else { break };
            pending.timer.map(|timer| out.cancel_timer(timer));
            self.count(|counts| counts.cut_off += 1);
            if is_lost {
                self.silence.lost(out.now_ns());
            }
            self.give_up(&pending);
        }
    }

    fn stop(&mut self, out: &mut Outputs<'_>) {
        // Operations in flight are answered in the drain, and judged.
        self.is_stopped = true;
        self.silence.stopped(out.now_ns());
        if let Some(measured) = self.measured.as_mut() {
            measured.latencies.end(out.now_ns());
        }
    }

    fn awaits_packets(&self) -> bool {
        self.silence.may_wait() && !self.in_flight.is_empty()
    }
}

impl Client {
    /// Begins one operation. Returns false if none can begin now.
    fn begin(&mut self, out: &mut Outputs<'_>) -> bool {
        if self.work.is_loaded() && self.asked < self.tables.len() {
            return self.ask_for_table(out);
        }
        let can_read = self.reading < self.settings.reads as usize && self.tables.iter().all(Option::is_some);
        let Some(peer) = self.peers.begin() else { return false };
        let task = self.work.next(&mut self.oracle, can_read);
        let floor = match task {
            Task::Get { key } | Task::Read { key } => self.oracle.floor(key),
            Task::Put { .. } | Task::Locate { .. } => 0,
        };
        let pending = Pending { task, peer, floor, began_ns: out.now_ns(), timer: None, bucket: 0, torn: 0 };
        if let Task::Read { .. } = task {
            self.reading += 1;
            return self.start(pending, out, Client::read_or_ask);
        }
        self.start(pending, out, Client::send_request)
    }

    /// Requests the location of the next shard's table.
    fn ask_for_table(&mut self, out: &mut Outputs<'_>) -> bool {
        let Some(peer) = self.peers.begin() else { return false };
        let task = Task::Locate { shard: self.asked };
        self.asked += 1;
        let pending = Pending { task, peer, floor: 0, began_ns: out.now_ns(), timer: None, bucket: 0, torn: 0 };
        self.start(pending, out, Client::send_request)
    }

    /// Starts an operation, by a message or by a READ. Returns false if that fails.
    fn start(
        &mut self,
        pending: Pending,
        out: &mut Outputs<'_>,
        go: fn(&mut Client, u64, &mut Outputs<'_>) -> bool,
    ) -> bool {
        let until_ns = pending.began_ns + u64::from(self.settings.timeout_ms) * 1_000_000;
        let id = match self.in_flight.add(pending) {
            Ok(id) => id,
            Err(pending) => {
                self.give_back(&pending);
                return false;
            }
        };
        if !go(self, id, out) {
            if let Some(pending) = self.in_flight.take(id) {
                self.give_back(&pending);
            }
            return false;
        }
        let timer = out.arm_timer(until_ns, id);
        if let Some(pending) = self.in_flight.get_mut(id) {
            pending.timer = timer;
        }
        true
    }

    /// Sends the request of an operation. Returns false if there is no packet or no room.
    fn send_request(&mut self, id: u64, out: &mut Outputs<'_>) -> bool {
        let Some(pending) = self.in_flight.get_mut(id) else { return false };
        let Some(mut packet) = out.alloc() else { return false };
        let value_bytes = self.settings.value_bytes as usize;
        let (opcode, shard, key, value_len) = match pending.task {
            Task::Get { key } | Task::Read { key } => (Opcode::Get, 0, Some(key), 0),
            Task::Put { key, .. } => (Opcode::Put, 0, Some(key), value_bytes),
            Task::Locate { shard } => (Opcode::Locate, shard as u8, None, 0),
        };
        let name = key.map(|key| name_of(self.number, key));
        let name = name.as_ref().map_or(&[][..], |name| &name[..]);
        if !packet.set_len(HEADER_BYTES + name.len() + value_len) {
            return false;
        }
        let header = Request::header(opcode, shard, name.len() as u16, value_len as u32, id);
        let (head, rest) = packet.data_mut().split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header);
        let (key_place, value) = rest.split_at_mut(name.len());
        key_place.copy_from_slice(name);
        if let Task::Put { key, generation } = pending.task {
            write_value(key, self.oracle.origin(generation), value);
        }
        packet.set_connection(Some(pending.peer));
        out.send(SEND, packet)
    }

    fn arm_closing(&mut self, out: &mut Outputs<'_>) {
        if self.settings.close_every_ms > 0 && !self.closes {
            let at_ns = out.now_ns() + u64::from(self.settings.close_every_ms) * 1_000_000;
            self.closes = out.arm_timer(at_ns, CLOSE_TAG).is_some();
        }
    }

    /// Whether some shards said where their tables are, and another never did. One request may have
    /// been lost.
    fn lacks_shards(&self) -> bool {
        let is_absent = |lookup: &Lookup| !lookup.is_answered && lookup.in_vain > 1;
        self.lookups.iter().any(|lookup| lookup.is_answered) && self.lookups.iter().any(is_absent)
    }

    fn count(&mut self, count: impl FnOnce(&mut Counts)) {
        if let Some(measured) = self.measured.as_mut() {
            count(&mut measured.counts);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(mut measured) = self.measured.take() {
            measured.unlocated = Some(self.settings.shards).filter(|_| self.lacks_shards());
            measured.silent_ns = self.silence.lasted_ns(u64::from(self.settings.timeout_ms) * 1_000_000);
            self.results.leave(measured);
        }
    }
}
