//! The packets of submitted entries: each entry has a slot, which owns its packet until the kernel
//! reports its completion.

use crate::packet::Packet;

/// One entry under way.
#[derive(Debug, Default)]
struct Slot {
    tag: u64,
    packet: Option<Packet>,
    is_used: bool,
    /// How many entries were put in before.
    order: u64,
}

/// As many slots as entries can be under way.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Entries that were ever put in.
    puts: u64,
}

impl Slots {
    pub(super) fn new(count: u32) -> Slots {
        let slots = (0..count).map(|_| Slot::default()).collect();
        Slots { slots, free: (0..count).rev().collect(), puts: 0 }
    }

    pub(super) fn used(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Puts an entry into a free slot; gives the slot's number, or the packet back if none is free.
    pub(super) fn put(&mut self, tag: u64, packet: Option<Packet>) -> Result<u32, Option<Packet>> {
        let Some(index) = self.free.pop() else { return Err(packet) };
        self.slots[index as usize] = Slot { tag, packet, is_used: true, order: self.puts };
        self.puts += 1;
        Ok(index)
    }

    /// Takes out the entry that was put in last, as if it had never been: gives its packet.
    pub(super) fn undo_put(&mut self, index: u32) -> Option<Packet> {
        self.puts -= 1;
        self.take(index.into()).and_then(|(_, packet)| packet)
    }

    /// Takes out those of the last `count` entries that are still in, and gives `each` their tags
    /// and packets.
    pub(super) fn take_last(&mut self, count: usize, mut each: impl FnMut(u64, Option<Packet>)) {
        let first = self.puts.saturating_sub(count as u64);
        for index in 0..self.slots.len() {
            if self.slots[index].is_used && self.slots[index].order >= first {
                let (tag, packet) = self.take(index as u64).unwrap_or_default();
                each(tag, packet);
            }
        }
    }

    /// Takes an entry out, by the number that the kernel gave back. `None`: nothing is there, which
    /// only a kernel that completes an entry twice brings about.
    pub(super) fn take(&mut self, index: u64) -> Option<(u64, Option<Packet>)> {
        let slot = self.slots.get_mut(usize::try_from(index).ok()?).filter(|slot| slot.is_used)?;
        slot.is_used = false;
        let taken = (slot.tag, slot.packet.take());
        self.free.push(index as u32);
        Some(taken)
    }

    /// Leaves all packets to the kernel, for good: their pools are never freed.
    pub(super) fn leave_to_kernel(&mut self) {
        self.slots.iter_mut().filter_map(|slot| slot.packet.take()).for_each(std::mem::forget);
    }
}
