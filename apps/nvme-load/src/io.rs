//! Reads, writes and flushes: their begin, and the check of their responses.

use verbline::engine::{ConnectionId, Done, KeptWindow, Operation, invalidated_key};
use verbline::mem::Packet;
use verbline::plan::Rights;
use verbline::prelude::*;
use verbline::verbs::rdma::Remote;
use verbline_nvme::{COMMAND_BYTES, Command, Response, Sgl, opcode};

use crate::blocks::Mismatch;
use crate::oracle::{FIRST, May};
use crate::pattern::{self, Stamp};
use crate::queue::{Pending, State, Task};
use crate::results::{READ, WRITE};
use crate::settings::MemoryKeys;
use crate::stage::{IO, Initiator, PAGE_BYTES};

/// The number of blocks tried in search of one that is not busy.
const LOOKS: usize = 16;
/// Filling of a read's memory, in front of each part, until its data comes. No block has it there,
/// and no protection information equals it.
const SPOILED: u64 = 0x5555_5555_5555_5555;
const SPOILED_EVERY_BYTES: usize = 512;

impl Initiator {
    /// Begins commands until every queue is full, once a turn. False if some could not begin.
    pub(crate) fn begin_all(&mut self, out: &mut Outputs<'_>) -> bool {
        let mut are_full = true;
        for index in 0..self.queues.len() {
            let Some(connection) = self.queues[index].connection.filter(|_| self.queues[index].state == State::Ready)
            else {
                continue;
            };
            // The port does not subtract the commands of this turn from its room.
            let mut room = out.room_to(connection);
            while room > 0 && self.begin(index, connection, out) {
                room -= 1;
            }
            are_full &= self.queues[index].next_slot().is_none();
        }
        are_full
    }

    /// Begins a command on a queue. False if none can begin now.
    fn begin(&mut self, index: usize, connection: ConnectionId, out: &mut Outputs<'_>) -> bool {
        let Some(slot) = self.queues[index].next_slot().filter(|_| out.room(IO) > 0) else { return false };
        let Some(mut packet) = out.alloc() else { return false };
        let Some(task) = self.choose() else { return false };
        let in_capsule = matches!(task, Task::Write { .. })
            && self.settings.in_capsule
            && self.handshake.shape.wire_bytes() + COMMAND_BYTES
                <= (self.handshake.capsule_bytes as usize).min(packet.capacity());
        self.prepare(task, self.offset_of(index, slot), in_capsule, &mut packet);
        let pending = Pending { task, began_ns: out.now_ns(), key: None };
        let Some(cid) = self.queues[index].begin(pending) else { return false };
        let reaches = match task {
            Task::Read { .. } => true,
            Task::Write { .. } => !in_capsule,
            Task::Flush | Task::Connect | Task::Authenticate(_) => false,
        };
        packet.set_connection(Some(connection));
        let sent = if reaches && self.settings.keys == MemoryKeys::Window {
            self.bind(index, slot, connection, packet, out)
        } else {
            let remote = self.region.remote(self.offset_of(index, slot)).ok().filter(|_| reaches);
            self.send(cid, task, remote, in_capsule, packet, out)
        };
        if sent {
            self.count(|counts| counts.sent += 1);
            if task == Task::Flush {
                self.writes_to_flush = 0;
            }
        } else {
            self.queues[index].end(cid);
            self.undo(task);
        }
        sent
    }

    /// Chooses the next command.
    fn choose(&mut self) -> Option<Task> {
        let oracle = self.oracle.as_mut()?;
        let of = |block: usize, may: May| match may {
            May::Read(generation) => Task::Read { block, generation },
            May::Write(generation) => Task::Write { block, generation },
        };
        if self.filled < oracle.len() {
            // The first fill goes in order, once; a busy block is written later anyway.
            let block = self.filled;
            self.filled += 1;
            if let Some(may) = oracle.begin_write(block) {
                return Some(of(block, may));
            }
        }
        if self.settings.flush_every > 0 && self.writes_to_flush >= self.settings.flush_every {
            return Some(Task::Flush);
        }
        let is_read = self.rng.f64() < self.settings.read_share;
        let first = self.rng.usize(..oracle.len());
        for look in 0..LOOKS {
            let block = (first + look) % oracle.len();
            let may = if is_read { oracle.begin_read(block) } else { oracle.begin_write(block) };
            if let Some(may) = may {
                return Some(of(block, may));
            }
        }
        None
    }

