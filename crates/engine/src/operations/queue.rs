//! The operations of one port, between the stages and the queue pair.
//!
//! The queue lies beside the sink that gathers the port's sends, in the sink's own place for
//! counters, so that a port that only sends never looks at it. An operation waits here, is posted,
//! and comes back to its stage; it counts as under way meanwhile. Each operation records the number
//! of packets handed to the sink before it, so that both are posted in the order in which they were
//! given.
//!
//! Posted operations stand in one lane per queue pair. On a port with many connections an operation
//! is accepted only while its connection is open.
//!
//! Guarantees: at most `depth` operations are between [`OperationQueue::accept`] and the stage's
//! call that takes them back; a queue pair has at most its send queue's depth; nothing is allocated
//! after construction. Before a queue pair that the device has stopped at a bad block goes on, each
//! of its responses that waits for a known bad block is cancelled, or is refused later when it is
//! to be posted.

mod accepting;
pub(crate) mod by_hand;
pub(crate) mod posting;
pub(crate) mod sends;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use verbline_mem::ConnectionId;
use verbline_plan::OperationKind;
use verbline_verbs::rdma::{KeptKey, KeptWindow, Work, WorkList};
use verbline_verbs::signature::BadBlock;
use verbline_verbs::{QueuePair, Transport};

use crate::errors::error::Cause;
use crate::operations::lanes::{Held, Lanes};
use crate::operations::operation::Done;
use crate::operations::send_with::Returning;
use crate::stats::counter::{Drops, Shared};
use crate::stats::counters::{PortStats, StageStats};
use crate::stats::operations::OperationStats;

/// The operations of one port.
#[derive(Debug)]
pub(crate) struct OperationQueue {
    pub(crate) port: Shared<PortStats>,
    pub(crate) stats: Shared<OperationStats>,
    depth: usize,
    /// Operations accepted and not given back.
    under_way: usize,
    /// Operations not listed yet, oldest first: those behind packets that wait in the sink, and
    /// those of a port with one list per connection.
    waiting: VecDeque<Waiting>,
    /// The work requests to be handed to the queue pair next.
    pub(crate) works: WorkList,
    /// Whether the port's queue pairs are UC.
    is_uc: bool,
    /// Operations accepted and not done; those in `works` are listed.
    accepted: Lanes<UnderWay>,
    /// One per queue pair.
    lanes: Box<[Lane]>,
    /// Each lane belongs to a connection, which an operation has to name.
    has_many: bool,
    /// The most operations of a lane.
    lane_depth: usize,
    /// Packets that left the sink since the start.
    sends_taken: u64,
    /// The stages that complete operations go to.
    users: Vec<User>,
    /// By the region's number in the plan: whether the port's queue pairs keep it.
    regions: Box<[bool]>,
    /// The numbers of windows and of keys that each queue pair keeps.
    windows: u16,
    pub(crate) keys: u16,
    /// The port is down, and accepts no operation.
    pub(crate) is_down: bool,
    /// An operation was accepted since the port last looked.
    pub(crate) is_fresh: bool,
    /// Packets on their way back, on a port with `send_options`.
    pub(crate) returning: Option<Returning>,
}

/// The share of one queue pair.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// The owner, while it is open.
    connection: Option<ConnectionId>,
    /// Operations accepted and not done; not counted for an only lane.
    accepted: usize,
}

/// The parts of a port's operation queue.
#[derive(Debug)]
pub(crate) struct OperationsSpec {
    pub(crate) port: Shared<PortStats>,
    pub(crate) stats: Shared<OperationStats>,
    /// The transport of the port's queue pairs: RC or UC.
    pub(crate) transport: Transport,
    /// The most packets handed over at once.
    pub(crate) sends: usize,
    /// The most operations under way.
    pub(crate) depth: usize,
    /// The most connections of the port, if it may have many, and the most operations of each at
    /// once.
    pub(crate) many: Option<[usize; 2]>,
    /// The regions, windows and keys that each of its queue pairs keeps.
    pub(crate) regions: Box<[bool]>,
    pub(crate) windows: u16,
    pub(crate) keys: u16,
}

/// A stage whose outputs lead to the port.
#[derive(Debug)]
struct User {
    /// Identifies the stage.
    stats: Shared<StageStats>,
    /// Operations accepted and not given back.
    under_way: usize,
    done: Vec<Done>,
}

#[derive(Debug)]
struct Waiting {
    work: Work,
    /// The number of packets handed to the sink before it, since the start.
    behind: u64,
    connection: Option<ConnectionId>,
    held: Held,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    tag: u64,
    user: u16,
    kind: OperationKind,
    /// The number of packets of its memory.
    packets: u16,
    bytes: u32,
    named: Named,
    connection: Option<ConnectionId>,
}

