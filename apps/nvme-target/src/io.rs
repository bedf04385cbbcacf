//! Commands of I/O queues: their checks, and their way from there.

use verbline::engine::Local;
use verbline::mem::Packet;
use verbline::prelude::*;
use verbline_nvme::io::{DSM_DEALLOCATE, DSM_RANGE_BYTES, DsmRange, ReadWrite};
use verbline_nvme::{Command, Sgl, Status, opcode};

use crate::answering::remote;
use crate::commands::{Answer, Data, Io, Pending, Purpose, Work};
use crate::fabrics::in_capsule;
use crate::namespace_table::Use;
use crate::stage::Target;

impl Target {
    #[inline]
    pub(crate) fn io(&mut self, at: u16, command: Command, capsule: Packet, out: &mut Outputs<'_>) {
        let checked = self.check(at, &command);
        let of =
            checked.and_then(|()| self.spaces.begin_use(command.nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry()));
        let of = match of {
            Ok(of) => of,
            Err(status) => return self.refuse_unless_over(at, capsule, &command, status, out),
        };
        match command.opcode {
            opcode::io::READ => self.read(at, command, capsule, of, out),
            opcode::io::WRITE => self.write(at, command, capsule, of, out),
            opcode::io::COMPARE | opcode::io::DATASET_MANAGEMENT => self.with_data(at, command, capsule, of, out),
            _ => self.begin(at, command, capsule, of, out),
        }
    }

    #[inline]
    fn read(&mut self, at: u16, command: Command, capsule: Packet, of: Use, out: &mut Outputs<'_>) {
        self.counters.tally.reads.add(1);
        let space = self.spaces.get(&of);
        if let Some((range, to)) = space.direct_of(&command).zip(remote(command.sgl)) {
            self.counters.tally.moved(&command);
            return self.finish(at, &command, capsule, Answer::with(Data::Blocks(range, of, to)), out);
        }
        match self.signed(at, &command, space) {
            Some(signed) => self.pipeline(at, &command, (capsule, of, signed), out),
            None => {
                self.counters.cpu_checked.add(u64::from(space.layout.protected.is_some()));
                self.begin(at, command, capsule, of, out);
            }
        }
    }

    /// The checks common to all commands. Their namespace exists.
    #[inline]
    fn check(&self, at: u16, command: &Command) -> Result<(), Status> {
        let controller = self.queues.get(at).and_then(|queue| queue.controller.as_ref());
        if !controller.is_some_and(|controller| controller.is_ready()) {
            return Err(Status::SEQUENCE_ERROR.do_not_retry());
        }
        let space = self.spaces.find(command.nsid).ok_or(Status::INVALID_NAMESPACE.do_not_retry())?;
        let geometry = space.geometry();
        let (moves, changes) = match command.opcode {
            opcode::io::READ | opcode::io::COMPARE => (true, false),
            opcode::io::WRITE => (true, true),
            opcode::io::WRITE_ZEROES => (false, true),
            opcode::io::VERIFY => (false, false),
            opcode::io::FLUSH => return Ok(()),
            opcode::io::DATASET_MANAGEMENT => return check_ranges(command, geometry.read_only),
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
            bytes = space.layout.wire_bytes(command, range.blocks);
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
        Ok(())
    }

    fn write(&mut self, at: u16, command: Command, capsule: Packet, of: Use, out: &mut Outputs<'_>) {
        self.counters.tally.writes.add(1);
        let space = self.spaces.get(&of);
        let Some(range) = space.direct_of(&command) else {
            return self.with_data(at, command, capsule, of, out);
        };
        if let Sgl::Keyed { .. } = command.sgl {
            let work = Work::Fetch(Purpose::Blocks(of), Local::from(range));
            if let Some(place) = self.hold(Pending::new(at, command, capsule, work), out) {
                self.advance(place, out);
            }
            return;
        }
        match in_capsule(&command, &capsule) {
            Ok(data) if space.write_now(range, data) => {
                self.spaces.give_back(of);
                self.counters.tally.moved(&command);
                self.finish(at, &command, capsule, Answer::of(Status::SUCCESS), out);
            }
            Ok(_) => self.with_data(at, command, capsule, of, out),
            Err(status) => {
                self.spaces.give_back(of);
                self.refuse(at, capsule, &command, status, out);
            }
        }
    }

    /// Begins a command with data of the host for the store, from the capsule or fetched.
    fn with_data(&mut self, at: u16, command: Command, capsule: Packet, of: Use, out: &mut Outputs<'_>) {
        if let Sgl::InCapsule { .. } = command.sgl
            && let Err(status) = in_capsule(&command, &capsule)
        {
            self.spaces.give_back(of);
            return self.refuse(at, capsule, &command, status, out);
        }
        self.begin(at, command, capsule, of, out);
    }

    /// Begins a command that goes through the store.
    fn begin(&mut self, at: u16, command: Command, capsule: Packet, of: Use, out: &mut Outputs<'_>) {
        let range = ReadWrite::of(&command);
        let parts = match command.opcode {
            opcode::io::DATASET_MANAGEMENT | opcode::io::FLUSH => (0, 0),
            _ => (range.slba, range.blocks.into()),
        };
        let is_protected = self.spaces.get(&of).layout.protected.is_some();
        let io = Io::new(of, parts);
        let brings = matches!(command.opcode, opcode::io::WRITE | opcode::io::COMPARE | opcode::io::DATASET_MANAGEMENT);
        // A Compare gets both packets at once: with one, waiting for the other, it might wait for
        // ever.
        let wants = match command.opcode {
            opcode::io::FLUSH => 0,
            opcode::io::WRITE_ZEROES => u8::from(is_protected),
            opcode::io::COMPARE => 2,
            _ => 1,
        };
        let work = if brings { io.bring(command.sgl) } else { Work::Store(io) };
        if let Some(place) = self.hold(Pending { wants, ..Pending::new(at, command, capsule, work) }, out) {
            self.advance(place, out);
        }
    }
}

/// Checks that the data holds as many ranges as the command counts. Advice other than to deallocate
/// is accepted and ignored.
fn check_ranges(command: &Command, is_read_only: bool) -> Result<(), Status> {
    if command.sgl.len_bytes() < DsmRange::count_of(command) * DSM_RANGE_BYTES || command.sgl.len_bytes() > 4096 {
        return Err(Status::SGL_DATA_LENGTH_INVALID.do_not_retry());
    }
    if is_read_only && command.cdw10[1] & DSM_DEALLOCATE != 0 {
        return Err(Status::ATTEMPTED_WRITE_TO_READ_ONLY.do_not_retry());
    }
    Ok(())
}
