//! Completions: filled packets leave the queue, one by one or in runs.

use std::{mem, ptr};

use verbline_mem::{Batch, Packet};

use super::RecvQueue;
use crate::cq::completion::{Completion, Stale};
use crate::wr_id::NO_WR_ID;

impl RecvQueue {
    /// The packet that the completion filled: its length set, the GRH taken off. Empty when the
    /// receive failed, or when the data went elsewhere (RDMA WRITE with immediate).
    // Always a part of its callers: those of a queue pair's own queue and of a shared one.
    #[inline(always)]
    pub(crate) fn complete(&mut self, completion: &Completion) -> Result<Packet, Stale> {
        let wr_id = completion.wr_id();
        let mut packet = match self.take_expected(wr_id) {
            Some(packet) => packet,
            None => self.take_unexpected(wr_id).ok_or(Stale { wr_id })?,
        };
        // SAFETY: it was in a slot.
        if !completion.brought_a_message() || !unsafe { self.form.fill(&mut packet, completion.raw_len()) } {
            self.fill_unusual(completion, &mut packet);
        }
        Ok(packet)
    }

    #[cold]
    fn fill_unusual(&self, completion: &Completion, packet: &mut Packet) {
        // A length beyond the packet is the device's mistake; what it wrote is not known, so
        // nothing is shown.
        let len = if completion.filled_its_buffer() { completion.byte_len() as usize } else { 0 };
        if !self.form.fill_any(packet, len) {
            packet.reset();
        }
    }

    /// Moves the packets of the completions at the front, as far as they are this queue's next and
    /// succeeded, into `packets`; gives how many.
    #[inline]
    pub(crate) fn complete_run(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        let count = self.complete_stretch(completions, packets);
        if count == completions.len() { count } else { self.complete_rest(completions, count, packets) }
    }

    /// Like [`RecvQueue::complete_run`], as far as the array of slots goes.
    #[inline]
    fn complete_stretch(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        let (first, form) = (self.expected, &self.form);
        if first == NO_WR_ID {
            // None is expected, whatever number a device comes with.
            return 0;
        }
        let slots = self.packets.stretch(first, self.outstanding);
        // SAFETY: while one is expected, receives are in order, and the slots of all that are
        // outstanding follow each other. Packets in slots are of the only pool.
        let count = unsafe {
            match &form.only {
                Some(only) => take_filled(completions, slots, packets, first, |packet, len| packet.reset_by(only, len)),
                None => take_filled(completions, slots, packets, first, |packet, len| form.fill_any(packet, len)),
            }
        };
        self.expected = first + count as u64;
        self.outstanding -= count as u32;
        count
    }

    /// Like [`RecvQueue::complete_run`], of the completions behind the first `count`: their slots
    /// begin again, or it is no run.
    #[cold]
    fn complete_rest(&mut self, completions: &[Completion], count: usize, packets: &mut Batch) -> usize {
        match count {
            0 => self.complete_first(completions, packets),
            _ if self.packets.slot(self.expected) == 0 => count + self.complete_stretch(&completions[count..], packets),
            _ => count,
        }
    }

    /// [`RecvQueue::complete_run`] of one completion, without a loop.
    #[inline(always)]
    pub(crate) fn complete_one(&mut self, completion: &Completion) -> Option<Packet> {
        let wr_id = completion.wr_id();
        if wr_id != self.expected {
            return self.complete_unexpected(completion);
        }
        if !completion.brought_a_message() {
            return None;
        }
        // `NO_WR_ID`, which no other number is, has no next.
        let next = wr_id.checked_add(1)?;
        // Empty when nothing is outstanding: then the number is not one yet.
        let mut packet = self.packets.at(wr_id).take()?;
        // SAFETY: it was in a slot.
        if !unsafe { self.form.fill(&mut packet, completion.raw_len()) } {
            self.packets.put(wr_id, Some(packet));
            return None;
        }
        self.expected = next;
        self.outstanding -= 1;
        Some(packet)
    }

