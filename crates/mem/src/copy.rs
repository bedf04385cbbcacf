//! Copies of packets, within a pool or from one to another.

use crate::packet::Packet;
use crate::shared::View;

impl Packet {
    /// Makes this packet a copy of another: its data, from where this packet's starts, and its
    /// port, connection, timestamp and mark. False, and no change, if the data is longer than
    /// `capacity()`.
    #[inline]
    #[must_use = "refused, the packet is as before"]
    pub fn copy_from(&mut self, other: &Packet) -> bool {
        let fits = other.len() <= self.capacity();
        if fits {
            let (from, own) = (*other.view(), *self.view());
            *self.view_mut() = View { start: own.start, buffer_bytes: own.buffer_bytes, ..from };
            self.set_connection(other.connection());
            self.data_mut().copy_from_slice(other.data());
        }
        fits
    }
}
