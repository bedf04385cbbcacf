//! Answers commands. The response goes back in the packet of the capsule, behind the data if there
//! is any, as one list of work requests.

use verbline::engine::{DeclineReason, Operation};
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline::verbs::rdma::Remote;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::log::ErrorEntry;
use verbline_nvme::{Command, RESPONSE_BYTES, Response, Sgl, Status};

use crate::commands::{Answer, Data, Pending, Work};
use crate::namespace_table::Use;
use crate::port::HOST;
use crate::queue::Queue;
use crate::stage::{NO_PLACE, Target};
use crate::tag::Tag;

/// A response, without the fields that its queue adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) cid: u16,
    pub(crate) result: u64,
    pub(crate) status: Status,
    /// The key to invalidate at the host.
    pub(crate) key: Option<u32>,
}

impl Reply {
    pub(crate) fn of(command: &Command, status: Status) -> Reply {
        Reply { cid: command.cid, result: 0, status, key: command.sgl.invalidated_key() }
    }
}

/// The host's memory that its data goes to.
pub(crate) fn remote(sgl: Sgl) -> Option<Remote> {
    match sgl {
        Sgl::Keyed { addr, key, .. } => Some(Remote { addr, rkey: key }),
        Sgl::InCapsule { .. } => None,
    }
}

impl Target {
    /// Posts a response, with data in front of it. Both come back if there is no room, and are
    /// dropped if the host is gone.
    #[inline]
    fn post(
        &mut self,
        at: u16,
        mut capsule: Packet,
        command: &Command,
        answer: Answer,
        out: &mut Outputs<'_>,
    ) -> Result<(), (Packet, Answer)> {
        let operations = answer.operations();
        if !self.may_post(at, operations) {
            return Err((capsule, answer));
        }
        let Answer { result, status, data } = answer;
        let reply = Reply { result, ..Reply::of(command, status) };
        let Some(queue) = self.queues.get_mut(at).filter(|queue| queue.is_open) else {
            self.give_back(data.into_use());
            return Ok(());
        };
        let (connection, Some(sq_head)) = (queue.connection, write_response(queue, &mut capsule, reply)) else {
            out.close(queue.connection);
            self.give_back(data.into_use());
            return Ok(());
        };
        let send = match reply.key.filter(|_| self.rules.settings.remote_invalidate) {
            Some(key) => Operation::send_with_invalidate(capsule, key),
            None => Operation::send(capsule),
        };
        let send = send.over(connection).tag(Tag::Response.to_u64());
        let (write, of, to) = match data {
            Data::Nothing => (None, None, None),
            Data::Packet(packet, to) => (Some((Operation::write(packet, to), Tag::Response)), None, Some(to)),
            Data::Blocks(range, of, to) => {
                (Some((Operation::write(range, to), Tag::Blocks(of.place()))), Some((of, range)), Some(to))
            }
        };
        let posted = match write {
            None => out.operate(HOST, send).map_err(|no| (no.reason, None, no.operation)),
            Some((write, tag)) => {
                let write = write.over(connection).tag(tag.to_u64());
                out.operate_all(HOST, [write, send]).map_err(|no| {
                    let [write, send] = no.operation;
                    (no.reason, Some(write), send)
                })
            }
        };
        match posted {
            Ok(()) => {
                // From here on the operation holds the use.
                of.map(|(of, _)| of.into_place());
                self.posted(at, operations, sq_head);
                if !status.is_success() {
                    self.counters.failed.add(1);
                }
                Ok(())
            }
            Err((DeclineReason::Full, write, send)) => {
                let packet = write.and_then(|write| write.into_local().into_packet());
                let data = match (packet, of, to) {
                    (Some(packet), _, Some(to)) => Data::Packet(packet, to),
                    (None, Some((of, range)), Some(to)) => Data::Blocks(range, of, to),
                    _ => Data::Nothing,
                };
                match send.into_local().into_packet() {
                    Some(capsule) => Err((capsule, Answer { result, status, data })),
                    None => {
                        self.give_back(data.into_use());
                        Ok(())
                    }
                }
            }
            Err(_) => {
                // The connection has ended, as the stage will hear, or is closed here: a queue does
                // not go on with a command left unanswered.
                self.give_back(of.map(|(of, _)| of));
                out.close(connection);
                Ok(())
            }
        }
    }

