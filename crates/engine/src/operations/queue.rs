//! The operations of one port, between the stages that ask for them and the queue pair.
//!
//! It lies beside the sink that gathers what is sent through the port, in the sink's own place for
//! counters, so that a port that only sends never looks at it. An operation waits here, is posted,
//! and comes back to its stage; meanwhile it counts. Each remembers how many packets had been
//! handed to the sink before it, so that both are posted in the order in which they were given.
//!
//! Posted operations stand in one lane a queue pair. Of a port with many connections an operation
//! is accepted only while its connection is open.
//!
//! Guarantees: no more than `depth` are between [`OperationQueue::accept`] and the call of the
//! stage that takes them back; a queue pair has no more than its send queue holds; nothing is
//! allocated after it is made. When a queue pair goes on that the device has stopped behind a bad
//! block, every response of it that waits for a block known to be bad is cancelled, or is refused
//! once it is to be posted.

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
use crate::operations::returning::Returning;
use crate::stats::counter::{Drops, Shared};
use crate::stats::counters::{PortStats, StageStats};
use crate::stats::operations::OperationStats;

/// The operations of one port.
#[derive(Debug)]
pub(crate) struct OperationQueue {
    pub(crate) port: Shared<PortStats>,
    pub(crate) stats: Shared<OperationStats>,
    depth: usize,
    /// Accepted and not given back.
    under_way: usize,
    /// Not listed yet, oldest first: those behind packets that wait in the sink, and those of a
    /// port that has a list a connection.
    waiting: VecDeque<Waiting>,
    /// What is handed to the queue pair next.
    pub(crate) works: WorkList,
    /// Of the port's queue pairs.
    is_uc: bool,
    /// All that are accepted and not done; those in `works` are listed.
    accepted: Lanes<UnderWay>,
    /// One a queue pair.
    lanes: Box<[Lane]>,
    /// A lane is a connection's, which an operation has to name.
    has_many: bool,
    /// How many a lane takes.
    lane_depth: usize,
    /// Packets that left the sink since the start.
    sends_taken: u64,
    /// Who is given what completes.
    users: Vec<User>,
    /// By the region's place in the plan: whether the port's queue pairs keep it.
    regions: Box<[bool]>,
    /// How many of each they keep.
    windows: u16,
    pub(crate) keys: u16,
    /// The port is down, and takes nothing.
    pub(crate) is_down: bool,
    /// Something was accepted since the port last looked.
    pub(crate) is_fresh: bool,
    /// Of a port whose packets say how they are sent: those that come back.
    pub(crate) returning: Option<Returning>,
}

/// One queue pair's share.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// Whose it is, while that is open.
    connection: Option<ConnectionId>,
    /// Accepted and not done; not counted of the only one.
    accepted: usize,
}

/// What a port's operations are made of.
#[derive(Debug)]
pub(crate) struct OperationsSpec {
    pub(crate) port: Shared<PortStats>,
    pub(crate) stats: Shared<OperationStats>,
    /// Of the port's queue pairs: RC or UC.
    pub(crate) transport: Transport,
    /// Packets that may be handed over at once.
    pub(crate) sends: usize,
    /// Operations that may be under way.
    pub(crate) depth: usize,
    /// The most connections that the port has at once, if it may have many, and how many operations
    /// each carries out at once.
    pub(crate) many: Option<[usize; 2]>,
    /// What each of its queue pairs keeps.
    pub(crate) regions: Box<[bool]>,
    pub(crate) windows: u16,
    pub(crate) keys: u16,
}

/// A stage whose outputs lead to the port.
#[derive(Debug)]
struct User {
    /// By which it is known.
    stats: Shared<StageStats>,
    /// Accepted and not given back.
    under_way: usize,
    done: Vec<Done>,
}

#[derive(Debug)]
struct Waiting {
    work: Work,
    /// Packets that were handed to the sink before it, since the start.
    behind: u64,
    connection: Option<ConnectionId>,
    held: Held,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    tag: u64,
    user: u16,
    kind: OperationKind,
    /// How many packets its memory is.
    packets: u16,
    bytes: u32,
    named: Named,
    connection: Option<ConnectionId>,
}

/// What of its queue pair an operation names, or what became of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Nothing,
    Window(KeptWindow),
    /// The key whose blocks a response waits for.
    Key(KeptKey),
    /// One of these is bad, and the response cancelled.
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

    /// A stage that may ask for operations; its number among them.
    pub(crate) fn add_user(&mut self, stats: Shared<StageStats>) -> u16 {
        self.users.push(User { stats, under_way: 0, done: Vec::with_capacity(self.depth) });
        (self.users.len() - 1) as u16
    }

    /// How many more can be accepted.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.depth - self.under_way
    }

    /// The lane of an open connection; the only one of a port that has one.
    #[inline]
    fn lane(&self, connection: Option<ConnectionId>) -> Option<usize> {
        let at = connection.map_or(0, ConnectionId::slot);
        let is_its_own = self.lanes.get(at).is_some_and(|lane| lane.connection == connection);
        (is_its_own && self.has_many == connection.is_some()).then_some(at)
    }

    /// A connection takes operations from now on.
    pub(crate) fn open(&mut self, connection: ConnectionId) {
        if let Some(lane) = self.lanes.get_mut(connection.slot()) {
            lane.connection = Some(connection);
        }
    }

    /// A connection takes none any more. What is under way over it comes back.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        if let Some(lane) = self.lanes.get_mut(connection.slot()).filter(|lane| lane.connection == Some(connection)) {
            lane.connection = None;
        }
    }

    /// How many of a user's are accepted and not given back.
    #[inline]
    pub(crate) fn under_way(&self, user: u16) -> usize {
        self.users[usize::from(user)].under_way
    }

    /// What is done of a user's, in exchange for an empty list that was made for as many.
    pub(crate) fn take_done(&mut self, user: u16, done: &mut Vec<Done>) {
        let user = &mut self.users[usize::from(user)];
        debug_assert!(done.is_empty());
        std::mem::swap(&mut user.done, done);
        user.under_way -= done.len();
        user.stats.operations_done.add(done.len() as u64);
        self.under_way -= done.len();
        self.gauge();
    }

    /// Whether something of a user's is done.
    #[inline]
    pub(crate) fn has_done(&self, user: u16) -> bool {
        !self.users[usize::from(user)].done.is_empty()
    }

    /// A lane's queue pair may have stopped, and its completion queue was empty since. An error: it
    /// can't go on.
    #[cold]
    pub(crate) fn settle_stop(&mut self, lane: usize, qp: &mut QueuePair) -> Result<(), Cause> {
        if !qp.is_stopped()? {
            // Of a stop before, or of another queue pair that had the number.
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
