//! A port with many connections, each a queue pair on the lcore's completion queue. They receive
//! from one shared queue, or from a queue each where the device has no shared ones.
//!
//! All of them complete under the port's one tag; the queue pair's number identifies a completion's
//! connection ([`table`]). A received packet carries its connection's handle, and goes out by the
//! connection whose handle it then carries.
//!
//! Guarantees: nothing is allocated after the start, even as connections come and go; a packet for
//! a connection that is gone is dropped and counted (`no_connection`), never sent to another; a
//! packet for a connection whose send queue is full is dropped and counted (`tx_full`), so that no
//! connection holds up another; a stage hears that a connection opened before its first packet, and
//! that it is over after its last.

mod changes;
mod early;
#[cfg(test)]
mod model;
mod operations;
mod receiving;
mod sending;
mod table;
mod untold;

use std::mem;
use std::sync::Arc;

use verbline_mem::ConnectionId;
use verbline_verbs::{Completion, WrKind};

use crate::connection::acceptor::ConnectionPeer;
use crate::connection::cm_mailbox::{CmMailbox, TAKEN_MAX, ToLcore};
use crate::connection::event::ConnectionChange;
use crate::connection::port_qp::PortQp;
use crate::ports::context::LcoreContext;
pub(crate) use crate::ports::multi_port::receiving::ManyReceiving;
pub(crate) use crate::ports::multi_port::sending::{ManySending, signal_every};
use crate::ports::multi_port::table::QpnTable;
use crate::ports::multi_port::untold::Untold;
use crate::stats::clock::Tick;
use crate::stats::connection_counters::ConnectionsStats;
use crate::stats::counter::Shared;
use crate::stats::counters::PortStats;

/// A port with many connections.
#[derive(Debug)]
pub(crate) struct MultiPort {
    pub(crate) name: String,
    /// Its place among the ports of the plan.
    pub(crate) index: u16,
    pub(crate) receiving: Option<ManyReceiving>,
    pub(crate) sending: Option<ManySending>,
    /// Packets without a connection go to each connection in turn.
    any: bool,
    slots: Box<[Slot]>,
    by_qpn: QpnTable,
    /// The slots that are open.
    open: Vec<u16>,
    /// Changes that the stages must still be told.
    changes: Untold,
    /// Connections that a stage wants closed at the end of the turn.
    closes: Vec<ConnectionId>,
    /// Connections that the cm thread no longer waits for: they are released as they are, once the
    /// completion queue was empty.
    forced: Vec<ConnectionId>,
    /// Messages taken from the mailbox; empty between turns.
    taken: Vec<ToLcore>,
    mailbox: Arc<CmMailbox>,
    pub(crate) stats: Shared<PortStats>,
    counts: Shared<ConnectionsStats>,
}

/// A slot: the place of one connection at a time.
#[derive(Debug, Default)]
struct Slot {
    state: State,
    connection: Option<ConnectionId>,
    qpn: u32,
    qp: Option<Box<PortQp>>,
    /// Made by the cm thread, and given back to it.
    peer: Option<Box<ConnectionPeer>>,
    /// Its index in [`MultiPort::open`].
    open_at: usize,
    /// The stages know of it.
    is_told: bool,
    /// The reason of a failure that came while the cm thread had the queue pair.
    failed_early: Option<&'static str>,
    /// The reason why the connection is over.
    over: Option<ConnectionChange>,
    /// For its own receive queue: receives short of its depth, and whether the slot is among
    /// [`ManyReceiving::hungry`].
    missing: usize,
    is_hungry: bool,
    close_asked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    /// Its queue pair is with the cm thread, and may receive.
    Expected,
    Open,
    /// Its queue pair is in the error state, and completions are still to come.
    Closing,
}

/// The parts of a [`MultiPort`].
#[derive(Debug)]
pub(crate) struct MultiPortSpec {
    pub(crate) name: String,
    pub(crate) index: u16,
    pub(crate) connections: usize,
    pub(crate) receiving: Option<ManyReceiving>,
    pub(crate) sending: Option<ManySending>,
    pub(crate) any: bool,
    pub(crate) mailbox: Arc<CmMailbox>,
    pub(crate) stats: Shared<PortStats>,
    pub(crate) counts: Shared<ConnectionsStats>,
}