    /// Answers a command that has no place among those in flight. If there is no room, it gets one
    /// and waits.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        at: u16,
        command: &Command,
        capsule: Packet,
        answer: Answer,
        out: &mut Outputs<'_>,
    ) {
        // Commands that wait already go first.
        let posted = match self.for_room.has(at) {
            true => Err((capsule, answer)),
            false => self.post(at, capsule, command, answer, out),
        };
        if let Err((capsule, answer)) = posted {
            let is_packet = matches!(answer.data, Data::Packet(..));
            let mut pending = Pending::new(at, *command, capsule, Work::Answer(answer));
            if is_packet {
                self.hold_packet(&mut pending);
            }
            self.counters.waited.add(1);
            if let Some(place) = self.hold(pending, out) {
                self.for_room.push(at, place, &mut self.links);
            }
        }
    }

    /// Like [`finish`](Self::finish), for a command whose answer is at most a packet.
    #[inline]
    pub(crate) fn reply(
        &mut self,
        at: u16,
        command: &Command,
        capsule: Packet,
        (result, status): (u64, Status),
        data: Option<(Packet, Remote)>,
        out: &mut Outputs<'_>,
    ) {
        let data = data.map_or(Data::Nothing, |(packet, to)| Data::Packet(packet, to));
        self.finish(at, command, capsule, Answer { result, status, data }, out);
    }

    /// Refuses a command that can't be carried out, and notes it in the error log.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        at: u16,
        capsule: Packet,
        command: &Command,
        status: Status,
        out: &mut Outputs<'_>,
    ) {
        self.note(at, command, status, ReadWrite::of(command).slba);
        self.reply(at, command, capsule, (0, status), None, out);
    }

    /// Like [`refuse`](Self::refuse), unless another lcore has ended the controller meanwhile.
    #[cold]
    pub(crate) fn refuse_unless_over(
        &mut self,
        at: u16,
        capsule: Packet,
        command: &Command,
        status: Status,
        out: &mut Outputs<'_>,
    ) {
        match self.queues.get(at).filter(|queue| queue.is_over()).map(|queue| queue.connection) {
            Some(connection) => self.leave_unanswered(connection, capsule, out),
            None => self.refuse(at, capsule, command, status, out),
        }
    }

    /// Notes a failed command in the error log, with its first wrong block. Queues whose hosts
    /// still have to authenticate are left out.
    pub(crate) fn note(&self, at: u16, command: &Command, status: Status, lba: u64) {
        let Some(queue) = self.queues.get(at) else { return };
        let Some(controller) = queue.controller.as_ref().filter(|_| queue.seat.is_some()) else { return };
        controller.note(ErrorEntry {
            count: 0,
            sq_id: queue.qid,
            cid: command.cid,
            status_field: status.field(),
            location: u16::MAX,
            lba,
            nsid: command.nsid,
        });
    }

    /// Gives a command a place among those in flight. Its queue is closed if there is none: each
    /// command gets an answer, or its host sees the queue end.
    pub(crate) fn hold(&mut self, pending: Pending, out: &mut Outputs<'_>) -> Option<u32> {
        let (at, cid) = (pending.queue, pending.command.cid);
        match self.commands.add(pending) {
            Ok(place) => {
                if let Some(queue) = self.queues.get_mut(at) {
                    queue.cids.push(cid);
                }
                Some(place)
            }
            Err(mut pending) => {
                self.give_back_packets(&mut pending);
                self.give_back(pending.work.into_use());
                if let Some(queue) = self.queues.get(at) {
                    tracing::error!(queue = queue.qid, "a queue is closed: there is no place for its command");
                    out.close(queue.connection);
                }
                out.drop(pending.capsule, NO_PLACE);
                None
            }
        }
    }

    /// Ends a command that was taken out of those in flight. A closed queue ends with its last
    /// command.
    pub(crate) fn forget(&mut self, place: u32, mut pending: Pending) {
        let at = pending.queue;
        self.commands.give_up(place);
        self.give_back_packets(&mut pending);
        if let Some(queue) = self.queues.get_mut(at)
            && let Some(index) = queue.cids.iter().position(|cid| *cid == pending.command.cid)
        {
            queue.cids.swap_remove(index);
        }
        self.give_back(pending.work.into_use());
        self.end_queue(at);
    }

    /// Answers a command in flight; the command waits if there is no room.
    pub(crate) fn answer(&mut self, place: u32, mut pending: Pending, answer: Answer, out: &mut Outputs<'_>) {
        // The command no longer needs its namespace, unless its answer sends the blocks.
        self.give_back(std::mem::replace(&mut pending.work, Work::Event).into_use());
        if self.for_room.has(pending.queue) {
            return self.wait_for_room(place, Pending { work: Work::Answer(answer), ..pending });
        }
        self.answer_now(place, pending, answer, out);
    }

    /// Like [`answer`](Self::answer), for a command whose turn it is.
    pub(crate) fn answer_now(&mut self, place: u32, pending: Pending, answer: Answer, out: &mut Outputs<'_>) {
        let Pending { queue: at, command, capsule, wants, holds, .. } = pending;
        match self.post(at, capsule, &command, answer, out) {
            Ok(()) => self.forget_answered(place, at, command.cid, holds),
            Err((capsule, answer)) => {
                let work = Work::Answer(answer);
                self.wait_for_room(place, Pending { queue: at, command, capsule, wants, holds, work });
            }
        }
    }

    /// Ends a command that was answered. The host may use its identifier again as soon as it has
    /// the answer.
    pub(crate) fn forget_answered(&mut self, place: u32, at: u16, cid: u16, holds: u8) {
        self.commands.give_up(place);
        if let Some(queue) = self.queues.get_mut(at) {
            self.packets.give_back(&mut queue.packets, holds.into());
            self.packets_freed += u32::from(holds);
            if let Some(index) = queue.cids.iter().position(|other| *other == cid) {
                queue.cids.swap_remove(index);
            }
        }
        self.end_queue(at);
    }

    /// Fails a command in flight: notes the error and answers.
    pub(crate) fn fail(&mut self, place: u32, pending: Pending, status: Status, out: &mut Outputs<'_>) {
        let lba = ReadWrite::of(&pending.command).slba;
        self.fail_at(place, pending, (status, lba), out);
    }

    /// Like [`fail`](Self::fail), with the wrong block.
    pub(crate) fn fail_at(
        &mut self,
        place: u32,
        pending: Pending,
        (status, lba): (Status, u64),
        out: &mut Outputs<'_>,
    ) {
        self.note(pending.queue, &pending.command, status, lba);
        self.answer(place, pending, Answer::of(status), out);
    }

    #[inline]
    pub(crate) fn give_back(&mut self, of: Option<Use>) {
        if let Some(of) = of {
            self.spaces.give_back(of);
        }
    }
}

impl Pending {
    /// A command that has just arrived.
    pub(crate) fn new(queue: u16, command: Command, capsule: Packet, work: Work) -> Pending {
        Pending { queue, command, capsule, wants: 0, holds: 0, work }
    }
}

/// Writes a response into the packet of its command, with the queue's new head, which is returned.
/// `None` if the packet is too short; packets of the port are not.
#[inline]
pub(crate) fn write_response(queue: &Queue, capsule: &mut Packet, reply: Reply) -> Option<u16> {
    let sq_head = (queue.sq_head + 1) % queue.sq_size.max(1);
    let response = Response { result: reply.result, sq_head, sq_id: queue.qid, cid: reply.cid, status: reply.status };
    if !capsule.reset_to(RESPONSE_BYTES) {
        return None;
    }
    capsule.data_mut().copy_from_slice(&response.to_bytes());
    Some(sq_head)
}
