//! Commands that go by the store's own requests: what each asks for, and what it makes of what is
//! done.

use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::io::{DEALLOCATE, DSM_DEALLOCATE, DsmRange, ReadWrite};
use verbline_nvme::protection::{Action, Wrong};
use verbline_nvme::{Status, opcode};
use verbline_store::{Done, Fault, Op, Request, Store};

use crate::commands::{Pending, Step};
use crate::layout::{Layout, Protected};
use crate::space::is_durable;
use crate::stage::Target;

/// Bytes that one request of a command in parts zeroes: what an lcore does in one turn.
const PART_BYTES: u64 = 256 << 10;

/// What comes next for a command that is at the store.
enum Asked {
    Request(Request),
    /// It can't be carried out.
    Refused(Status),
    /// There is no packet for it.
    NoPacket,
    /// Nothing is left to be asked.
    Nothing,
}

impl Target {
    /// Asks the store for what a command wants next.
    pub(crate) fn ask_store(&mut self, place: u32, out: &mut Outputs<'_>) {
        let Some(pending) = self.commands.get_mut(place) else { return };
        let Some(space) = self.spaces.as_mut().and_then(|spaces| spaces.get_mut(usize::from(pending.space))) else {
            return self.go_on(place, Step::Answer(Status::INVALID_NAMESPACE.do_not_retry()), out);
        };
        match ask(pending, place, &space.layout, self.rules.settings.transfer_bytes_max, out) {
            Asked::Request(request) => {
                pending.step = Step::Storing;
                space.requests.push_back(request);
            }
            Asked::Refused(status) => self.go_on(place, Step::Answer(status), out),
            Asked::NoPacket => self.wait(place),
            Asked::Nothing => self.go_on(place, Step::Answer(Status::SUCCESS), out),
        }
    }

    /// Hands the stores what they are asked, and takes what they have done.
    #[inline]
    pub(crate) fn drive_stores(&mut self, out: &mut Outputs<'_>) {
        for index in 0..self.spaces.as_ref().map_or(0, Vec::len) {
            let Some(space) = self.spaces.as_mut().and_then(|spaces| spaces.get_mut(index)) else { return };
            if !space.requests.is_empty() {
                space.store.submit(&mut space.requests);
            }
            if space.store.under_way() == 0 {
                continue;
            }
            let mut done = std::mem::take(&mut self.done);
            space.store.poll(&mut done);
            for done in done.drain(..) {
                self.stored(done, out);
            }
            self.done = done;
        }
    }

    /// A request is done.
    fn stored(&mut self, done: Done, out: &mut Outputs<'_>) {
        let place = done.tag as u32;
        let Some(pending) = self.commands.get_mut(place) else { return };
        let at = pending.queue;
        if !self.queues.get(at).is_some_and(|queue| queue.is_open) {
            // There is nobody to answer.
            self.forget(place);
            return self.end_queue(at);
        }
        let space = self.spaces.as_ref().and_then(|spaces| spaces.get(usize::from(pending.space)));
        let step = match done.result {
            Ok(()) => next_step(pending, space.and_then(|space| space.layout.protected), done.packet),
            Err(fault) => Step::Answer(status_of(fault, done.op)),
        };
        self.go_on(place, step, out);
    }
}

