//! Reads of protected blocks in memory, answered in pipelined mode: the device checks the blocks as
//! it sends them, and the good response is posted with them, behind a fence.
//!
//! If a block is bad, the engine takes the response back before it goes out, and the host gets the
//! error in the same packet. A read holds one signature key of its connection from its post until
//! its response is back. The CPU checks the blocks of a read that finds no key free.

use verbline::engine::signature::{BadBlock, KeptKey, KeyPart, Part};
use verbline::engine::{DeclineReason, Done, Operation, OperationError};
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::{Command, Status};

use crate::answering::{Reply, remote, write_response};
use crate::commands::{Answer, Io, Pending, Work};
use crate::lcore_namespace::{Signed, Space};
use crate::namespace_table::Use;
use crate::port::HOST;
use crate::stage::Target;
use crate::tag::Tag;

/// Operations of a pipelined read: the key's configuration, the blocks, the response.
const OPERATIONS: u32 = 3;

impl Target {
    /// Returns the device's part in a read, if the device can do it and the connection has a free
    /// key.
    pub(crate) fn signed(&self, at: u16, command: &Command, space: &Space) -> Option<Signed> {
        self.queues.get(at).filter(|queue| queue.pipelined.has_free())?;
        space.signed_of(command)
    }

    /// Answers a read in pipelined mode; it waits among the commands in flight if there is no room.
    pub(crate) fn pipeline(
        &mut self,
        at: u16,
        command: &Command,
        (capsule, of, signed): (Packet, Use, Signed),
        out: &mut Outputs<'_>,
    ) {
        let posted = match self.for_room.has(at) {
            true => Err((capsule, of)),
            false => self.post_pipelined(at, command, (capsule, of, signed), out),
        };
        let Err((capsule, of)) = posted else { return };
        self.counters.waited.add(1);
        if let Some(place) = self.hold(Pending::new(at, *command, capsule, Work::Pipeline(of)), out) {
            self.for_room.push(at, place, &mut self.links);
        }
    }

    /// Like [`pipeline`](Self::pipeline), for a read that waited and whose turn it is.
    pub(crate) fn pipeline_again(&mut self, place: u32, pending: Pending, out: &mut Outputs<'_>) {
        let Pending { queue: at, command, capsule, wants, holds, work } = pending;
        let again = |capsule, work| Pending { queue: at, command, capsule, wants, holds, work };
        let Work::Pipeline(of) = work else { return self.commands.put(place, again(capsule, work)) };
        let Some(signed) = self.signed(at, &command, self.spaces.get(&of)) else {
            // No key is free any more, or the namespace has shrunk; its store will report that.
            self.counters.cpu_checked.add(1);
            let range = ReadWrite::of(&command);
            let work = Work::Store(Io::new(of, (range.slba, range.blocks.into())));
            return self.advance_with(place, Pending { wants: 1, ..again(capsule, work) }, out);
        };
        match self.post_pipelined(at, &command, (capsule, of, signed), out) {
            Ok(()) => self.forget_answered(place, at, command.cid, holds),
            Err((capsule, of)) => self.wait_for_room(place, again(capsule, Work::Pipeline(of))),
        }
    }

    /// Posts the blocks and the response. The packet and the use come back if there is no room, and
    /// are given up if the host is gone.
    fn post_pipelined(
        &mut self,
        at: u16,
        command: &Command,
        (mut capsule, of, signed): (Packet, Use, Signed),
        out: &mut Outputs<'_>,
    ) -> Result<(), (Packet, Use)> {
        if !self.may_post(at, OPERATIONS) {
            return Err((capsule, of));
        }
        let queue = self.queues.get_mut(at).filter(|queue| queue.is_open).zip(remote(command.sgl));
        let Some((queue, to)) = queue else {
            self.spaces.give_back(of);
            return Ok(());
        };
        let Some(key) = queue.pipelined.take() else { return Err((capsule, of)) };
        let (connection, reply) = (queue.connection, Reply::of(command, Status::SUCCESS));
        let Some(sq_head) = write_response(queue, &mut capsule, reply) else {
            queue.pipelined.put_back(key);
            out.close(connection);
            self.spaces.give_back(of);
            return Ok(());
        };
        let of_key = KeptKey(key);
        let invalidate = reply.key.filter(|_| self.rules.settings.remote_invalidate);
        let operations = [
            Operation::sign(of_key, signed.part, signed.signature).tag(Tag::Response.to_u64()),
            Operation::write(KeyPart { key: of_key, offset: 0, len: signed.data_bytes }, to)
                .tag(Tag::Response.to_u64()),
            Operation::respond(of_key, capsule, invalidate).tag(Tag::Signed(key).to_u64()),
        ];
        match out.operate_all(HOST, operations.map(|operation| operation.over(connection))) {
            Ok(()) => {
                if let Some(queue) = self.queues.get_mut(at) {
                    queue.pipelined.posted(key, *command, of);
                }
                self.posted(at, OPERATIONS, sq_head);
                self.counters.pipelined.add(1);
                Ok(())
            }
            Err(no) => {
                if let Some(queue) = self.queues.get_mut(at) {
                    queue.pipelined.put_back(key);
                }
                let [_, _, respond] = no.operation;
                match respond.into_local().into_packet() {
                    Some(capsule) if no.reason == DeclineReason::Full => Err((capsule, of)),
                    _ => {
                        // As for a response that can't be posted.
                        out.close(connection);
                        self.spaces.give_back(of);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Takes back a response that waited for its blocks: it has gone out, or a block is bad.
    pub(crate) fn responded(&mut self, at: u16, done: Done, out: &mut Outputs<'_>) {
        let Tag::Signed(key) = Tag::from_u64(done.tag) else { return };
        let Some(queue) = self.queues.get_mut(at) else { return };
        let Some((command, of)) = queue.pipelined.give_back(key) else { return };
        let (result, capsule) = (done.result, done.into_packet());
        if result.is_ok() {
            self.counters.tally.moved(&command);
        }
        if let (Err(OperationError::BadBlock(bad)), Some(capsule), true) = (result, capsule, queue.is_open) {
            // The queue's head goes back: the next response carries it again.
            queue.sq_head = (queue.sq_head + queue.sq_size.max(1) - 1) % queue.sq_size.max(1);
            self.tell_bad(at, &command, (&of, bad), capsule, out);
        }
        self.spaces.give_back(of);
    }

    #[cold]
    fn tell_bad(
        &mut self,
        at: u16,
        command: &Command,
        (of, bad): (&Use, BadBlock),
        capsule: Packet,
        out: &mut Outputs<'_>,
    ) {
        let status = match bad.part {
            Part::Guard => Status::GUARD_CHECK_ERROR,
            Part::AppTag => Status::APPLICATION_TAG_CHECK_ERROR,
            Part::RefTag => Status::REFERENCE_TAG_CHECK_ERROR,
        };
        let index = bad.offset / self.spaces.get(of).layout.stored_bytes();
        let lba = ReadWrite::of(command).slba + u64::from(index);
        self.note(at, command, status, lba);
        self.finish(at, command, capsule, Answer::of(status), out);
    }
}
