//! Commands that go through the store: each command's requests, and its steps after each of them.

use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::io::{DEALLOCATE, ReadWrite};
use verbline_nvme::protection::{Action, Wrong};
use verbline_nvme::{Command, Status, opcode};
use verbline_store::{Done, Fault, Op, Request};

use crate::answering::remote;
use crate::commands::{Answer, Data, Io, Pending, Work, wrong_lba};
use crate::layout::{Layout, Protected};
use crate::lcore_namespace::{Space, is_durable};
use crate::namespace_attach::last_flush_of;
use crate::pieces::beyond;
use crate::stage::Target;

/// The bytes of one request to zero or to verify.
const PART_BYTES: u32 = 128 << 10;

/// The next step of a command that waits for the store.
enum Asked {
    Request(Request),
    /// The command can't be carried out, because of this block.
    Refused(Status, u64),
    /// The pool has no packet for it.
    NoPacket,
    /// Nothing is left to ask for.
    Nothing,
}

/// The next step of a command whose request was carried out.
enum Next {
    Store,
    /// Bring the host's data of the next piece.
    Bring,
    /// Send the blocks to the host; more follow.
    Piece(Packet),
    Answer(Answer),
    Fail(Status, u64),
}

impl Target {
    /// Hands the stores their requests, and takes the finished ones.
    pub(crate) fn drive_stores(&mut self, out: &mut Outputs<'_>) {
        self.budget.renew(out.turn());
        let mut had_budget = 0;
        for _ in 0..self.spaces.busy() {
            let Some(place) = self.spaces.next_busy() else { return };
            let has_budget = self.budget.left > 0;
            self.drive_store(place, out);
            let waits = self.spaces.had_turn(place);
            had_budget += usize::from(has_budget && waits);
        }
        if self.budget.left == 0 {
            // Namespaces that had no budget left are the first in the next turn.
            self.spaces.pass_over(had_budget);
        }
    }

    fn drive_store(&mut self, place: u16, out: &mut Outputs<'_>) {
        while self.budget.left > 0 {
            let Some(space) = self.spaces.at_mut(place) else { return };
            let Some((_, command)) = space.take_turn(&mut self.links) else { break };
            self.ask_store(command, out);
        }
        let Some(space) = self.spaces.at_mut(place) else { return };
        if !space.requests.is_empty() {
            space.store.submit(&mut space.requests);
        }
        if space.store.under_way() == 0 {
            return;
        }
        let mut done = std::mem::take(&mut self.done);
        space.store.poll(&mut done);
        for done in done.drain(..) {
            self.stored(done, out);
        }
        self.done = done;
    }

    /// Sends the store the next request of a command.
    fn ask_store(&mut self, place: u32, out: &mut Outputs<'_>) {
        let Some(mut pending) = self.commands.take(place) else { return };
        let Work::Store(mut io) = std::mem::replace(&mut pending.work, Work::Event) else {
            return self.commands.put(place, pending);
        };
        let asked = self.ask(place, &mut pending, &mut io, out);
        match asked {
            Asked::Request(request) => {
                let bytes = u64::from(request.blocks) * u64::from(self.spaces.get(&io.of).layout.stored_bytes());
                self.budget.spend(bytes);
                self.spaces.get_mut(&io.of).requests.push_back(request);
                self.commands.put(place, Pending { work: Work::Storing(io), ..pending });
            }
            Asked::Refused(status, lba) => {
                self.fail_at(place, Pending { work: Work::Store(io), ..pending }, (status, lba), out);
            }
            Asked::NoPacket => self.wait_for_packet(place, Pending { work: Work::Store(io), ..pending }),
            Asked::Nothing => {
                let pending = Pending { work: Work::Store(io), ..pending };
                self.answer(place, pending, Answer::of(Status::SUCCESS), out);
            }
        }
    }

