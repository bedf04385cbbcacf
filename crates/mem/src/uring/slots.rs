//! Who owns what is under way: a slot an entry, with its packet, until the kernel says that it is
//! done.

use crate::packet::Packet;

/// One entry under way.
#[derive(Debug, Default)]
struct Slot {
    tag: u64,
    packet: Option<Packet>,
    is_used: bool,
}

/// As many slots as entries can be under way.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Slots {
        Slots { slots: (0..count).map(|_| Slot::default()).collect(), free: (0..count).rev().collect() }
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
        self.slots[index as usize] = Slot { tag, packet, is_used: true };
        Ok(index)
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
