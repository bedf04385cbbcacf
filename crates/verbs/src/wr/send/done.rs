//! Completions: work requests that a signaled one covers leave the queue.

use verbline_mem::{Batch, Packet};

use super::{Kept, SendQueue};
use crate::cq::completion::{Completion, Stale, Status};
use crate::wr::buffer::{Buffer, OpDone};
use crate::wr_id::{self, WrKind};

impl SendQueue {
    /// Frees every slot up to that of the completion, which is a send's. Packets go to `freed`, or
    /// to their pool when it is full; buffers of ops are dropped. Returns the number of work
    /// requests that it completes.
    #[inline]
    pub(crate) fn complete(&mut self, completion: &Completion, freed: &mut Batch) -> Result<usize, Stale> {
        let wr_id = completion.wr_id();
        let age = self.sequence.age(wr_id, self.outstanding).ok_or(Stale { wr_id })?;
        let count = self.outstanding - age;
        self.release(count, |packet| drop(freed.push(packet)));
        Ok(count as usize)
    }

    /// Like [`SendQueue::complete`], for an op's completion; returns the op's memory.
    pub(crate) fn complete_op(&mut self, completion: &Completion, freed: &mut Batch) -> Result<OpDone, Stale> {
        let wr_id = completion.wr_id();
        // Ops and sends draw their numbers from the same sequence.
        let number = wr_id ^ wr_id::kind_bits(WrKind::Op);
        let age = self.sequence.age(number, self.outstanding).ok_or(Stale { wr_id })?;
        let done = self.take_op(number, completion.status());
        self.release(self.outstanding - age, |packet| drop(freed.push(packet)));
        Ok(done)
    }

    /// Ends the op in the slot of this number, with the completion's status.
    pub(super) fn take_op(&mut self, number: u64, status: Status) -> OpDone {
        let Some(kept) = self.ops[self.packets.slot(number)].take() else { return OpDone::Memory(Buffer::Empty) };
        self.ops_kept -= 1;
        match kept {
            Kept::Memory(buffer) => OpDone::Memory(buffer),
            Kept::List(list) => OpDone::Memory(Buffer::List(*list)),
            Kept::Bind(bind, buffer) => {
                bind.done(status);
                OpDone::Memory(buffer)
            }
            Kept::Configuration(posted) => posted.done(status).map_or(OpDone::Memory(Buffer::Empty), OpDone::Layout),
        }
    }

    /// Handles the cancellation of the work request of this number. Its completion will look like
    /// that of one that was carried out, so its window or key learns here that it was not.
    pub(crate) fn cancelled(&mut self, wr_id: u64) {
        let number = wr_id & !wr_id::kind_bits(wr_id::kind(wr_id));
        if self.sequence.age(number, self.outstanding).is_none() {
            return;
        }
        let place = &mut self.ops[self.packets.slot(number)];
        *place = place.take().map(|kept| match kept {
            Kept::Bind(bind, buffer) => {
                bind.done(Status::WR_FLUSH_ERR);
                Kept::Memory(buffer)
            }
            Kept::Configuration(posted) => {
                drop(posted.done(Status::WR_FLUSH_ERR));
                Kept::Memory(Buffer::Empty)
            }
            kept @ (Kept::Memory(_) | Kept::List(_)) => kept,
        });
    }

    #[inline]
    fn release(&mut self, count: u32, free: impl FnMut(Packet)) {
        // Inline sends leave nothing behind.
        if self.packets_kept | self.ops_kept | self.listed_kept > 0 {
            self.release_kept(count, free);
        }
        self.outstanding -= count;
    }

    fn release_kept(&mut self, count: u32, mut free: impl FnMut(Packet)) {
        // Slots go round without a jump, even where numbers jump to another block.
        let oldest = self.sequence.next().wrapping_sub(self.outstanding.into());
        for ahead in 0..count {
            let position = oldest.wrapping_add(ahead.into());
            if let Some(packet) = self.packets.at(position).take() {
                self.packets_kept -= 1;
                free(packet);
            }
            if self.ops_kept > 0 {
                self.ops_kept -= u32::from(self.ops[self.packets.slot(position)].take().is_some());
            }
            if self.listed_kept > 0 {
                self.unlist(self.packets.slot(position));
            }
        }
    }

    /// Clears the slot's flag in `listed`. Returns whether it was set.
    #[inline]
    pub(super) fn unlist(&mut self, slot: usize) -> bool {
        let was_listed = std::mem::take(&mut self.listed[slot]);
        self.listed_kept -= u32::from(was_listed);
        was_listed
    }

    /// Frees every slot. The device uses none of the memory any more.
    pub(crate) fn reclaim(&mut self) -> u32 {
        let count = self.outstanding;
        self.release(count, drop);
        self.until_signal = self.signal_every;
        count
    }
}
