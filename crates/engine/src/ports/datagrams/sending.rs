//! Sending datagrams through a port with several peers.

use std::mem;

use verbline_mem::{Batch, Packet};
use verbline_verbs::datagram::DestinationId;
use verbline_verbs::{SendOptions, SendOutcome};

use super::{Datagrams, Way};
use crate::connection::port_qp::PortQp;
use crate::operations::send_with::options_of;
use crate::ports::posting;
use crate::stats::counters::PortStats;
use crate::stats::drop_reason::DropReason;

impl Datagrams {
    /// Moves pending packets to `ready`, as far as there is room, or to `parked` if they wait for
    /// their address handles. `refuse` takes each packet that can't be sent, and the reason.
    pub(in crate::ports) fn sort(&mut self, pending: &mut Batch, refuse: &mut impl FnMut(Packet, DropReason)) {
        // Packets sorted before go first, and are sorted again: their peer may have lost its place
        // since.
        let mut work = mem::replace(&mut self.work, Batch::with_capacity(0));
        work.swap(&mut self.ready);
        work.drain_front(work.len()).for_each(|packet| self.sort_one(packet, refuse));
        if mem::take(&mut self.is_made) {
            work.swap(&mut self.parked);
            work.drain_front(work.len()).for_each(|packet| self.sort_one(packet, refuse));
        }
        self.work = work;
        while !self.ready.is_full()
            && let Some(packet) = pending.take_first()
        {
            self.sort_one(packet, refuse);
        }
    }

    fn sort_one(&mut self, packet: Packet, refuse: &mut impl FnMut(Packet, DropReason)) {
        let way = self.way(&packet);
        let refused = match way {
            Way::None => return refuse(packet, DropReason::NoConnection),
            Way::Known(_) => self.ready.push(packet).or_else(|packet| {
                // In the next turn, behind the packets that have room.
                self.is_made = true;
                self.parked.push(packet)
            }),
            Way::Asked => self.parked.push(packet),
        };
        if let Err(packet) = refused {
            refuse(packet, DropReason::TxFull);
        }
    }

    /// Posts ready packets, each to its peer and with its options.
    pub(in crate::ports) fn post(&mut self, qp: &mut PortQp, signal_ends: bool, stats: &PortStats) -> SendOutcome {
        let mut ready = mem::replace(&mut self.ready, Batch::with_capacity(0));
        let outcome = posting::send_with(qp, &mut ready, signal_ends, stats, |packet| self.options(packet));
        self.ready = ready;
        outcome
    }

    /// Returns the ready packets, for a capture or to be refused.
    pub(in crate::ports) fn ready(&mut self) -> &mut Batch {
        &mut self.ready
    }

    /// Gives up all packets that wait here, and passes each to `each`.
    pub(in crate::ports) fn give_up(&mut self, mut each: impl FnMut(Packet)) {
        self.is_made = false;
        for batch in [&mut self.ready, &mut self.parked] {
            batch.drain_front(batch.len()).for_each(&mut each);
        }
    }

    /// Returns the send options and the destination of a packet that was sorted in this turn.
    fn options(&self, packet: &Packet) -> SendOptions {
        let destination = match self.way(packet) {
            Way::Known(id) => id,
            Way::Asked | Way::None => DestinationId::default(),
        };
        let options = if self.asks { options_of(packet) } else { SendOptions::default() };
        SendOptions { destination, ..options }
    }
}
