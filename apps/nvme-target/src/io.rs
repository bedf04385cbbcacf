//! Commands of I/O queues: what is checked of them, and where they go.

use verbline::engine::Memory;
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::io::{DSM_DEALLOCATE, DSM_RANGE_BYTES, DsmRange, ReadWrite};
use verbline_nvme::protection::Action;
use verbline_nvme::{Command, Sgl, Status, opcode};
use verbline_store::Store;

use crate::answering::remote;
use crate::commands::{Pending, Step};
use crate::fabrics::in_capsule;
use crate::stage::Target;

impl Target {
    #[inline]
    pub(crate) fn io(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        let place = match self.check(at, &command) {
            Ok(place) => place,
            Err(status) => return self.refuse(at, capsule, &command, status, out),
        };
        let Some(space) = self.spaces.as_ref().and_then(|spaces| spaces.get(usize::from(place))) else { return };
        match command.opcode {
            opcode::io::READ => {
                let bytes = command.sgl.len_bytes() as u64;
                self.counters.tally.reads.add(1);
                self.counters.tally.read_bytes.add(bytes);
                match space.direct_of(&command).zip(remote(command.sgl)) {
                    Some((range, to)) => {
                        let data = Some((Memory::from(range), to));
                        self.reply(at, &command, capsule, (0, Status::SUCCESS), data, out);
                    }
                    None => match self.signed(at, &command, place) {
                        Some(signed) => self.pipeline(at, &command, (capsule, place, signed), out),
                        None => self.begin(at, command, capsule, place, Step::Store, out),
                    },
                }
            }
            opcode::io::WRITE => self.write(at, command, capsule, place, out),
            opcode::io::COMPARE | opcode::io::DATASET_MANAGEMENT => self.with_data(at, command, capsule, place, out),
            _ => self.begin(at, command, capsule, place, Step::Store, out),
        }
    }

    /// What is checked of every command: the place of its namespace.
    #[inline]
    fn check(&self, at: u16, command: &Command) -> Result<u16, Status> {
        let controller = self.queues.get(at).and_then(|queue| queue.controller.as_ref());
        if !controller.is_some_and(|controller| controller.is_ready()) {
            return Err(Status::SEQUENCE_ERROR.do_not_retry());
        }
        let place = self.place_of.get(command.nsid as usize).copied().flatten();
        let space = place.and_then(|place| Some((place, self.spaces.as_ref()?.get(usize::from(place))?)));
        let (place, space) = space.ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
        let geometry = space.store.geometry();
        let (moves, changes) = match command.opcode {
            opcode::io::READ | opcode::io::COMPARE => (true, false),
            opcode::io::WRITE => (true, true),
            opcode::io::WRITE_ZEROES => (false, true),
            opcode::io::VERIFY => (false, false),
            opcode::io::FLUSH => return Ok(place),
            opcode::io::DATASET_MANAGEMENT => return check_ranges(command, geometry.read_only).map(|()| place),
            _ => return Err(Status::INVALID_OPCODE.do_not_retry()),
        };
        if changes && geometry.read_only {
            return Err(Status::ATTEMPTED_WRITE_TO_READ_ONLY.do_not_retry());
        }
        let range = ReadWrite::of(command);
        let within = range.bytes_within(geometry.blocks, space.layout.block_shift);
        let (_, mut bytes) = within.ok_or(Status::LBA_OUT_OF_RANGE.do_not_retry())?;
        if let Some(protected) = &space.layout.protected {
            protected.format.allow(command)?;
            bytes = protected.format.wire_bytes(Action::of(command), range.blocks);
        }
        if moves && bytes > self.rules.settings.transfer_bytes_max.into() {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        if moves && command.sgl.len_bytes() as u64 != bytes {
            return Err(Status::SGL_DATA_LENGTH_INVALID.do_not_retry());
        }
        if command.opcode == opcode::io::READ && matches!(command.sgl, Sgl::InCapsule { .. }) {
            return Err(Status::SGL_TYPE_INVALID.do_not_retry());
        }
        Ok(place)
    }

    fn write(&mut self, at: u16, command: Command, capsule: Packet, place: u16, out: &mut Outputs<'_>) {
        self.counters.tally.writes.add(1);
        self.counters.tally.written_bytes.add(command.sgl.len_bytes() as u64);
        let space = self.spaces.as_ref().and_then(|spaces| spaces.get(usize::from(place)));
        if let Some((space, range)) = space.and_then(|space| Some((space, space.direct_of(&command)?)))
            && let Ok(data) = in_capsule(&command, &capsule)
            && space.write_now(range, data)
        {
            return self.reply(at, &command, capsule, (0, Status::SUCCESS), None, out);
        }
        self.with_data(at, command, capsule, place, out);
    }

    /// A command with data of the host: it is in the capsule, or is fetched.
    fn with_data(&mut self, at: u16, command: Command, capsule: Packet, place: u16, out: &mut Outputs<'_>) {
        if let Sgl::Keyed { .. } = command.sgl {
            return self.begin(at, command, capsule, place, Step::Fetch, out);
        }
        let data = match in_capsule(&command, &capsule) {
            Ok(data) => data,
            Err(status) => return self.refuse(at, capsule, &command, status, out),
        };
        // A capsule is a receive buffer: the one copy that there is, where a store can't take the
        // packet as it is.
        let Some(mut packet) = out.alloc() else {
            return self.refuse(at, capsule, &command, Status::NAMESPACE_NOT_READY, out);
        };
        if !packet.reset_to(data.len()) {
            return self.refuse(at, capsule, &command, Status::INVALID_FIELD.do_not_retry(), out);
        }
        packet.data_mut().copy_from_slice(data);
        let pending = Pending { data: Some(packet), ..Pending::new(at, command) };
        self.begin_with(pending, capsule, place, Step::Store, out);
    }

    fn begin(&mut self, at: u16, command: Command, capsule: Packet, place: u16, step: Step, out: &mut Outputs<'_>) {
        self.begin_with(Pending::new(at, command), capsule, place, step, out);
    }

    fn begin_with(&mut self, pending: Pending, capsule: Packet, place: u16, step: Step, out: &mut Outputs<'_>) {
        let range = ReadWrite::of(&pending.command);
        let (cursor, left) = match pending.command.opcode {
            opcode::io::DATASET_MANAGEMENT => (0, DsmRange::count_of(&pending.command) as u64),
            opcode::io::FLUSH => (0, 0),
            _ => (range.slba, range.blocks.into()),
        };
        let pending = Pending { capsule: Some(capsule), space: place, step, cursor, left, ..pending };
        if let Some(place) = self.hold(pending) {
            self.advance(place, out);
        }
    }
}

/// Ranges are there for each that is counted. Other advice than to deallocate is taken, and nothing
/// is done about it.
fn check_ranges(command: &Command, is_read_only: bool) -> Result<(), Status> {
    if command.sgl.len_bytes() < DsmRange::count_of(command) * DSM_RANGE_BYTES || command.sgl.len_bytes() > 4096 {
        return Err(Status::SGL_DATA_LENGTH_INVALID.do_not_retry());
    }
    if is_read_only && command.cdw10[1] & DSM_DEALLOCATE != 0 {
        return Err(Status::ATTEMPTED_WRITE_TO_READ_ONLY.do_not_retry());
    }
    Ok(())
}
