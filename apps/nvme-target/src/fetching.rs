//! Fetches data from hosts: RDMA READs into a packet, or straight to where the blocks stay.

use verbline::engine::{DeclineReason, Done, Local, Operation, OperationKind};
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::connect::ConnectData;
use verbline_nvme::{Command, Status};

use crate::commands::{Answer, Pending, Purpose, Work};
use crate::fabrics::in_capsule;
use crate::namespace_table::Use;
use crate::pieces::Piece;
use crate::port::HOST;
use crate::stage::Target;
use crate::tag::Tag;

impl Target {
    /// Fetches the data of a fabrics command from the host's memory.
    pub(crate) fn fetch_for(
        &mut self,
        at: u16,
        command: Command,
        capsule: Packet,
        purpose: Purpose,
        out: &mut Outputs<'_>,
    ) {
        let pending = Pending { wants: 1, ..Pending::new(at, command, capsule, Work::Place(purpose)) };
        if let Some(place) = self.hold(pending, out) {
            self.advance(place, out);
        }
    }

    /// Allocates a packet for the host's data; the command waits if there is none.
    pub(crate) fn place_data(&mut self, place: u32, mut pending: Pending, out: &mut Outputs<'_>) {
        let Some(mut packet) = self.packet_for(&mut pending, out) else {
            return self.wait_for_packet(place, pending);
        };
        let Work::Place(mut purpose) = pending.work else { return self.commands.put(place, pending) };
        let len = match &mut purpose {
            Purpose::Io(io) => self.begin_piece(&pending.command, io).len,
            _ => pending.command.sgl.len_bytes(),
        };
        if !packet.reset_to(len) {
            let pending = Pending { work: Work::Place(purpose), ..pending };
            return self.fail(place, pending, Status::INTERNAL_ERROR, out);
        }
        let work = Work::Fetch(purpose, Local::from(packet));
        self.fetch(place, Pending { work, ..pending }, out);
    }

    /// Copies the data out of the capsule, since a capsule is a receive buffer. It is the only
    /// copy, for stores that can't take the packet as it is.
    pub(crate) fn copy_data(&mut self, place: u32, mut pending: Pending, out: &mut Outputs<'_>) {
        let Some(mut packet) = self.packet_for(&mut pending, out) else {
            return self.wait_for_packet(place, pending);
        };
        let Work::Copy(mut io) = pending.work else { return self.commands.put(place, pending) };
        let Piece { offset, len } = self.begin_piece(&pending.command, &mut io);
        // The descriptor was checked to stay within the capsule.
        let data = in_capsule(&pending.command, &pending.capsule).ok().and_then(|data| data.get(offset..offset + len));
        let is_copied = data.is_some_and(|data| packet.fill(data));
        if !is_copied {
            let status = Status::INVALID_FIELD.do_not_retry();
            return self.fail(place, Pending { work: Work::Copy(io), ..pending }, status, out);
        }
        io.data = Some(packet);
        self.advance_with(place, Pending { work: Work::Store(io), ..pending }, out);
    }

    /// Reads the host's data; the command waits unchanged if there is no room.
    pub(crate) fn fetch(&mut self, place: u32, pending: Pending, out: &mut Outputs<'_>) {
        let at = pending.queue;
        match self.for_room.has(at) {
            true => self.wait_for_room(place, pending),
            false => self.fetch_now(place, pending, out),
        }
    }

