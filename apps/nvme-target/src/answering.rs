//! How commands are answered: the response goes back in the packet of the capsule, behind the data
//! if there is any, as one list of work requests.

use verbline::engine::{ConnectionId, DeclineReason, Done, Memory, Operation, OperationKind, Range};
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline::verbs::rdma::Remote;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::log::ErrorEntry;
use verbline_nvme::{Command, RESPONSE_BYTES, Response, Sgl, Status, opcode};

use crate::commands::{Pending, Step};
use crate::describe::HOST;
use crate::queue::{Queue, Queues};
use crate::signed::PIPELINED;
use crate::space::Space;
use crate::stage::Target;

/// The tag of operations that nothing waits for. A command's is its place, and one.
pub(crate) const NOTHING_WAITS: u64 = 0;

/// A response, but for what its queue adds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) cid: u16,
    pub(crate) result: u64,
    pub(crate) status: Status,
    /// The key that goes back with it.
    pub(crate) key: Option<u32>,
}

impl Reply {
    pub(crate) fn of(command: &Command, status: Status) -> Reply {
        Reply { cid: command.cid, result: 0, status, key: command.sgl.invalidated_key() }
    }
}

/// What found no room.
pub(crate) struct Blocked {
    capsule: Option<Packet>,
    data: Memory,
}

/// Where the host wants its data.
pub(crate) fn remote(sgl: Sgl) -> Option<Remote> {
    match sgl {
        Sgl::Keyed { addr, key, .. } => Some(Remote { addr, rkey: key }),
        Sgl::InCapsule { .. } => None,
    }
}

impl Target {
    /// Posts a response, with data in front of it. Nothing is done if the host is gone.
    #[inline]
    pub(crate) fn post(
        &mut self,
        at: u16,
        mut capsule: Packet,
        reply: Reply,
        data: Option<(Memory, Remote)>,
        out: &mut Outputs<'_>,
    ) -> Result<(), Blocked> {
        let Some(queue) = self.queues.get_mut(at).filter(|queue| queue.is_open) else { return Ok(()) };
        let Some(sq_head) = write_response(queue, &mut capsule, reply) else {
            out.close(queue.connection);
            return Ok(());
        };
        let send = match reply.key.filter(|_| self.rules.settings.remote_invalidate) {
            Some(key) => Operation::send_with_invalidate(capsule, key),
            None => Operation::send(capsule),
        };
        let send = send.over(queue.connection).tag(NOTHING_WAITS);
        let (posted, operations) = match data {
            None => (out.operate(HOST, send).map_err(|no| (no.reason, None, no.operation)), 1),
            Some((memory, to)) => {
                let write = Operation::write(memory, to).over(queue.connection).tag(NOTHING_WAITS);
                let posted = out.operate_all(HOST, [write, send]).map_err(|no| {
                    let [write, send] = no.operation;
                    (no.reason, Some(write), send)
                });
                (posted, 2)
            }
        };
        match posted {
            Ok(()) => {
                queue.sq_head = sq_head;
                queue.operations += operations;
                if !reply.status.is_success() {
                    self.counters.failed.add(1);
                }
                Ok(())
            }
            Err((DeclineReason::Full, write, send)) => {
                self.counters.waited.add(1);
                let data = write.map_or(Memory::Empty, Operation::into_memory);
                Err(Blocked { capsule: send.into_memory().into_packet(), data })
            }
            // The connection is over: the stage hears of it.
            Err(_) => Ok(()),
        }
    }

    /// Answers a command that has no place among those under way; it gets one if there is no room.
    #[inline]
    pub(crate) fn reply(
        &mut self,
        at: u16,
        command: &Command,
        capsule: Packet,
        (result, status): (u64, Status),
        data: Option<(Memory, Remote)>,
        out: &mut Outputs<'_>,
    ) {
        let reply = Reply { result, ..Reply::of(command, status) };
        if let Err(Blocked { capsule, data }) = self.post(at, capsule, reply, data, out) {
            let pending = Pending {
                capsule,
                data: data.into_packet(),
                step: Step::Answer(status),
                result,
                ..Pending::new(at, *command)
            };
            if let Some(place) = self.hold(pending) {
                self.blocked.push_back(place);
            }
        }
    }

