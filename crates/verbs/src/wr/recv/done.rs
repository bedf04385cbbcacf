//! Completions: filled packets leave the queue, one by one or in runs.

use std::{mem, ptr};

use verbline_mem::{Batch, Packet};

use super::RecvQueue;
use crate::cq::completion::{Completion, Stale};
use crate::wr_id::NO_WR_ID;

impl RecvQueue {
    /// Returns the packet that the completion filled: its length set, the GRH removed. Empty if the
    /// receive failed, or if the data went elsewhere (RDMA WRITE with immediate).
    // Always inlined into its callers, for a queue pair's own queue and for a shared one.
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
        // A length beyond the packet is the device's mistake; the bytes it wrote are not known, so
        // nothing is shown.
        let len = if completion.filled_its_buffer() { completion.byte_len() as usize } else { 0 };
        if !self.form.fill_any(packet, len) {
            packet.reset();
        }
    }

    /// Moves the packets of the completions at the front, as far as they are this queue's next and
    /// succeeded, into `packets`; returns how many.
    #[inline]
    pub(crate) fn complete_run(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        let count = self.complete_stretch(completions, packets);
        if count == completions.len() { count } else { self.complete_rest(completions, count, packets) }
    }

    /// Like [`RecvQueue::complete_run`], up to the end of the slot array.
    #[inline]
    fn complete_stretch(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        let (first, form) = (self.expected, &self.form);
        if first == NO_WR_ID {
            // None is expected, whatever number a device returns.
            return 0;
        }
        let slots = self.packets.stretch(first, self.outstanding);
        // SAFETY: while one is expected, receives are in order, and the slots of all outstanding
        // ones are contiguous. Packets in slots are of the pool of `only`.
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

    /// Like [`RecvQueue::complete_run`], for the completions behind the first `count`: the run goes
    /// on at the first slot, or it has ended.
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
        // `NO_WR_ID`, the only number without a next, ends here.
        let next = wr_id.checked_add(1)?;
        // Empty if nothing is outstanding: the number was not posted yet.
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

    /// Like [`RecvQueue::complete_one`], for an unexpected number.
    #[cold]
    fn complete_unexpected(&mut self, completion: &Completion) -> Option<Packet> {
        if !completion.brought_a_message() || completion.wr_id() == self.expected {
            return None;
        }
        self.complete(completion).ok()
    }

    /// Like [`RecvQueue::complete_run`], for a first completion with an unexpected number.
    #[cold]
    fn complete_first(&mut self, completions: &[Completion], packets: &mut Batch) -> usize {
        match completions.first() {
            Some(first) if !packets.is_full() => {
                self.complete_unexpected(first).map_or(0, |packet| packets.push_iter([packet]))
            }
            _ => 0,
        }
    }

    /// Takes the packet of this number, if it is the one that completes next.
    #[inline]
    fn take_expected(&mut self, wr_id: u64) -> Option<Packet> {
        if wr_id != self.expected {
            return None;
        }
        // `NO_WR_ID`, the only number without a next, ends here.
        let next = wr_id.checked_add(1)?;
        // Empty if nothing is outstanding: the number was not posted yet.
        let packet = self.packets.at(wr_id).take()?;
        self.expected = next;
        self.outstanding -= 1;
        Some(packet)
    }

    /// Takes the packet of this number, if it is outstanding: the first of a block, or one that
    /// completes out of order.
    #[cold]
    fn take_unexpected(&mut self, wr_id: u64) -> Option<Packet> {
        let slot = self.packets.slot(wr_id);
        let age = self.sequence.age(wr_id, self.packets.len());
        // A slot that was passed over holds an older number than the last one that mapped to it.
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

    /// Frees every slot. The device holds none of the packets any more.
    pub(crate) fn reclaim(&mut self) -> u32 {
        self.packets.clear();
        self.passed.fill(0);
        self.expected = self.sequence.next();
        self.set_usual_depth();
        std::mem::take(&mut self.outstanding)
    }
}

/// Takes the packets of the completions out of their slots and into `packets`, as far as their
/// numbers count up from `first`, they succeeded and `fill` takes their lengths; returns how many.
/// It is a separate function so that its state fits the registers: inside the queue's methods, a
/// packet takes half as long again.
///
/// # Safety
/// If the first completion has the number `first`, the slots hold packets.
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
        // SAFETY: `at` is below the count passed to `push_up_to`, and so below both lengths.
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
        // SAFETY: the slot's previous content is in `packet`.
        unsafe { ptr::write(slot, None) };
        expected += 1;
        Some(packet)
    })
}