    /// Handles a finished request.
    fn stored(&mut self, done: Done, out: &mut Outputs<'_>) {
        if let Some(of) = last_flush_of(done.tag) {
            return self.flushed_at_last(of, done.result);
        }
        let place = done.tag as u32;
        let Some(mut pending) = self.commands.take(place) else { return };
        if !self.queues.get(pending.queue).is_some_and(|queue| queue.is_open) {
            // There is no host to answer.
            return self.forget(place, pending);
        }
        let Work::Storing(mut io) = std::mem::replace(&mut pending.work, Work::Event) else {
            return self.commands.put(place, pending);
        };
        if pending.command.opcode == opcode::fabrics::OPCODE {
            return self.flushed_for_shutdown(place, pending, (io.of, done.result), out);
        }
        let layout = self.spaces.get(&io.of).layout;
        let next = match done.result {
            Ok(()) if io.is_read => {
                let packet = io.data.take();
                shown(&pending.command, &io, &layout, packet)
            }
            Ok(()) => {
                let next = next_of(&pending.command, &mut io, &layout, done.packet);
                self.flush_before(&pending.command, &mut io, next)
            }
            Err(fault) => Next::Fail(self.failed_by(fault, &io, done.op), io.cursor),
        };
        match next {
            Next::Store => self.advance_with(place, Pending { work: Work::Store(io), ..pending }, out),
            Next::Bring => {
                let work = io.bring(pending.command.sgl);
                self.advance_with(place, Pending { work, ..pending }, out);
            }
            Next::Piece(packet) => {
                io.data = Some(packet);
                self.advance_with(place, Pending { work: Work::Piece(io), ..pending }, out);
            }
            Next::Answer(answer) => {
                self.counters.tally.moved(&pending.command);
                self.answer(place, Pending { work: Work::Storing(io), ..pending }, answer, out);
            }
            Next::Fail(status, lba) => {
                self.fail_at(place, Pending { work: Work::Storing(io), ..pending }, (status, lba), out);
            }
        }
    }

    /// Makes the next request of a command.
    fn ask(&mut self, place: u32, pending: &mut Pending, io: &mut Io, out: &mut Outputs<'_>) -> Asked {
        let (tag, command, layout) = (u64::from(place), pending.command, self.spaces.get(&io.of).layout);
        let part_bytes = PART_BYTES.min(self.piece_bytes);
        let refused = |wrong: Wrong| Asked::Refused(wrong.status, wrong_lba(&command, &wrong));
        Asked::Request(match command.opcode {
            // A shutdown flushes each namespace.
            opcode::io::FLUSH | opcode::fabrics::OPCODE => Request::flush(tag),
            _ if io.is_read => Request::flush(tag),
            opcode::io::WRITE => {
                let Some(mut data) = io.data.take() else { return Asked::Refused(Status::INTERNAL_ERROR, io.cursor) };
                let (first, blocks) = (io.first(&command), io.part as u32);
                if let Some(protected) = &layout.protected
                    && let Err(wrong) = protected.bring_in(&command, (first, blocks), &mut data)
                {
                    return refused(wrong);
                }
                Request::write(io.cursor, blocks, data, is_durable(&command), tag)
            }
            opcode::io::COMPARE => {
                if let (Some(protected), Some(data)) = (&layout.protected, &io.data)
                    && let Err(wrong) = protected.format.check(Action::of(&command), io.first(&command), data.data())
                {
                    return refused(wrong);
                }
                let blocks = io.part as u32;
                let packet = match self.blocks_for(pending, blocks, &layout, out) {
                    Ok(packet) => packet,
                    Err(asked) => return asked,
                };
                Request::read(io.cursor, blocks, packet, tag)
            }
            opcode::io::READ | opcode::io::VERIFY => {
                let most = if command.opcode == opcode::io::READ { self.piece_bytes } else { part_bytes };
                let blocks = io.begin_part(&layout, most);
                let packet = match self.blocks_for(pending, blocks, &layout, out) {
                    Ok(packet) => packet,
                    Err(asked) => return asked,
                };
                Request::read(io.cursor, blocks, packet, tag)
            }
            opcode::io::WRITE_ZEROES => {
                let (fua, deallocate) = (is_durable(&command), command.cdw10[2] & DEALLOCATE != 0);
                let blocks = io.begin_part(&layout, if layout.protected.is_some() { part_bytes } else { PART_BYTES });
                if let Some(protected) = &layout.protected {
                    let mut packet = match self.blocks_for(pending, blocks, &layout, out) {
                        Ok(packet) => packet,
                        Err(asked) => return asked,
                    };
                    protected.zero(&command, io.first(&command), &mut packet);
                    return Asked::Request(Request::write(io.cursor, blocks, packet, fua, tag));
                }
                Request::without_data(Op::WriteZeroes { fua, deallocate }, io.cursor, blocks, tag)
            }
            // Dataset Management.
            _ => {
                let blocks = self.spaces.get(&io.of).geometry().blocks;
                match io.next_discard(&command, &layout, blocks) {
                    Ok(Some(blocks)) => Request::without_data(Op::Discard, io.cursor, blocks, tag),
                    Ok(None) => return Asked::Nothing,
                    Err(lba) => return Asked::Refused(Status::LBA_OUT_OF_RANGE.do_not_retry(), lba),
                }
            }
        })
    }