    /// A command could not be sent. One that fills the namespace is what comes next.
    fn undo(&mut self, task: Task) {
        let Some(oracle) = self.oracle.as_mut() else { return };
        match task {
            Task::Read { block, .. } => oracle.end_read(block),
            Task::Write { block, generation } => {
                oracle.undo_write(block);
                if generation == FIRST {
                    self.filled = block;
                }
            }
            Task::Flush | Task::Connect | Task::Authenticate(_) => {}
        }
    }

    /// The offset in the region of a slot's data.
    pub(crate) fn offset_of(&self, index: usize, slot: u16) -> usize {
        let place = index * usize::from(self.settings.depth) + usize::from(slot);
        PAGE_BYTES + place * self.settings.slot_bytes()
    }

    /// Puts a write's data where the target fetches it from, and spoils the memory of a read.
    fn prepare(&mut self, task: Task, offset: usize, in_capsule: bool, packet: &mut Packet) {
        let (block, generation) = match task {
            Task::Write { block, generation } => (block, generation),
            Task::Read { .. } => return self.spoil(offset),
            Task::Flush | Task::Connect | Task::Authenticate(_) => return,
        };
        let (stamp, shape) = (self.stamp(block, generation), self.handshake.shape);
        let len = shape.wire_bytes();
        if in_capsule {
            if packet.set_len(COMMAND_BYTES + len) {
                shape.fill(stamp, &mut packet.data_mut()[COMMAND_BYTES..]);
            }
        } else {
            shape.fill(stamp, &mut self.scratch[..len]);
            // The region was checked to hold every slot.
            let _ = self.region.write_from(offset, &self.scratch[..len]);
        }
    }

    /// Spoils the content of a slot, part by part: it may be the very block that is read next, and
    /// be taken for data that never came.
    fn spoil(&self, offset: usize) {
        for at in (0..self.handshake.shape.wire_bytes()).step_by(SPOILED_EVERY_BYTES) {
            // The region was checked to hold every slot.
            let _ = self.region.store_u64(offset + at, SPOILED);
        }
    }

    fn stamp(&self, block: usize, generation: u32) -> Stamp {
        Stamp { place: block as u64, writer: self.writer, generation }
    }

    /// Sends a command whose data, if it has any, is in place.
    fn send(
        &mut self,
        cid: u16,
        task: Task,
        remote: Option<Remote>,
        in_capsule: bool,
        mut packet: Packet,
        out: &mut Outputs<'_>,
    ) -> bool {
        let len = self.handshake.shape.wire_bytes() as u32;
        let keyed = |remote: Remote| Sgl::Keyed {
            addr: remote.addr,
            len,
            key: remote.rkey,
            invalidate: self.settings.keys == MemoryKeys::Window,
        };
        let sgl = match remote {
            Some(remote) => keyed(remote),
            None if in_capsule => Sgl::InCapsule { offset: 0, len },
            None => Sgl::NONE,
        };
        let dwords = |block, generation| self.handshake.shape.dwords(self.stamp(block, generation));
        let (opcode, dwords) = match task {
            Task::Read { block, generation } => (opcode::io::READ, dwords(block, generation)),
            Task::Write { block, generation } => (opcode::io::WRITE, dwords(block, generation)),
            Task::Flush | Task::Connect | Task::Authenticate(_) => (opcode::io::FLUSH, [0; 6]),
        };
        let command = Command { nsid: self.settings.nsid, ..Command::new(opcode, cid, sgl).with(dwords) };
        if packet.len() < COMMAND_BYTES && !packet.set_len(COMMAND_BYTES) {
            return false;
        }
        packet.data_mut()[..COMMAND_BYTES].copy_from_slice(&command.to_bytes());
        out.send(IO, packet)
    }

    /// Binds a window to the data of a slot; the command follows once it has a key.
    fn bind(
        &mut self,
        index: usize,
        slot: u16,
        connection: ConnectionId,
        packet: Packet,
        out: &mut Outputs<'_>,
    ) -> bool {
        // The command gets a packet of its own when it is sent.
        drop(packet);
        let len = self.handshake.shape.wire_bytes();
        let Some(part) = self.region.part(self.offset_of(index, slot), len) else { return false };
        let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE;
        let tag = (index as u64) << 16 | u64::from(slot);
        out.operate(IO, Operation::bind(KeptWindow(slot), part, rights).over(connection).tag(tag)).is_ok()
    }