    /// Like [`fetch`](Self::fetch), for a command whose turn it is.
    pub(crate) fn fetch_now(&mut self, place: u32, pending: Pending, out: &mut Outputs<'_>) {
        let at = pending.queue;
        if !self.may_post(at, 1) {
            return self.wait_for_room(place, pending);
        }
        let connection = self.queues.get(at).filter(|queue| queue.is_open).map(|queue| queue.connection);
        let from = match &pending.work {
            Work::Fetch(purpose, _) => self.remote_of(&pending.command, purpose),
            _ => None,
        };
        let (Some(connection), Some(from)) = (connection, from) else { return self.forget(place, pending) };
        let Pending { queue, command, capsule, wants, holds, work } = pending;
        let again = |work| Pending { queue, command, capsule, wants, holds, work };
        let Work::Fetch(purpose, memory) = work else { return self.commands.put(place, again(work)) };
        let range = match &memory {
            Local::Part(range) => Some(*range),
            _ => None,
        };
        let read = Operation::read(memory, from).over(connection).tag(Tag::Fetch(place).to_u64());
        match out.operate(HOST, read) {
            Ok(()) => {
                self.took_room(at, 1);
                self.commands.put(place, again(Work::Fetching(purpose)));
            }
            Err(no) if no.reason == DeclineReason::Full => {
                let memory = range.map_or_else(|| no.operation.into_local(), Local::from);
                self.wait_for_room(place, again(Work::Fetch(purpose, memory)));
            }
            Err(_) => {
                // As for a response that can't be posted.
                out.close(connection);
                self.forget(place, again(Work::Fetching(purpose)));
            }
        }
    }

    /// Handles a finished operation.
    pub(crate) fn operated(&mut self, done: Done, out: &mut Outputs<'_>) {
        let at = done.connection.and_then(|connection| self.queues.find_any(connection));
        if let Some(queue) = at.and_then(|at| self.queues.get_mut(at)) {
            queue.done = queue.done.wrapping_add(1);
            self.room.give_back(&mut queue.operations, 1);
        }
        match Tag::from_u64(done.tag) {
            Tag::Fetch(place) if done.kind == OperationKind::Read => self.fetched(place, at, done, out),
            Tag::Blocks(place) => self.spaces.give_back(Use::of_done(place)),
            Tag::Signed(_) if done.kind == OperationKind::Respond => {
                if let Some(at) = at {
                    self.responded(at, done, out);
                }
            }
            Tag::Fetch(_) | Tag::Signed(_) | Tag::Response => {}
        }
        if let Some(at) = at {
            self.end_queue(at);
        }
    }

    /// Handles the end of a READ of the host's data.
    fn fetched(&mut self, place: u32, at: Option<u16>, done: Done, out: &mut Outputs<'_>) {
        let Some(pending) = self.commands.take(place) else { return };
        let queue = at.and_then(|at| self.queues.get(at)).filter(|queue| queue.is_open);
        let Some(queue) = queue.filter(|_| done.result.is_ok()) else {
            // The connection has ended, or is closed here: there is no host to answer.
            done.connection.map(|connection| out.close(connection));
            return self.forget(place, pending);
        };
        let _ = queue;
        let Pending { queue: at, command, capsule, wants, holds, work } = pending;
        let again = |work| Pending { queue: at, command, capsule, wants, holds, work };
        match (work, done.into_packet()) {
            (Work::Fetching(Purpose::Blocks(of)), _) => {
                self.counters.tally.moved(&command);
                let pending = again(Work::Fetching(Purpose::Blocks(of)));
                self.answer(place, pending, Answer::of(Status::SUCCESS), out);
            }
            (Work::Fetching(Purpose::Io(mut io)), Some(data)) => {
                io.data = Some(data);
                self.advance_with(place, again(Work::Store(io)), out);
            }
            (work @ Work::Fetching(Purpose::Connect), Some(data)) => {
                let (result, status) = self.connected(at, &command, ConnectData::read(data.data()), out);
                self.told(place, again(work), (result, status), out);
            }
            (work @ Work::Fetching(Purpose::Authentication), Some(data)) => {
                self.take_message(at, data.data(), out.now_ns());
                self.told(place, again(work), (0, Status::SUCCESS), out);
            }
            (work, _) => self.fail(place, again(work), Status::INTERNAL_ERROR, out),
        }
    }

    /// Answers a fabrics command whose data was fetched.
    fn told(&mut self, place: u32, pending: Pending, (result, status): (u64, Status), out: &mut Outputs<'_>) {
        if !status.is_success() {
            self.note(pending.queue, &pending.command, status, 0);
        }
        self.answer(place, pending, Answer { result, ..Answer::of(status) }, out);
    }
}
