//! Long commands in pieces: a Read, Write or Compare that goes through a store moves as many blocks
//! at once as fit a packet of the stage's pool. So a command of any length costs no more memory
//! than a packet (a Compare two); each piece reuses the packet of the one before.

use verbline::engine::{DeclineReason, Operation};
use verbline::prelude::*;
use verbline::verbs::rdma::Remote;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::{Command, Sgl, opcode};

use crate::answering::remote;
use crate::commands::{Io, Pending, Purpose, Work};
use crate::layout::Layout;
use crate::port::HOST;
use crate::stage::Target;
use crate::tag::Tag;

/// The place of a piece's data within that of its command, on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Io {
    /// Makes the next blocks one piece, as many as fit a packet of `bytes`. Returns their number.
    pub(crate) fn begin_part(&mut self, layout: &Layout, bytes: u32) -> u32 {
        self.part = self.left.min(layout.blocks_in(bytes).into());
        // At most the number of blocks of a command, which is a u32.
        self.part as u32
    }

    /// Moves on to the next piece. False if this was the last.
    pub(crate) fn next_part(&mut self) -> bool {
        (self.cursor, self.left) = (self.cursor + self.part, self.left - self.part);
        self.left > 0
    }

    /// The number in the command of the piece's first block.
    pub(crate) fn first(&self, command: &Command) -> u32 {
        (self.cursor - ReadWrite::of(command).slba) as u32
    }

    /// The place of the piece's data on the wire; that of all data for commands that do not move in
    /// pieces.
    pub(crate) fn piece(&self, command: &Command, layout: &Layout) -> Piece {
        match command.opcode {
            opcode::io::READ | opcode::io::WRITE | opcode::io::COMPARE => Piece {
                offset: layout.wire_bytes(command, self.first(command)) as usize,
                len: layout.wire_bytes(command, self.part as u32) as usize,
            },
            _ => Piece { offset: 0, len: command.sgl.len_bytes() },
        }
    }

    /// The step that brings the host's data of the next piece.
    pub(crate) fn bring(self, sgl: Sgl) -> Work {
        match sgl {
            Sgl::Keyed { .. } => Work::Place(Purpose::Io(self)),
            Sgl::InCapsule { .. } => Work::Copy(self),
        }
    }
}

/// The host's memory from `offset` on.
pub(crate) fn beyond(to: Remote, offset: usize) -> Remote {
    // A made-up address of a host may wrap: its key reaches nothing there.
    Remote { addr: to.addr.wrapping_add(offset as u64), ..to }
}

impl Target {
    /// Begins the next piece of a command whose data the host has.
    pub(crate) fn begin_piece(&self, command: &Command, io: &mut Io) -> Piece {
        let layout = &self.spaces.get(&io.of).layout;
        io.begin_part(layout, self.piece_bytes);
        io.piece(command, layout)
    }

    /// The host's memory for a Read, or for a fetch of this purpose.
    pub(crate) fn remote_of(&self, command: &Command, purpose: &Purpose) -> Option<Remote> {
        let to = remote(command.sgl)?;
        Some(match purpose {
            Purpose::Io(io) => beyond(to, io.piece(command, &self.spaces.get(&io.of).layout).offset),
            Purpose::Connect | Purpose::Authentication | Purpose::Blocks(_) => to,
        })
    }

    /// Sends the host a piece of its Read, but not the last, which goes with the response.
    pub(crate) fn send_piece(&mut self, place: u32, pending: Pending, out: &mut Outputs<'_>) {
        match self.for_room.has(pending.queue) {
            true => self.wait_for_room(place, pending),
            false => self.send_piece_now(place, pending, out),
        }
    }

    /// Like [`send_piece`](Self::send_piece), for a command whose turn it is.
    pub(crate) fn send_piece_now(&mut self, place: u32, mut pending: Pending, out: &mut Outputs<'_>) {
        let at = pending.queue;
        if !self.may_post(at, 1) {
            return self.wait_for_room(place, pending);
        }
        let connection = self.queues.get(at).filter(|queue| queue.is_open).map(|queue| queue.connection);
        let Work::Piece(io) = &mut pending.work else { return self.commands.put(place, pending) };
        let piece = io.piece(&pending.command, &self.spaces.get(&io.of).layout);
        let to = remote(pending.command.sgl).map(|to| beyond(to, piece.offset));
        let (Some(connection), Some(to), Some(packet)) = (connection, to, io.data.take()) else {
            return self.forget(place, pending);
        };
        let write = Operation::write(packet, to).over(connection).tag(Tag::Response.to_u64());
        match out.operate(HOST, write) {
            Ok(()) => {
                io.next_part();
                let Work::Piece(io) = std::mem::replace(&mut pending.work, Work::Event) else { return };
                self.took_room(at, 1);
                self.advance_with(place, Pending { work: Work::Store(io), ..pending }, out);
            }
            Err(no) if no.reason == DeclineReason::Full => {
                io.data = no.operation.into_local().into_packet();
                self.wait_for_room(place, pending);
            }
            Err(_) => {
                // As for a response that can't be posted.
                out.close(connection);
                self.forget(place, pending);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use verbline_nvme::protection::ProtectionType;

    use super::*;
    use crate::namespace_table::Use;

    /// Pieces fill their packets, follow one another, and cover the command.
    #[test]
    fn pieces_make_the_command() {
        let kinds = [None, Some(ProtectionType::Type1)];
        for (kind, block_bytes, packet_bytes, blocks) in kinds
            .into_iter()
            .flat_map(|kind| [(kind, 512, 4096, 100), (kind, 4096, 4104, 3), (kind, 4096, 33_280, 256)])
        {
            let layout = Layout::new(block_bytes, kind, true);
            let range = ReadWrite { slba: 7, blocks };
            let command = Command::new(opcode::io::READ, 0, Sgl::NONE).with(range.dwords());
            let mut io = Io::new(Use::of_done(0), (7, blocks.into()));
            let (mut end, mut first) = (0, 0);
            loop {
                let part = io.begin_part(&layout, packet_bytes);
                let piece = io.piece(&command, &layout);
                assert_eq!((piece.offset, io.first(&command)), (end, first));
                assert!(part > 0 && part * layout.stored_bytes() <= packet_bytes, "{part} blocks fit a packet");
                (end, first) = (end + piece.len, first + part);
                if !io.next_part() {
                    break;
                }
                assert!((part + 1) * layout.stored_bytes() > packet_bytes, "one more would not");
            }
            assert_eq!((end as u64, first), (layout.wire_bytes(&command, blocks), blocks));
        }
    }
}
