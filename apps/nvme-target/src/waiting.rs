//! Commands waiting for room in the port's operations, for a packet, or for the store. Each
//! resource has its own list, in turn over the queues, which is served when some of the resource is
//! free.

use verbline::mem::Packet;
use verbline::prelude::*;

use crate::commands::{Pending, Work};
use crate::stage::Target;

impl Target {
    /// Whether a queue may post these operations now, from its own share or the spare part.
    #[inline]
    pub(crate) fn may_post(&self, at: u16, operations: u32) -> bool {
        self.queues.get(at).is_none_or(|queue| {
            queue.operations + operations <= self.depth_wr && self.room.allows(queue.operations, operations)
        })
    }

    /// Records that a queue posted operations.
    #[inline]
    pub(crate) fn took_room(&mut self, at: u16, operations: u32) {
        if let Some(queue) = self.queues.get_mut(at) {
            self.room.take(&mut queue.operations, operations);
        }
    }

    /// Records that a response was posted, with the queue's new head.
    #[inline]
    pub(crate) fn posted(&mut self, at: u16, operations: u32, sq_head: u16) {
        if let Some(queue) = self.queues.get_mut(at) {
            queue.sq_head = sq_head;
            self.room.take(&mut queue.operations, operations);
        }
    }

    /// Lets a command wait for room, unchanged.
    pub(crate) fn wait_for_room(&mut self, place: u32, pending: Pending) {
        self.counters.waited.add(1);
        let at = pending.queue;
        self.commands.put(place, pending);
        self.for_room.push(at, place, &mut self.links);
    }

    /// Lets a command wait for its packets.
    pub(crate) fn wait_for_packet(&mut self, place: u32, pending: Pending) {
        self.counters.waited.add(1);
        let at = pending.queue;
        self.commands.put(place, pending);
        self.for_packets.push(at, place, &mut self.links);
    }

    /// Allocates a packet of the stage's pool, if the command's queue may have all that the command
    /// wants.
    pub(crate) fn packet_for(&mut self, pending: &mut Pending, out: &mut Outputs<'_>) -> Option<Packet> {
        if pending.holds < pending.wants {
            let queue = self.queues.get_mut(pending.queue)?;
            let more = u32::from(pending.wants - pending.holds);
            if !self.packets.allows(queue.packets, more) {
                return None;
            }
            self.packets.take(&mut queue.packets, more);
            pending.holds = pending.wants;
        }
        out.alloc()
    }

    /// Whether a queue may have a packet for an immediate answer.
    pub(crate) fn may_have_packet(&self, at: u16) -> bool {
        self.queues.get(at).is_some_and(|queue| self.packets.allows(queue.packets, 1))
    }

    /// Charges the packet of an answer that could not go at once to its queue.
    pub(crate) fn hold_packet(&mut self, pending: &mut Pending) {
        if let Some(queue) = self.queues.get_mut(pending.queue) {
            self.packets.take(&mut queue.packets, 1);
            pending.holds = 1;
        }
    }

    /// Ends the charge for a command's packets: it no longer needs them, or they were sent.
    pub(crate) fn give_back_packets(&mut self, pending: &mut Pending) {
        let holds = std::mem::take(&mut pending.holds);
        if let Some(queue) = self.queues.get_mut(pending.queue).filter(|_| holds > 0) {
            self.packets.give_back(&mut queue.packets, holds.into());
            self.packets_freed += u32::from(holds);
        }
    }

    /// Takes the next step of a command.
    pub(crate) fn advance(&mut self, place: u32, out: &mut Outputs<'_>) {
        if let Some(pending) = self.commands.take(place) {
            self.advance_with(place, pending, out);
        }
    }

    pub(crate) fn advance_with(&mut self, place: u32, pending: Pending, out: &mut Outputs<'_>) {
        match &pending.work {
            Work::Place(_) => self.place_data(place, pending, out),
            Work::Copy(_) => self.copy_data(place, pending, out),
            Work::Fetch(..) => self.fetch(place, pending, out),
            Work::Piece(_) => self.send_piece(place, pending, out),
            Work::Store(io) => {
                let (at, space) = (pending.queue, io.of.place());
                self.commands.put(place, pending);
                if let Some(space) = self.spaces.at_mut(space) {
                    space.waiting.push(at, place, &mut self.links);
                }
                self.spaces.make_busy(space);
            }
            Work::Event
            | Work::Fetching(_)
            | Work::Storing(_)
            | Work::Pipeline(_)
            | Work::Leaving
            | Work::Answer(_) => self.commands.put(place, pending),
        }
    }

    /// Called when operations are done: commands waiting for room go on, one of each queue in turn.
    pub(crate) fn serve_room(&mut self, out: &mut Outputs<'_>) {
        let mut is_stuck = false;
        while !is_stuck {
            is_stuck = true;
            for _ in 0..self.for_room.queues() {
                let Some((at, place)) = self.for_room.pop(&mut self.links) else { return };
                let Some(pending) = self.commands.take(place) else { continue };
                if self.may_post(at, pending.work.operations()) {
                    is_stuck = false;
                    self.go_on(place, pending, out);
                } else {
                    self.commands.put(place, pending);
                    self.for_room.put_back(at, place, &mut self.links);
                }
            }
        }
    }

    fn go_on(&mut self, place: u32, pending: Pending, out: &mut Outputs<'_>) {
        match pending.work {
            Work::Answer(answer) => {
                let work = Work::Event;
                self.answer_now(place, Pending { work, ..pending }, answer, out);
            }
            Work::Pipeline(_) => self.pipeline_again(place, pending, out),
            Work::Piece(_) => self.send_piece_now(place, pending, out),
            _ => self.fetch_now(place, pending, out),
        }
    }

    /// Called when packets are free: as many commands go on as there are packets, and at least one
    /// of each queue, whose share may be free.
    fn serve_packets(&mut self, freed: u32, out: &mut Outputs<'_>) {
        for _ in 0..self.for_packets.queues().max(freed as usize) {
            let Some((_, place)) = self.for_packets.pop(&mut self.links) else { return };
            self.advance(place, out);
        }
    }

    /// Goes on with commands that wait for freed resources, hands the stores their requests, and
    /// takes the finished ones.
    #[inline]
    pub(crate) fn settle(&mut self, out: &mut Outputs<'_>) {
        if self.spaces.busy() > 0 {
            self.drive_stores(out);
        }
        let freed = std::mem::take(&mut self.packets_freed);
        if freed > 0 && !self.for_packets.is_empty() {
            self.serve_packets(freed, out);
        }
    }
}