/// The next request of a command.
fn ask(pending: &mut Pending, place: u32, layout: &Layout, transfer_bytes_max: u32, out: &mut Outputs<'_>) -> Asked {
    let (tag, command) = (u64::from(place), &pending.command);
    let range = ReadWrite::of(command);
    let part = |bytes: u64, left: u64| left.min(layout.blocks_in(bytes)) as u32;
    let packet_of = |blocks: u32, out: &mut Outputs<'_>| {
        let packet = out.alloc();
        packet.and_then(|mut packet| packet.reset_to((blocks * layout.stored_bytes()) as usize).then_some(packet))
    };
    Asked::Request(match command.opcode {
        opcode::io::FLUSH => Request::flush(tag),
        opcode::io::WRITE => {
            let Some(mut data) = pending.data.take() else { return Asked::NoPacket };
            if let Some(protected) = &layout.protected
                && let Err(wrong) = protected.bring_in(command, &mut data)
            {
                return Asked::Refused(pending.blame(wrong));
            }
            Request::write(range.slba, range.blocks, data, is_durable(command), tag)
        }
        opcode::io::READ | opcode::io::COMPARE => {
            if let (Some(protected), Some(data)) = (&layout.protected, &pending.data)
                && let Err(wrong) = protected.format.check(Action::of(command), 0, data.data())
            {
                return Asked::Refused(pending.blame(wrong));
            }
            let Some(packet) = packet_of(range.blocks, out) else { return Asked::NoPacket };
            Request::read(range.slba, range.blocks, packet, tag)
        }
        opcode::io::VERIFY => {
            let blocks = part(transfer_bytes_max.into(), pending.left);
            pending.part = blocks.into();
            let Some(packet) = packet_of(blocks, out) else { return Asked::NoPacket };
            Request::read(pending.cursor, blocks, packet, tag)
        }
        opcode::io::WRITE_ZEROES => {
            let (fua, deallocate) = (is_durable(command), command.cdw10[2] & DEALLOCATE != 0);
            if let Some(protected) = &layout.protected {
                let blocks = part(transfer_bytes_max.into(), pending.left);
                pending.part = blocks.into();
                let Some(mut packet) = packet_of(blocks, out) else { return Asked::NoPacket };
                protected.zero(command, (pending.cursor - range.slba) as u32, &mut packet);
                return Asked::Request(Request::write(pending.cursor, blocks, packet, fua, tag));
            }
            let blocks = part(PART_BYTES, pending.left);
            pending.part = blocks.into();
            Request::without_data(Op::WriteZeroes { fua, deallocate }, pending.cursor, blocks, tag)
        }
        // Dataset Management: range by range.
        _ => {
            let is_wanted = command.cdw10[1] & DSM_DEALLOCATE != 0;
            let data = pending.data.as_ref().map_or(&[][..], |packet| packet.data());
            let ranges = DsmRange::read_all(data).take(DsmRange::count_of(command)).enumerate();
            let mut rest = ranges.skip(pending.cursor as usize).filter(|(_, range)| is_wanted && range.blocks > 0);
            let Some((index, range)) = rest.next() else { return Asked::Nothing };
            pending.cursor = index as u64;
            Request::without_data(Op::Discard, range.slba, range.blocks, tag)
        }
    })
}

/// What comes next for a command whose request was carried out.
fn next_step(pending: &mut Pending, protected: Option<Protected>, mut packet: Option<Packet>) -> Step {
    if let (Some(protected), Some(packet)) = (&protected, &mut packet)
        && let Some(first) = pending.first_read()
    {
        if let Err(wrong) = protected.take_out(&pending.command, first, packet) {
            return Step::Answer(pending.blame(wrong));
        }
        if pending.command.opcode == opcode::io::READ {
            protected.strip(&pending.command, packet);
        }
    }
    match pending.command.opcode {
        opcode::io::READ => {
            pending.data = packet;
            Step::Answer(Status::SUCCESS)
        }
        opcode::io::COMPARE => {
            let is_same = match (&pending.data, &packet, protected) {
                (Some(ours), Some(theirs), None) => ours.data() == theirs.data(),
                // What lies behind the data is checked, and not compared.
                (Some(ours), Some(theirs), Some(Protected { format, .. })) => {
                    format.data(ours.data()).eq(format.data(theirs.data()))
                }
                _ => false,
            };
            Step::Answer(if is_same { Status::SUCCESS } else { Status::COMPARE_FAILURE.do_not_retry() })
        }
        opcode::io::VERIFY | opcode::io::WRITE_ZEROES => {
            (pending.cursor, pending.left) = (pending.cursor + pending.part, pending.left - pending.part);
            if pending.left == 0 { Step::Answer(Status::SUCCESS) } else { Step::Store }
        }
        opcode::io::DATASET_MANAGEMENT => {
            pending.cursor += 1;
            Step::Store
        }
        _ => Step::Answer(Status::SUCCESS),
    }
}

impl Pending {
    /// The number in the command of the first block that was read for it; `None` if none was.
    fn first_read(&self) -> Option<u32> {
        let slba = ReadWrite::of(&self.command).slba;
        match self.command.opcode {
            opcode::io::READ | opcode::io::COMPARE | opcode::io::VERIFY => Some((self.cursor - slba) as u32),
            _ => None,
        }
    }

    /// Keeps which block is wrong, for the error log; gives the status of the command.
    fn blame(&mut self, wrong: Wrong) -> Status {
        self.wrong_lba = Some(ReadWrite::of(&self.command).slba + u64::from(wrong.index));
        wrong.status
    }
}

/// The status by which a host is told of a fault.
fn status_of(fault: Fault, op: Op) -> Status {
    match (fault, op) {
        (Fault::OutOfRange, _) => Status::LBA_OUT_OF_RANGE.do_not_retry(),
        (Fault::ReadOnly, _) => Status::ATTEMPTED_WRITE_TO_READ_ONLY.do_not_retry(),
        (Fault::NoSpace, _) => Status::CAPACITY_EXCEEDED.do_not_retry(),
        (Fault::Unsupported, _) => Status::INVALID_OPCODE.do_not_retry(),
        (Fault::Medium, Op::Read) => Status::UNRECOVERED_READ_ERROR,
        (Fault::Medium, _) => Status::WRITE_FAULT,
        (Fault::BadMemory | Fault::Misaligned | Fault::Os(_) | Fault::Closed, _) => Status::INTERNAL_ERROR,
    }
}