    /// Puts a flush of the store in front of the good answer to a command that has read blocks with
    /// FUA: its host may rely on them after a crash. Not in front of the reads: they also find
    /// blocks that were written since.
    fn flush_before(&self, command: &Command, io: &mut Io, next: Next) -> Next {
        let must_flush =
            reads_blocks(command) && is_durable(command) && self.spaces.get(&io.of).store.geometry().volatile_cache;
        match next {
            Next::Answer(answer) if must_flush => {
                io.is_read = true;
                io.data = match answer.data {
                    Data::Packet(packet, _) => Some(packet),
                    Data::Nothing | Data::Blocks(..) => None,
                };
                Next::Store
            }
            next => next,
        }
    }

    /// Allocates a packet of the length of these blocks.
    fn blocks_for(
        &mut self,
        pending: &mut Pending,
        blocks: u32,
        layout: &Layout,
        out: &mut Outputs<'_>,
    ) -> Result<Packet, Asked> {
        let mut packet = self.packet_for(pending, out).ok_or(Asked::NoPacket)?;
        // The plan was checked to have long enough packets.
        match packet.reset_to((blocks * layout.stored_bytes()) as usize) {
            true => Ok(packet),
            false => Err(Asked::Refused(Status::INTERNAL_ERROR, ReadWrite::of(&pending.command).slba)),
        }
    }

    /// The host's status for a fault. A broken store is logged once.
    pub(crate) fn failed_by(&mut self, fault: Fault, io: &Io, op: Op) -> Status {
        if let Fault::RingBroken(_) = fault {
            self.counters.ring_broken.add(1);
            let space = self.spaces.get_mut(&io.of);
            if !std::mem::replace(&mut space.is_broken, true) {
                tracing::error!(nsid = space.nsid, blocks = %space.blocks, "{fault}");
            }
        } else if is_ours(fault) {
            let Space { nsid, blocks, .. } = self.spaces.get(&io.of);
            tracing::warn!(nsid, %blocks, ?op, %fault, "a command failed beneath the namespace");
        }
        status_of(fault, op)
    }
}

