//! The queues of one lcore: one per connection, and those of ended connections with commands still
//! in flight.

use std::sync::Arc;

use verbline::engine::ConnectionId;
use verbline::prelude::*;
use verbline_nvme::Command;
use verbline_nvme::cm::Request;

use crate::admission::AdmissionId;
use crate::controller::Controller;
use crate::exchange::Exchange;
use crate::namespace_table::Use;
use crate::shared::Seat;

/// Asynchronous Event Requests that a controller holds.
pub(crate) const EVENTS_HELD: usize = 4;

/// A host's queue pair.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) connection: ConnectionId,
    /// The admission of its places, for the acceptor.
    pub(crate) admission: AdmissionId,
    /// The host is connected, and can be answered.
    pub(crate) is_open: bool,
    /// From the private data.
    pub(crate) qid: u16,
    /// Commands that the host may have in flight: the number it was admitted with.
    pub(crate) entries: u16,
    /// Entries of the submission queue, and its head.
    pub(crate) sq_size: u16,
    pub(crate) sq_head: u16,
    /// The deadline for a good Connect; `None` after one, or after the disconnect.
    pub(crate) connect_by_ns: Option<Tick>,
    /// The controller's number of resets at the Connect command.
    pub(crate) resets: u32,
    /// `None` until the Connect command.
    pub(crate) controller: Option<Arc<Controller>>,
    /// Its place at the controller. A host that must authenticate gets it with its first proof:
    /// until then its queue changes nothing at the controller.
    pub(crate) seat: Option<Seat>,
    pub(crate) admin: Option<Box<Admin>>,
    /// The authentication exchange, of hosts that must authenticate.
    pub(crate) exchange: Option<Exchange>,
    /// Identifiers of its commands that have a place in [`Commands`](crate::commands::Commands).
    pub(crate) cids: Vec<u16>,
    /// RDMA operations in flight, and the number ever done.
    pub(crate) operations: u32,
    pub(crate) done: u32,
    /// Packets of data that its commands hold.
    pub(crate) packets: u32,
    /// Progress of the host in taking what it asked for.
    pub(crate) progress: Progress,
    /// Reads whose blocks the device checks.
    pub(crate) pipelined: PipelinedReads,
}

impl Queue {
    /// Whether the host must authenticate and has not yet.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| !exchange.is_authenticated())
    }
}

impl Queue {
    /// Whether the queue must close: its controller has ended, or was reset. An admin queue
    /// outlives resets.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        let is_over = |controller: &Arc<Controller>| {
            controller.is_over() || (self.qid != 0 && controller.resets() != self.resets)
        };
        self.controller.as_ref().is_some_and(is_over)
    }
}

/// The count of done operations that the queue has to reach, and since when.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    until: u32,
    since_ns: Tick,
}

impl Queue {
    /// Whether an operation has been in flight for longer than `within_ns` (found out after twice
    /// that time at the latest). Called again and again, with times at which the lcore was running.
    pub(crate) fn is_stuck(&mut self, now_ns: Tick, within_ns: u64) -> bool {
        let Progress { until, since_ns } = self.progress;
        let is_reached = (self.done.wrapping_sub(until)).cast_signed() >= 0;
        if is_reached || self.operations == 0 {
            self.progress = Progress { until: self.done.wrapping_add(self.operations), since_ns: now_ns };
            return false;
        }
        now_ns - since_ns > within_ns
    }
}

/// The state that only an admin queue has.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    /// The keep-alive time-out; 0 if there is none.
    pub(crate) kato_ms: u32,
    /// When the host was last heard of, in attended time.
    pub(crate) last_seen_ns: Tick,
    /// The places of Asynchronous Event Requests that wait for an event.
    pub(crate) held: Vec<u32>,
    /// The events that the host asked for.
    pub(crate) wanted: u32,
    /// Changed namespaces that the host has not read about yet.
    pub(crate) changed: Vec<u32>,
    /// More namespaces changed than the log holds.
    pub(crate) are_too_many: bool,
    /// An event occurred while no request waited, or it was masked.
    pub(crate) is_untold: bool,
    /// An event was told, and its log was not read since.
    pub(crate) is_masked: bool,
    /// Features that are stored without effect, by number.
    pub(crate) features: [u32; 16],
}

/// The queues of an lcore, by their connections.
#[derive(Debug)]
pub(crate) struct Queues {
    /// The place in the plan of the port of all these connections.
    port: u16,
    all: Vec<Option<Queue>>,
    free: Vec<u16>,
    by_slot: Vec<Option<u16>>,
}

