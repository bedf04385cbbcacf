//! Packets of a batch offered one by one, and kept where they are not wanted.

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
