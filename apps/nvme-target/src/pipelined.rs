//! Reads of protected blocks that lie in memory, answered by the pipelined way: the device checks
//! the blocks as it sends them, and the good response is posted with them, behind a fence.
//!
//! If a block is bad, the engine takes the response back before it goes out, and the host is told
//! what is wrong in the same packet. A read holds one signature key of its connection from its post
//! until its response has come back; one that finds none waits for those.

use verbline::engine::signature::{BadBlock, Blocks, Part, SignatureKey};
use verbline::engine::{DeclineReason, Done, Operation, OperationError};
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::{Command, Status};

use crate::answering::{NOTHING_WAITS, Reply, remote, write_response};
use crate::commands::{Pending, Step};
use crate::describe::HOST;
use crate::signed::{PIPELINED, Signed};
use crate::stage::Target;

impl Target {
    /// What the device is to do for a read, if it can, and the connection has keys for it.
    pub(crate) fn signed(&self, at: u16, command: &Command, space: u16) -> Option<Signed> {
        self.queues.get(at).filter(|queue| queue.pipelined.are_possible())?;
        self.spaces.as_ref()?.get(usize::from(space))?.signed_of(command)
    }

    /// Answers a read so; it waits among those under way if there is no key, or no room.
    pub(crate) fn pipeline(
        &mut self,
        at: u16,
        command: &Command,
        (capsule, space, signed): (Packet, u16, Signed),
        out: &mut Outputs<'_>,
    ) {
        let Err(capsule) = self.post_pipelined(at, command, capsule, signed, out) else { return };
        let pending = Pending { capsule: Some(capsule), space, step: Step::Pipeline, ..Pending::new(at, *command) };
        if let Some(place) = self.hold(pending) {
            self.wait(place);
        }
    }

    /// The same of one that waited.
    pub(crate) fn pipeline_again(&mut self, place: u32, out: &mut Outputs<'_>) {
        let Some(pending) = self.commands.get_mut(place) else { return };
        let (at, command, space) = (pending.queue, pending.command, pending.space);
        let Some(capsule) = pending.capsule.take() else { return };
        let posted = match self.signed(at, &command, space) {
            Some(signed) => self.post_pipelined(at, &command, capsule, signed, out),
            None => {
                // The namespace has shrunk meanwhile, or is gone.
                self.refuse(at, capsule, &command, Status::LBA_OUT_OF_RANGE.do_not_retry(), out);
                Ok(())
            }
        };
        match posted {
            Ok(()) => {
                self.forget(place);
                self.end_queue(at);
            }
            Err(capsule) => {
                if let Some(pending) = self.commands.get_mut(place) {
                    pending.capsule = Some(capsule);
                }
                self.wait(place);
            }
        }
    }

    /// Posts the blocks and the response. The capsule comes back if there is no key, or no room; it
    /// is gone if the host is.
    fn post_pipelined(
        &mut self,
        at: u16,
        command: &Command,
        mut capsule: Packet,
        signed: Signed,
        out: &mut Outputs<'_>,
    ) -> Result<(), Packet> {
        let Some(queue) = self.queues.get_mut(at).filter(|queue| queue.is_open) else { return Ok(()) };
        let Some(to) = remote(command.sgl) else { return Ok(()) };
        let Some(key) = queue.pipelined.take() else { return Err(capsule) };
        let reply = Reply::of(command, Status::SUCCESS);
        let Some(sq_head) = write_response(queue, &mut capsule, reply) else {
            out.close(queue.connection);
            return Ok(());
        };
        let of_key = SignatureKey(key);
        let invalidate = reply.key.filter(|_| self.rules.settings.remote_invalidate);
        let operations = [
            Operation::sign(of_key, signed.part, signed.signature).tag(NOTHING_WAITS),
            Operation::write(Blocks { key: of_key, data_bytes: signed.data_bytes }, to).tag(NOTHING_WAITS),
            Operation::respond(of_key, capsule, invalidate).tag(PIPELINED | u64::from(key)),
        ];
        match out.operate_all(HOST, operations.map(|operation| operation.over(queue.connection))) {
            Ok(()) => {
                queue.sq_head = sq_head;
                queue.operations += 3;
                queue.pipelined.posted(key, *command);
                self.counters.pipelined.add(1);
                Ok(())
            }
            Err(no) => {
                queue.pipelined.put_back(key);
                let [_, _, respond] = no.operation;
                match respond.into_memory().into_packet() {
                    Some(capsule) if no.reason == DeclineReason::Full => Err(capsule),
                    // The connection is over: the stage hears of it.
                    _ => Ok(()),
                }
            }
        }
    }

    /// A response that waited for its blocks is back: it has gone out, or one of them is bad.
    pub(crate) fn responded(&mut self, at: u16, done: Done, out: &mut Outputs<'_>) {
        let Some(queue) = self.queues.get_mut(at) else { return };
        let Some(command) = queue.pipelined.give_back(done.tag as u16) else { return };
        let (Err(OperationError::BadBlock(bad)), Some(capsule), true) = (done.result, done.packet, queue.is_open)
        else {
            return;
        };
        // The next response says again how far the queue was read.
        queue.sq_head = (queue.sq_head + queue.sq_size.max(1) - 1) % queue.sq_size.max(1);
        self.tell_bad(at, &command, bad, capsule, out);
    }

    #[cold]
    fn tell_bad(&mut self, at: u16, command: &Command, bad: BadBlock, capsule: Packet, out: &mut Outputs<'_>) {
        let status = match bad.part {
            Part::Guard => Status::GUARD_CHECK_ERROR,
            Part::AppTag => Status::APPLICATION_TAG_CHECK_ERROR,
            Part::RefTag => Status::REFERENCE_TAG_CHECK_ERROR,
        };
        let place = self.place_of.get(command.nsid as usize).copied().flatten();
        let space = place.and_then(|place| self.spaces.as_ref()?.get(usize::from(place)));
        let index = space.map_or(0, |space| bad.offset / space.layout.stored_bytes());
        let lba = verbline_nvme::io::ReadWrite::of(command).slba + u64::from(index);
        self.note(at, command, status, lba);
        self.reply(at, command, capsule, (0, status), None, out);
    }
}