/// The next step of a command whose request was carried out.
fn next_of(command: &Command, io: &mut Io, layout: &Layout, mut packet: Option<Packet>) -> Next {
    let protected = layout.protected;
    if let (Some(protected), Some(packet)) = (&protected, &mut packet)
        && reads_blocks(command)
    {
        let first = io.first(command);
        if let Err(wrong) = protected.take_out(command, first, packet) {
            return Next::Fail(wrong.status, wrong_lba(command, &wrong));
        }
        if command.opcode == opcode::io::READ {
            protected.strip(command, packet);
        }
    }
    match command.opcode {
        opcode::io::READ => match packet {
            Some(packet) if io.part < io.left => Next::Piece(packet),
            packet => shown(command, io, layout, packet),
        },
        opcode::io::WRITE if io.next_part() => Next::Bring,
        opcode::io::COMPARE => {
            let is_same = match (&io.data, &packet, protected) {
                (Some(ours), Some(theirs), None) => ours.data() == theirs.data(),
                // Protection information is checked, but not compared.
                (Some(ours), Some(theirs), Some(Protected { format, .. })) => {
                    format.data(ours.data()).eq(format.data(theirs.data()))
                }
                _ => false,
            };
            io.data = None;
            match is_same {
                true if io.next_part() => Next::Bring,
                true => Next::Answer(Answer::of(Status::SUCCESS)),
                false => Next::Fail(Status::COMPARE_FAILURE.do_not_retry(), io.cursor),
            }
        }
        opcode::io::VERIFY | opcode::io::WRITE_ZEROES if io.next_part() => Next::Store,
        opcode::io::DATASET_MANAGEMENT => {
            io.next_part();
            Next::Store
        }
        _ => Next::Answer(Answer::of(Status::SUCCESS)),
    }
}

/// The good answer to a command that has read all its blocks; a Read sends the last of them in
/// `packet`.
fn shown(command: &Command, io: &Io, layout: &Layout, packet: Option<Packet>) -> Next {
    match packet.zip(remote(command.sgl)) {
        _ if command.opcode != opcode::io::READ => Next::Answer(Answer::of(Status::SUCCESS)),
        Some((packet, to)) => {
            let to = beyond(to, io.piece(command, layout).offset);
            Next::Answer(Answer::with(Data::Packet(packet, to)))
        }
        // A Read without data is a fault of ours.
        None => Next::Fail(Status::INTERNAL_ERROR, io.cursor),
    }
}

/// Whether the command reads blocks.
fn reads_blocks(command: &Command) -> bool {
    matches!(command.opcode, opcode::io::READ | opcode::io::COMPARE | opcode::io::VERIFY)
}

/// Whether a fault is of the medium beneath, and none that a host can bring about.
fn is_ours(fault: Fault) -> bool {
    // Blocks that no namespace has are refused before the store is asked: it has shrunk. So are
    // changes of a namespace that is read-only: its file system has become so.
    matches!(
        fault,
        Fault::OutOfRange | Fault::ReadOnly | Fault::NoSpace | Fault::Medium | Fault::Os(_) | Fault::Misaligned
    )
}

/// The host's status for a fault.
fn status_of(fault: Fault, op: Op) -> Status {
    match (fault, op) {
        (Fault::OutOfRange, _) => Status::LBA_OUT_OF_RANGE.do_not_retry(),
        (Fault::ReadOnly, _) => Status::ATTEMPTED_WRITE_TO_READ_ONLY.do_not_retry(),
        (Fault::NoSpace, _) => Status::CAPACITY_EXCEEDED.do_not_retry(),
        (Fault::Unsupported, _) => Status::INVALID_OPCODE.do_not_retry(),
        (Fault::Medium, Op::Read) => Status::UNRECOVERED_READ_ERROR,
        (Fault::Medium, _) => Status::WRITE_FAULT,
        (Fault::BadMemory | Fault::Misaligned | Fault::Os(_) | Fault::RingBroken(_) | Fault::Closed, _) => {
            Status::INTERNAL_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file system that had become read-only failed every Write, and the log was silent.
    #[test]
    fn what_fails_beneath_a_namespace_is_logged() {
        for fault in [Fault::ReadOnly, Fault::NoSpace, Fault::Medium, Fault::OutOfRange, Fault::Os(12)] {
            assert!(is_ours(fault), "{fault:?}");
        }
    }
}