    /// Like [`RecvQueue::complete_one`], of a number that was not expected.
    #[cold]
    fn complete_unexpected(&mut self, completion: &Completion) -> Option<Packet> {
        if !completion.brought_a_message() || completion.wr_id() == self.expected {
            return None;
        }
        self.complete(completion).ok()
    }

    /// Like [`RecvQueue::complete_run`], of one whose number was not expected.
    #[cold]
    fn complete_first(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        match completions.first() {
            Some(first) if !packets.is_full() => {
                self.complete_unexpected(first).map_or(0, |packet| packets.push_iter([packet]))
            }
            _ => 0,
        }
    }

    /// The packet of this number, if it is the one that completes next.
    #[inline]
    fn take_expected(&mut self, wr_id: u64) -> Option<Packet> {
        if wr_id != self.expected {
            return None;
        }
        // `NO_WR_ID`, which no other number is, has no next.
        let next = wr_id.checked_add(1)?;
        // Empty when nothing is outstanding: then the number is not one yet.
        let packet = self.packets.at(wr_id).take()?;
        self.expected = next;
        self.outstanding -= 1;
        Some(packet)
    }

    /// The packet of this number, if it is outstanding: the first of a block, or one that completes
    /// out of order.
    #[cold]
    fn take_unexpected(&mut self, wr_id: u64) -> Option<Packet> {
        let slot = self.packets.slot(wr_id);
        let age = self.sequence.age(wr_id, self.packets.len());
        // A slot that was passed over holds an older number than the last that fell on it.
        let is_its = if self.passed[slot] == 0 { age.is_some() } else { self.passed[slot] == wr_id };
        if !is_its {
            return None;
        }
        let packet = self.packets.at(wr_id).take()?;
        self.passed[slot] = 0;
        let oldest = self.expected != NO_WR_ID && age == Some(self.outstanding - 1);
        self.outstanding -= 1;
        self.expected = match self.outstanding {
            0 => self.sequence.next(),
            _ if oldest => wr_id + 1,
            _ => NO_WR_ID,
        };
        self.set_usual_depth();
        Some(packet)
    }

    /// Frees every slot: the device has let go of all of them.
    pub(crate) fn reclaim(&mut self) -> u32 {
        self.packets.clear();
        self.passed.fill(0);
        self.expected = self.sequence.next();
        self.set_usual_depth();
        std::mem::take(&mut self.outstanding)
    }
}

/// Takes the packets of the completions out of their slots and into `packets`, as far as their
/// numbers count up from `first`, they succeeded and `fill` takes their lengths; gives how many. A
/// function of its own, since what it needs then fits the registers: with the queue around it, a
/// packet takes half as much again.
///
/// # Safety
/// Where the first completion has that number, the slots are taken.
#[inline(never)]
unsafe fn take_filled(
    completions: &[Completion],
    slots: &mut [Option<Packet>],
    packets: &mut Batch,
    first: u64,
    fill: impl Fn(&mut Packet, usize) -> bool,
) -> usize {
    let mut expected = first;
    packets.push_up_to(completions.len().min(slots.len()), |at| {
        // SAFETY: it is asked with less than the number of either, as it was told.
        let (completion, slot) = unsafe { (completions.get_unchecked(at), slots.get_unchecked_mut(at)) };
        if completion.wr_id() != expected || !completion.brought_a_message() {
            return None;
        }
        // SAFETY: the caller's word. The slot is emptied, or the packet forgotten.
        let mut packet = unsafe { ptr::read(slot).unwrap_unchecked() };
        if !fill(&mut packet, completion.raw_len()) {
            mem::forget(packet);
            return None;
        }
        // SAFETY: what was there is in `packet`.
        unsafe { ptr::write(slot, None) };
        expected += 1;
        Some(packet)
    })
}