/// Returns a connection's slot, unless it is another connection's by now.
#[inline]
fn slot_of(slots: &[Slot], connection: ConnectionId) -> Option<&Slot> {
    slots.get(connection.slot()).filter(|slot| slot.connection == Some(connection))
}

impl MultiPort {
    pub(crate) fn new(spec: MultiPortSpec) -> MultiPort {
        let MultiPortSpec { name, index, connections, receiving, sending, any, mailbox, stats, counts } = spec;
        MultiPort {
            name,
            index,
            receiving,
            sending,
            any,
            slots: (0..connections).map(|_| Slot::default()).collect(),
            by_qpn: QpnTable::new(connections),
            open: Vec::with_capacity(connections),
            changes: Untold::new(connections),
            closes: Vec::with_capacity(connections),
            forced: Vec::with_capacity(connections),
            taken: Vec::with_capacity(TAKEN_MAX),
            mailbox,
            stats,
            counts,
        }
    }

    /// Takes the first completion, which is of this port, and the following ones that belong to its
    /// run. Returns the number taken, at least one.
    pub(crate) fn complete_run(&mut self, completions: &[Completion], ctx: &mut LcoreContext) -> usize {
        let first = &completions[0];
        match first.kind() {
            WrKind::SrqRecv => return self.received_run(completions, ctx),
            WrKind::Recv => self.received_own(first, ctx),
            WrKind::Send => self.sent(first, &mut ctx.sinks),
            WrKind::Op => self.operated(first, &mut ctx.sinks),
        }
        1
    }

    /// Sends pending packets, closes connections for stages, and refills the receive queues.
    /// Returns true if it moved something.
    pub(crate) fn work(&mut self, ctx: &mut LcoreContext) -> bool {
        let flushed = self.flush(ctx);
        let closed = !self.closes.is_empty();
        if closed {
            self.close_asked(&mut ctx.sinks);
        }
        flushed | closed | self.refill_if_due(ctx)
    }

    /// Whether the port has nothing to do in the next turn unless something arrives or is sent.
    pub(crate) fn is_settled(&self, ctx: &LcoreContext) -> bool {
        let sent = self.sending.as_ref().is_none_or(|sending| sending.half.is_settled(&ctx.sinks));
        sent && self.receiving.as_ref().is_none_or(ManyReceiving::is_settled)
    }

    /// Returns when the port needs a turn even if nothing arrives.
    pub(crate) fn retry_ns(&self) -> Option<Tick> {
        self.receiving.as_ref().and_then(|receiving| receiving.queue.retry_ns)
    }

    /// Returns the sink that gathers for it.
    pub(crate) fn sink(&self) -> Option<usize> {
        self.sending.as_ref().map(|sending| sending.half.sink)
    }

    /// Returns the slot of an open connection.
    #[inline]
    fn open_slot(&self, connection: ConnectionId) -> Option<usize> {
        self.find(connection, State::Open)
    }

    /// Returns the number of packets that a connection takes now; 0 if it is not open.
    pub(crate) fn room_to(&self, connection: ConnectionId) -> usize {
        let (Some(at), Some(sending)) = (self.open_slot(connection), &self.sending) else { return 0 };
        let slot = &self.slots[at];
        slot.qp.as_ref().map_or(0, |qp| sending.room_of(qp))
    }

    /// Returns a connection's peer; `None` if the stages know that it is over.
    pub(crate) fn peer(&self, connection: ConnectionId) -> Option<&ConnectionPeer> {
        if let Some(slot) = slot_of(&self.slots, connection) {
            return slot.peer.as_deref();
        }
        self.changes.peer(connection)
    }

    /// Closes a connection at the end of the turn. Returns false if it is not open.
    pub(crate) fn close(&mut self, connection: ConnectionId) -> bool {
        let Some(at) = self.open_slot(connection) else { return false };
        if !mem::replace(&mut self.slots[at].close_asked, true) {
            // A turn in which nothing is sent may do no work.
            if self.closes.is_empty() {
                self.mailbox.call_again();
            }
            self.closes.push(connection);
        }
        true
    }
}
