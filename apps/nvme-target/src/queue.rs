//! The queues of one lcore: one a connection, and those that are gone and have commands under way
//! still.

use std::sync::Arc;

use verbline::engine::ConnectionId;
use verbline::prelude::*;
use verbline_nvme::cm::Request;

use crate::admission::AdmissionId;
use crate::controller::Controller;
use crate::exchange::Exchange;
use crate::shared::Seat;
use crate::signed::PipelinedReads;

/// Asynchronous Event Requests that a controller holds.
pub(crate) const EVENTS_HELD: usize = 4;

/// A queue pair of a host.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) connection: ConnectionId,
    /// By which its places are known to the acceptor.
    pub(crate) admission: AdmissionId,
    /// The host is connected: it can be answered.
    pub(crate) is_open: bool,
    /// As the private data said it.
    pub(crate) qid: u16,
    /// Commands that the host may have under way: as many as it was admitted with.
    pub(crate) entries: u16,
    /// Entries of the submission queue, and how far it was read.
    pub(crate) sq_size: u16,
    pub(crate) sq_head: u16,
    /// When its host must have sent a good Connect; `None` once it has, or was disconnected.
    pub(crate) connect_by_ns: Option<Tick>,
    /// How often its controller had been reset as it was connected.
    pub(crate) resets: u32,
    /// From the Connect command on.
    pub(crate) controller: Option<Arc<Controller>>,
    /// Its place at the controller. A host that has to prove who it is gets one by its first proof:
    /// until then its queue changes nothing at the controller.
    pub(crate) seat: Option<Seat>,
    pub(crate) admin: Option<Box<Admin>>,
    /// Of a host that has to prove who it is.
    pub(crate) exchange: Option<Exchange>,
    /// The commands under way that have a place among [`Commands`](crate::commands::Commands).
    pub(crate) cids: Vec<u16>,
    /// RDMA operations under way, and how many ever were done.
    pub(crate) operations: u32,
    pub(crate) done: u32,
    /// Packets of data that its commands hold.
    pub(crate) packets: u32,
    /// Whether its host takes what it asked for.
    pub(crate) progress: Progress,
    /// Reads of which the device checks the blocks.
    pub(crate) pipelined: PipelinedReads,
}

impl Queue {
    /// Its host has not proved who it is, and has to.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| !exchange.is_authenticated())
    }
}

impl Queue {
    /// Its controller is over, or has been reset, which its admin queue outlives.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        let is_over = |controller: &Arc<Controller>| {
            controller.is_over() || (self.qid != 0 && controller.resets() != self.resets)
        };
        self.controller.as_ref().is_some_and(is_over)
    }
}

/// How far a queue's operations had to come, and since when.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    until: u32,
    since_ns: Tick,
}

impl Queue {
    /// Whether an operation has been under way for longer than `within_ns`, or for twice as long at
    /// most: asked again and again, at times of the lcore's own.
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

/// What an admin queue has beside.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    /// 0: the host need not keep it alive.
    pub(crate) kato_ms: u32,
    /// By the time that the stage was there.
    pub(crate) last_seen_ns: Tick,
    /// Requests that wait for an event, by their places.
    pub(crate) held: Vec<u32>,
    /// The events that the host wants to hear of.
    pub(crate) wanted: u32,
    /// Namespaces that changed and that the host has not read of.
    pub(crate) changed: Vec<u32>,
    /// There are more of them than the log holds.
    pub(crate) are_too_many: bool,
    /// An event that no request waited for.
    pub(crate) is_untold: bool,
    /// Features that are but kept: by number.
    pub(crate) features: [u32; 16],
}

/// The queues of an lcore, by their connections.
#[derive(Debug)]
pub(crate) struct Queues {
    /// Whose connections they are, by its place in the plan.
    port: u16,
    all: Vec<Option<Queue>>,
    free: Vec<u16>,
    by_slot: Vec<Option<u16>>,
}

impl Queues {
    /// Places for the queues of `connections` connections. A queue that is gone has its place until
    /// nothing of it is under way.
    pub(crate) fn new(port: u16, connections: usize) -> Queues {
        let most = connections.min(usize::from(u16::MAX));
        Queues {
            port,
            all: (0..most).map(|_| None).collect(),
            free: (0..most as u16).rev().collect(),
            by_slot: vec![None; connections],
        }
    }

    /// Adds a queue, which was `asked` for and admitted so, with its signature keys. `None`: too
    /// many queues are gone and not done.
    pub(crate) fn open(
        &mut self,
        (connection, admission): (ConnectionId, AdmissionId),
        asked: &Request,
        keys: usize,
        connect_by_ns: Tick,
    ) -> Option<u16> {
        let (qid, entries) = (asked.qid, asked.send_depth_less_one.checked_add(1)?);
        // Others have the same slots, and nobody here answers them.
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

    /// The place of a queue whose operation came back, which may be gone.
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

    /// Its connection is over.
    pub(crate) fn close(&mut self, at: u16) {
        if let Some(queue) = self.get_mut(at) {
            queue.is_open = false;
            let slot = queue.connection.slot();
            if self.by_slot[slot] == Some(at) {
                self.by_slot[slot] = None;
            }
        }
    }

    /// Takes it out, if it is closed and nothing of it is under way.
    pub(crate) fn take_done(&mut self, at: u16) -> Option<Queue> {
        let is_done = |queue: &Queue| !queue.is_open && queue.cids.is_empty() && queue.operations == 0;
        self.get(at).filter(|queue| is_done(queue))?;
        self.free.push(at);
        self.all[usize::from(at)].take()
    }

    /// The places of all, used or not.
    pub(crate) fn places(&self) -> impl Iterator<Item = u16> + use<> {
        0..self.all.len() as u16
    }

    /// How many there may be.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is any.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.all.len()
    }
}