impl Queues {
    /// Makes places for the queues of `connections` connections. An ended queue keeps its place
    /// until its last operation is done.
    pub(crate) fn new(port: u16, connections: usize) -> Queues {
        let most = connections.min(usize::from(u16::MAX));
        Queues {
            port,
            all: (0..most).map(|_| None).collect(),
            free: (0..most as u16).rev().collect(),
            by_slot: vec![None; connections],
        }
    }

    /// Adds a queue, with its private data, admission and signature keys. `None`: too many ended
    /// queues still have operations in flight.
    pub(crate) fn open(
        &mut self,
        (connection, admission): (ConnectionId, AdmissionId),
        asked: &Request,
        keys: usize,
        connect_by_ns: Tick,
    ) -> Option<u16> {
        let (qid, entries) = (asked.qid, asked.send_depth_less_one.checked_add(1)?);
        // Other ports use the same slot numbers, and this stage does not answer their connections.
        let is_own = connection.port() == self.port;
        let slot = self.by_slot.get_mut(connection.slot()).filter(|_| is_own)?;
        let at = self.free.pop()?;
        *slot = Some(at);
        self.all[usize::from(at)] = Some(Queue {
            connection,
            admission,
            is_open: true,
            qid,
            entries,
            sq_size: entries,
            sq_head: 0,
            connect_by_ns: Some(connect_by_ns),
            resets: 0,
            controller: None,
            seat: None,
            admin: None,
            exchange: None,
            cids: Vec::with_capacity(entries.into()),
            operations: 0,
            done: 0,
            packets: 0,
            progress: Progress::default(),
            pipelined: PipelinedReads::new(if qid == 0 { 0 } else { keys.min(entries.into()) }),
        });
        Some(at)
    }

    /// The place of a connection's queue.
    #[inline]
    pub(crate) fn find(&self, connection: ConnectionId) -> Option<u16> {
        let at = (*self.by_slot.get(connection.slot())?)?;
        self.get(at).filter(|queue| queue.connection == connection).map(|_| at)
    }

    /// The place of the queue of a finished operation; the queue may be closed.
    pub(crate) fn find_any(&self, connection: ConnectionId) -> Option<u16> {
        self.find(connection)
            .or_else(|| self.places().find(|at| self.get(*at).is_some_and(|q| q.connection == connection)))
    }

    #[inline]
    pub(crate) fn get(&self, at: u16) -> Option<&Queue> {
        self.all.get(usize::from(at))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: u16) -> Option<&mut Queue> {
        self.all.get_mut(usize::from(at))?.as_mut()
    }

    /// Called when its connection has ended.
    pub(crate) fn close(&mut self, at: u16) {
        if let Some(queue) = self.get_mut(at) {
            queue.is_open = false;
            let slot = queue.connection.slot();
            if self.by_slot[slot] == Some(at) {
                self.by_slot[slot] = None;
            }
        }
    }

    /// Takes the queue out, if it is closed and its last operation is done.
    pub(crate) fn take_done(&mut self, at: u16) -> Option<Queue> {
        let is_done = |queue: &Queue| !queue.is_open && queue.cids.is_empty() && queue.operations == 0;
        self.get(at).filter(|queue| is_done(queue))?;
        self.free.push(at);
        self.all[usize::from(at)].take()
    }

    /// All places, used or not.
    pub(crate) fn places(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.all.len() as u16
    }

    /// The number of places.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no queues.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.all.len()
    }
}

/// The pipelined reads of a queue, by their keys.
#[derive(Debug)]
pub(crate) struct PipelinedReads {
    commands: Box<[Option<(Command, Use)>]>,
    free: Vec<u16>,
}

impl PipelinedReads {
    /// The pipelined reads of a queue whose connection has `keys` keys.
    pub(crate) fn new(keys: usize) -> PipelinedReads {
        let keys = keys.min(u16::MAX.into()) as u16;
        PipelinedReads { commands: (0..keys).map(|_| None).collect(), free: (0..keys).rev().collect() }
    }

    /// Takes a free key, until it is posted or put back.
    pub(crate) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Puts an unused key back.
    pub(crate) fn put_back(&mut self, key: u16) {
        self.free.push(key);
    }

    /// Whether a key is free.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Records the read posted with a key. It uses its namespace until the response is back.
    pub(crate) fn posted(&mut self, key: u16, command: Command, of: Use) {
        self.commands[usize::from(key)] = Some((command, of));
    }

    /// Frees the key of a response that is back.
    pub(crate) fn give_back(&mut self, key: u16) -> Option<(Command, Use)> {
        let posted = self.commands.get_mut(usize::from(key))?.take()?;
        self.free.push(key);
        Some(posted)
    }
}