    /// Sends the command of a window that is bound.
    pub(crate) fn bound(&mut self, done: Done, out: &mut Outputs<'_>) {
        let (index, slot) = ((done.tag >> 16) as usize, done.tag as u16);
        let Some(queue) = self.queues.get_mut(index).filter(|queue| queue.connection == done.connection) else {
            return;
        };
        let (Some(key), Some((cid, pending))) = (done.key.filter(|_| done.result.is_ok()), queue.get_mut(slot)) else {
            return;
        };
        pending.key = Some(key.rkey);
        let task = pending.task;
        let sent = out.alloc().is_some_and(|mut packet| {
            packet.set_connection(done.connection);
            self.send(cid, task, Some(key), false, packet, out)
        });
        if !sent {
            self.fail(
                "a command found no packet, or no room: give the pool of the initiator, or port.io, more".to_owned(),
            );
        }
    }

    /// Takes a response of an I/O queue. False if the packet is not one.
    #[inline]
    pub(crate) fn io_answered(&mut self, from: ConnectionId, packet: &Packet, out: &mut Outputs<'_>) -> bool {
        let Ok(response) = Response::read(packet.data()) else { return false };
        let index = from.slot();
        let Some(queue) = self.queues.get_mut(index).filter(|queue| queue.connection == Some(from)) else {
            return true;
        };
        let Some((slot, pending)) = queue.end(response.cid) else {
            self.count(|counts| counts.unasked += 1);
            return true;
        };
        match pending.task {
            Task::Connect => {
                self.queue_connected(index, &response, out);
                return true;
            }
            Task::Authenticate(auth_step) => {
                self.auth_step_answered(index, slot, auth_step, &response, out);
                return true;
            }
            Task::Read { .. } | Task::Write { .. } | Task::Flush => {}
        }
        self.answered.add(1);
        self.count(|counts| counts.answered += 1);
        if let Some(key) = pending.key {
            let is_back = invalidated_key(packet) == Some(key);
            self.count(|counts| *if is_back { &mut counts.invalidated } else { &mut counts.not_invalidated } += 1);
        }
        let is_good = response.status.is_success();
        if !is_good {
            tracing::warn!(status = %response.status, task = ?pending.task, "a command failed");
            self.failed.add(1);
            self.count(|counts| counts.failed += 1);
        }
        match pending.task {
            Task::Read { block, generation } => {
                if is_good {
                    self.verify(block, generation, self.offset_of(index, slot));
                    self.record(READ, pending.began_ns, out);
                }
                if let Some(oracle) = self.oracle.as_mut() {
                    oracle.end_read(block);
                }
            }
            Task::Write { block, generation } => {
                if is_good {
                    self.count(|counts| counts.written += 1);
                    self.writes_to_flush += 1;
                    // What fills the namespace is load of another kind.
                    if generation > FIRST {
                        self.record(WRITE, pending.began_ns, out);
                    }
                }
                if let Some(oracle) = self.oracle.as_mut() {
                    oracle.end_write(block, is_good);
                }
            }
            Task::Flush | Task::Connect | Task::Authenticate(_) => {
                self.count(|counts| counts.flushed += u64::from(is_good));
            }
        }
        true
    }

    fn record(&mut self, way: usize, began_ns: Tick, out: &Outputs<'_>) {
        if let Some(measured) = self.measured.as_mut() {
            measured.record(way, began_ns, out.now_ns());
        }
    }

    fn verify(&mut self, block: usize, generation: u32, offset: usize) {
        let (stamp, shape) = (self.stamp(block, generation), self.handshake.shape);
        let bytes = &mut self.scratch[..shape.wire_bytes()];
        // Within the region, which was checked to hold every slot.
        let read = self.region.read_into(offset, bytes).map_err(|_| Mismatch::Data);
        let found = read.and_then(|()| shape.verify(stamp, bytes));
        if let Err(mismatch) = found {
            let found = pattern::read(&bytes[..shape.len]);
            tracing::error!(block, generation, ?mismatch, ?found, "a block is wrong");
            self.mismatches.add(1);
        }
        let is_guarded = found.is_ok() && shape.is_guarded();
        self.count(|counts| {
            *if found.is_ok() { &mut counts.verified } else { &mut counts.mismatches } += 1;
            counts.guarded += u64::from(is_guarded);
        });
    }

    fn queue_connected(&mut self, index: usize, response: &Response, out: &mut Outputs<'_>) {
        let (number, status, result) = (index + 1, response.status, response.result);
        if !status.is_success() {
            return self.fail(format!("queue {number} is not connected: {status}, {result:#x}"));
        }
        match self.must_authenticate(response) {
            Ok(true) => self.authenticate_queue(index, out),
            Ok(false) => self.queues[index].state = State::Ready,
            Err(why) => self.fail(format!("queue {number}: {why}")),
        }
    }
}
