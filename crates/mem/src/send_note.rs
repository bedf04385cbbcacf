//! How a packet is to be sent, for the port that sends it.

use crate::packet::Packet;

impl Packet {
    /// The options that the packet asks of its send, or their outcome. The sender defines the
    /// meaning. 0 after [`Packet::reset`].
    #[inline]
    #[must_use]
    pub fn send_note(&self) -> u8 {
        self.view().send_note
    }

    /// Sets [`Packet::send_note`].
    #[inline]
    pub fn set_send_note(&mut self, note: u8) {
        self.view_mut().send_note = note;
    }
}
