//! Packets of a batch offered one by one, and kept where they are not wanted; or dealt out to other
//! batches that have room for all of them.

use crate::batch::Batch;
use crate::packet::Packet;

impl Batch {
    /// Offers each packet to `take`, in order, and keeps those that it gives back; returns how many
    /// it took.
    #[inline]
    pub fn offer(&mut self, mut take: impl FnMut(Packet) -> Result<(), Packet>) -> usize {
        /// Where the packets are while the batch counts none: `kept` at the front, the rest from
        /// `next` on. Closes the gap between them, also if `take` panics.
        struct Open<'a> {
            packets: &'a mut Vec<Packet>,
            kept: usize,
            next: usize,
            len: usize,
        }
        impl Drop for Open<'_> {
            #[inline]
            fn drop(&mut self) {
                let rest = self.len - self.next;
                let start = self.packets.as_mut_ptr();
                // SAFETY: both ranges lie below `len`, which were packets when the offer began; the
                // slots from `kept` to `next` are empty, since what was in them was taken or moved.
                unsafe {
                    std::ptr::copy(start.add(self.next), start.add(self.kept), rest);
                    self.packets.set_len(self.kept + rest);
                }
            }
        }
        let len = self.packets.len();
        // SAFETY: shortening a vector; `Open` has what is cut off.
        unsafe { self.packets.set_len(0) };
        let mut open = Open { packets: &mut self.packets, kept: 0, next: 0, len };
        while open.next < len {
            let start = open.packets.as_mut_ptr();
            // SAFETY: below `len` and not read before, since `next` only grows.
            let packet = unsafe { start.add(open.next).read() };
            open.next += 1;
            if let Err(back) = take(packet) {
                // SAFETY: below `next`, so that the slot was read, and at or behind `kept`, so that
                // nothing was put into it since.
                unsafe { start.add(open.kept).write(back) };
                open.kept += 1;
            }
        }
        len - open.kept
    }
}

/// The progress of a deal. Dropping it, also in a panic, restores both sides: dealt packets are in
/// their targets, and the rest is in the batch.
struct Dealing<'a, const N: usize> {
    from: &'a mut Vec<Packet>,
    next: usize,
    len: usize,
    targets: [&'a mut Batch; N],
    /// Where the next packet of each target goes.
    ends: [*mut Packet; N],
}

impl<const N: usize> Drop for Dealing<'_, N> {
    #[inline]
    fn drop(&mut self) {
        for (target, end) in self.targets.iter_mut().zip(self.ends) {
            let start = target.packets.as_ptr();
            // SAFETY: the end began behind the target's packets and moved up by one for each that
            // was written there, within the room that `deal` saw.
            unsafe { target.packets.set_len(end.cast_const().offset_from_unsigned(start)) };
        }
        let (rest, start) = (self.len - self.next, self.from.as_mut_ptr());
        // SAFETY: `next` and `len` lie within what were packets when the deal began, and those
        // from `next` on were not moved.
        unsafe {
            std::ptr::copy(start.add(self.next), start, rest);
            self.from.set_len(rest);
        }
    }
}

impl Batch {
    /// Moves each packet, in order, to the end of one of the targets, by the number that `place`
    /// gives for it. False, and nothing is done, if one of them has not room for all.
    ///
    /// # Panics
    /// If `place` gives a number of no target; that packet and those behind it stay.
    #[inline]
    pub fn deal<const N: usize>(&mut self, targets: [&mut Batch; N], mut place: impl FnMut(&Packet) -> usize) -> bool {
        let len = self.packets.len();
        if targets.iter().any(|target| target.room() < len) {
            return false;
        }
        let mut targets = targets;
        // SAFETY: the end of a vector's packets is within its allocation, or one behind it.
        let ends = std::array::from_fn(|at| unsafe {
            let packets = &mut targets[at].packets;
            packets.as_mut_ptr().add(packets.len())
        });
        // SAFETY: shortening a vector; `Dealing` has what is cut off.
        unsafe { self.packets.set_len(0) };
        let mut dealing = Dealing { from: &mut self.packets, next: 0, len, targets, ends };
        while dealing.next < len {
            // SAFETY: below `len` and not moved yet, since `next` only grows.
            let packet = unsafe { dealing.from.as_ptr().add(dealing.next) };
            // SAFETY: as above; borrowed for the call alone.
            let at = place(unsafe { &*packet });
            let end = &mut dealing.ends[at];
            // SAFETY: each target had room for as many packets as there are, and targets are
            // borrowed mutably, so that none is the batch or another target. The packet moves:
            // `next` leaves it behind.
            unsafe {
                std::ptr::copy_nonoverlapping(packet, *end, 1);
                *end = end.add(1);
            }
            dealing.next += 1;
        }
        true
    }
}