    /// Answers a command that can't be carried out, and notes it in the error log.
    #[cold]
    pub(crate) fn refuse(
        &mut self,
        at: u16,
        capsule: Packet,
        command: &Command,
        status: Status,
        out: &mut Outputs<'_>,
    ) {
        self.note(at, command, status, slba_of(command));
        self.reply(at, command, capsule, (0, status), None, out);
    }

    /// Notes a command that failed in the error log, with the first block that is wrong.
    pub(crate) fn note(&self, at: u16, command: &Command, status: Status, lba: u64) {
        let Some(queue) = self.queues.get(at) else { return };
        let Some(controller) = &queue.controller else { return };
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

    /// Gives a command a place among those under way.
    pub(crate) fn hold(&mut self, pending: Pending) -> Option<u32> {
        let (at, cid) = (pending.queue, pending.command.cid);
        let place = self.commands.add(pending)?;
        if let Some(queue) = self.queues.get_mut(at) {
            queue.cids.push(cid);
        }
        Some(place)
    }

    /// A command is no longer under way.
    pub(crate) fn forget(&mut self, place: u32) -> Option<Pending> {
        let pending = self.commands.remove(place)?;
        if let Some(queue) = self.queues.get_mut(pending.queue)
            && let Some(index) = queue.cids.iter().position(|cid| *cid == pending.command.cid)
        {
            queue.cids.swap_remove(index);
        }
        self.blocked.retain(|blocked| *blocked != place);
        Some(pending)
    }

    /// Does what is next for a command.
    pub(crate) fn advance(&mut self, place: u32, out: &mut Outputs<'_>) {
        match self.commands.get_mut(place).map(|pending| pending.step) {
            Some(Step::Fetch) => self.fetch(place, out),
            Some(Step::Store) => self.ask_store(place, out),
            Some(Step::Pipeline) => self.pipeline_again(place, out),
            Some(Step::Answer(status)) => self.answer(place, status, out),
            Some(Step::Fetching | Step::Storing | Step::Held) | None => {}
        }
    }

    /// Goes on with a command at this step.
    pub(crate) fn go_on(&mut self, place: u32, step: Step, out: &mut Outputs<'_>) {
        if let Some(pending) = self.commands.get_mut(place) {
            pending.step = step;
            self.advance(place, out);
        }
    }

    fn answer(&mut self, place: u32, status: Status, out: &mut Outputs<'_>) {
        let Some(mut pending) = self.forget(place) else { return };
        let (at, command) = (pending.queue, pending.command);
        if !status.is_success() {
            self.note(at, &command, status, pending.wrong_lba.unwrap_or_else(|| slba_of(&command)));
        }
        if let Some(capsule) = pending.capsule.take() {
            let data = self.data_of(&mut pending, status);
            self.reply(at, &command, capsule, (pending.result, status), data, out);
        }
        self.end_queue(at);
    }

    /// What goes to the host in front of the response.
    fn data_of(&self, pending: &mut Pending, status: Status) -> Option<(Memory, Remote)> {
        let command = &pending.command;
        let brings = self.queues.get(pending.queue).is_some_and(|queue| match queue.qid {
            _ if command.opcode == opcode::fabrics::OPCODE => {
                command.nsid as u8 == opcode::fabrics::AUTHENTICATION_RECEIVE
            }
            0 => [opcode::admin::IDENTIFY, opcode::admin::GET_LOG_PAGE].contains(&command.opcode),
            _ => command.opcode == opcode::io::READ,
        });
        if !brings || !status.is_success() {
            return None;
        }
        let memory = match pending.data.take() {
            Some(packet) => Memory::from(packet),
            None => Memory::from(direct_of(&self.spaces, &self.queues, pending)?),
        };
        Some((memory, remote(command.sgl)?))
    }

    /// Reads the host's data, to where it stays if that can be reached.
    fn fetch(&mut self, place: u32, out: &mut Outputs<'_>) {
        let Some(pending) = self.commands.get_mut(place) else { return };
        let (at, sgl) = (pending.queue, pending.command.sgl);
        let (mut data, len) = (pending.data.take(), sgl.len_bytes());
        let Some(connection) = self.queues.get(at).filter(|queue| queue.is_open).map(|queue| queue.connection) else {
            self.forget(place);
            return self.end_queue(at);
        };
        let direct = self.commands.get_mut(place).and_then(|pending| direct_of(&self.spaces, &self.queues, pending));
        let memory = match direct {
            Some(range) => Memory::from(range),
            None => {
                let Some(mut packet) = data.take().or_else(|| out.alloc()) else { return self.wait(place) };
                if !packet.reset_to(len) {
                    return self.go_on(place, Step::Answer(Status::INTERNAL_ERROR), out);
                }
                Memory::from(packet)
            }
        };
        let Some(from) = remote(sgl) else { return self.go_on(place, Step::Answer(Status::INTERNAL_ERROR), out) };
        let read = Operation::read(memory, from).over(connection).tag(u64::from(place) + 1);
        match out.operate(HOST, read) {
            Ok(()) => {
                if let Some(queue) = self.queues.get_mut(at) {
                    queue.operations += 1;
                }
                if let Some(pending) = self.commands.get_mut(place) {
                    pending.step = Step::Fetching;
                }
            }
            Err(no) if no.reason == DeclineReason::Full => {
                if let Some(pending) = self.commands.get_mut(place) {
                    pending.data = no.operation.into_memory().into_packet();
                }
                self.wait(place);
            }
            Err(_) => {
                self.forget(place);
                self.end_queue(at);
            }
        }
    }

    /// A command waits for room, or for a packet.
    pub(crate) fn wait(&mut self, place: u32) {
        self.counters.waited.add(1);
        self.blocked.push_back(place);
    }

    /// An operation is done.
    pub(crate) fn operated(&mut self, done: Done, out: &mut Outputs<'_>) {
        let at = done.connection.and_then(|connection: ConnectionId| self.queues.find_any(connection));
        if let Some(queue) = at.and_then(|at| self.queues.get_mut(at)) {
            queue.operations = queue.operations.saturating_sub(1);
        }
        if done.kind == OperationKind::Respond && done.tag & PIPELINED != 0 {
            if let Some(at) = at {
                self.responded(at, done, out);
            }
        } else if done.kind == OperationKind::Read && done.tag != NOTHING_WAITS {
            let place = (done.tag - 1) as u32;
            let is_open = at.and_then(|at| self.queues.get(at)).is_some_and(|queue| queue.is_open);
            if done.result.is_ok() && is_open {
                if let Some(pending) = self.commands.get_mut(place) {
                    pending.data = done.packet;
                }
                self.fetched(place, out);
            } else {
                // Its connection is over, or will be: there is nobody to answer.
                self.forget(place);
            }
        }
        if let Some(at) = at {
            self.end_queue(at);
        }
    }

    /// The host's data is here.
    fn fetched(&mut self, place: u32, out: &mut Outputs<'_>) {
        let Some(pending) = self.commands.get_mut(place) else { return };
        match (pending.command.opcode, pending.command.nsid as u8) {
            (opcode::fabrics::OPCODE, opcode::fabrics::AUTHENTICATION_SEND) => return self.auth_fetched(place, out),
            (opcode::fabrics::OPCODE, _) => return self.connect_fetched(place, out),
            _ => {}
        }
        let is_there = pending.command.opcode == opcode::io::WRITE && pending.data.is_none();
        let step = if is_there { Step::Answer(Status::SUCCESS) } else { Step::Store };
        self.go_on(place, step, out);
    }

    /// Tries again what waited, asks the stores, and takes what they have done.
    #[inline]
    pub(crate) fn settle(&mut self, out: &mut Outputs<'_>) {
        for _ in 0..self.blocked.len() {
            let Some(place) = self.blocked.pop_front() else { break };
            self.advance(place, out);
        }
        self.drive_stores(out);
    }
}

/// Writes a response into the packet of its command: how far the queue was read is in it, and is
/// given. `None` if it has no room, which packets of the port have.
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

/// The first block of a command that names blocks.
fn slba_of(command: &Command) -> u64 {
    ReadWrite::of(command).slba
}

/// Where the blocks of a Read or Write lie, if an operation can reach them there.
fn direct_of(spaces: &Option<Vec<Space>>, queues: &Queues, pending: &Pending) -> Option<Range> {
    let is_admin = queues.get(pending.queue).is_none_or(|queue| queue.qid == 0);
    let moves = matches!(pending.command.opcode, opcode::io::READ | opcode::io::WRITE);
    let space = spaces.as_ref()?.get(usize::from(pending.space)).filter(|_| moves && !is_admin)?;
    space.direct_of(&pending.command)
}