/// The object of its queue pair that an operation names, or the bad block found through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Nothing,
    Window(KeptWindow),
    /// The key whose blocks a response waits for.
    Key(KeptKey),
    /// A block of the key is bad, and the response cancelled.
    Bad(BadBlock),
}

impl UnderWay {
    fn lane(&self) -> usize {
        self.connection.map_or(0, ConnectionId::slot)
    }
}

impl OperationQueue {
    pub(crate) fn new(spec: OperationsSpec) -> OperationQueue {
        let OperationsSpec { port, stats, transport, sends, depth, many, regions, windows, keys } = spec;
        let lanes = many.map_or(1, |[connections, _]| connections);
        OperationQueue {
            port,
            stats,
            depth,
            under_way: 0,
            waiting: VecDeque::with_capacity(depth),
            works: WorkList::with_capacity(sends + depth),
            is_uc: transport == Transport::Uc,
            accepted: Lanes::new(many.map(|_| lanes), depth),
            lanes: vec![Lane::default(); lanes].into(),
            lane_depth: many.map_or(depth, |[_, each]| each),
            has_many: many.is_some(),
            sends_taken: 0,
            users: Vec::new(),
            regions,
            windows,
            keys,
            is_down: false,
            is_fresh: false,
            returning: None,
        }
    }

    pub(crate) fn drops(&self) -> &Drops {
        &self.port.drops
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Adds a stage that may hand over operations; returns its number.
    pub(crate) fn add_user(&mut self, stats: Shared<StageStats>) -> u16 {
        self.users.push(User { stats, under_way: 0, done: Vec::with_capacity(self.depth) });
        (self.users.len() - 1) as u16
    }

    /// The number of operations that can still be accepted.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.depth - self.under_way
    }

    /// The lane of an open connection; on a port with one queue pair, the only lane.
    #[inline]
    fn lane(&self, connection: Option<ConnectionId>) -> Option<usize> {
        let at = connection.map_or(0, ConnectionId::slot);
        let is_its_own = self.lanes.get(at).is_some_and(|lane| lane.connection == connection);
        (is_its_own && self.has_many == connection.is_some()).then_some(at)
    }

    /// The connection takes operations from now on.
    pub(crate) fn open(&mut self, connection: ConnectionId) {
        if let Some(lane) = self.lanes.get_mut(connection.slot()) {
            lane.connection = Some(connection);
        }
    }

    /// The connection takes no more operations. Its outstanding ones come back.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        if let Some(lane) = self.lanes.get_mut(connection.slot()).filter(|lane| lane.connection == Some(connection)) {
            lane.connection = None;
        }
    }

    /// The number of a user's operations that are accepted and not given back.
    #[inline]
    pub(crate) fn under_way(&self, user: u16) -> usize {
        self.users[usize::from(user)].under_way
    }

    /// Whether an operation is accepted and not given back.
    pub(crate) fn has_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Takes a user's done operations, in exchange for an empty list with the same room.
    pub(crate) fn take_done(&mut self, user: u16, done: &mut Vec<Done>) {
        let user = &mut self.users[usize::from(user)];
        debug_assert!(done.is_empty());
        std::mem::swap(&mut user.done, done);
        user.under_way -= done.len();
        user.stats.operations_done.add(done.len() as u64);
        self.under_way -= done.len();
        self.gauge();
    }

    /// Whether a user has done operations.
    #[inline]
    pub(crate) fn has_done(&self, user: u16) -> bool {
        !self.users[usize::from(user)].done.is_empty()
    }

    /// A lane's queue pair may have stopped, and its completion queue has been empty since. Returns
    /// an error if the queue pair can't go on.
    #[cold]
    pub(crate) fn settle_stop(&mut self, lane: usize, qp: &mut QueuePair) -> Result<(), Cause> {
        if !qp.is_stopped()? {
            // The event was of an earlier stop, or of an earlier queue pair with this number.
            return Ok(());
        }
        let (accepted, stats) = (&mut self.accepted, &self.stats);
        let gone = qp.cancel_responses(|key, fault| {
            tracing::info!(?key, ?fault, "a block is bad: its response is cancelled");
            stats.bad_blocks.add(1);
            let bad = BadBlock { part: fault.part, offset: fault.offset as u32 };
            accepted.each_mut(lane, |what| {
                if what.kind == OperationKind::Respond && what.named == Named::Key(key) {
                    what.named = Named::Bad(bad);
                }
            });
        })?;
        if gone > 0 {
            return Err(format!("{gone} responses had gone out before their blocks were checked").into());
        }
        self.stats.stops.add(1);
        Ok(qp.resume()?)
    }

    fn gauge(&self) {
        self.stats.under_way.set(self.under_way as u64);
    }
}
