//! The work request of a receive, and the packet's length once its message has come.

use rdma_sys::ibv_sge;
use verbline_mem::{Packet, PoolForm};

use crate::wr::post::{PostStop, registered_lkey};

/// The fields of a receive's work request. They are the same for all packets of a pool, so they are
/// looked up when the pool changes.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// The pool's number, which no other pool ever has; 0 at first.
    pub(super) pool: u64,
    /// The offset in the buffer at which the device writes, bytes.
    offset: u64,
    /// The length, and above it the key: one word, so that one store writes both.
    length_lkey: u64,
    /// Bytes before the message.
    lead_bytes: usize,
    pd_id: u64,
    /// The layout of the packets, while all packets in the queue are of this pool and nothing comes
    /// before their messages. A queue that has held packets of two pools has `None` until it meets
    /// a new pool while empty.
    pub(super) only: Option<PoolForm>,
}

impl Form {
    /// A form without a pool.
    pub(super) fn new(pd_id: u64, lead_bytes: usize) -> Form {
        Form { pd_id, lead_bytes, pool: 0, offset: 0, length_lkey: 0, only: None }
    }

    /// Learns the pool of a packet; `alone` says that the queue holds nothing.
    #[cold]
    pub(super) fn learned(self, packet: &Packet, alone: bool) -> Result<Form, PostStop> {
        let lkey = registered_lkey(packet, self.pd_id)?;
        // The bytes before the message go into the headroom if it is long enough, so that the
        // message lands at its usual place; else they land there themselves.
        let (headroom, capacity) = (packet.fresh_headroom(), packet.fresh_capacity());
        let lead = if headroom < self.lead_bytes { 0 } else { self.lead_bytes };
        let length = u32::try_from(capacity + lead).unwrap_or(u32::MAX);
        let length_lkey = u64::from(lkey) << 32 | u64::from(length);
        let only = (alone && self.lead_bytes == 0).then(|| packet.pool_form());
        Ok(Form { pool: packet.pool_id(), offset: (headroom - lead) as u64, length_lkey, only, ..self })
    }

    #[inline]
    pub(super) fn sge(&self, packet: &Packet) -> ibv_sge {
        // The length is not 0, which would mean 2^31: a pool's packets have space.
        let [length, lkey] = [self.length_lkey as u32, (self.length_lkey >> 32) as u32];
        ibv_sge { addr: packet.buffer_addr() + self.offset, length, lkey }
    }

    /// Makes the packet hold the message; `len` includes the bytes before it. Returns false, and
    /// changes nothing, if `len` is impossible.
    ///
    /// # Safety
    /// The packet is, or was, in a slot of the queue of this form.
    #[inline]
    pub(super) unsafe fn fill(&self, packet: &mut Packet, len: usize) -> bool {
        match &self.only {
            // SAFETY: all that are in slots are of this pool.
            Some(only) => unsafe { packet.reset_by(only, len) },
            None => self.fill_any(packet, len),
        }
    }

    /// Like [`Form::fill`], for any packet.
    pub(super) fn fill_any(&self, packet: &mut Packet, len: usize) -> bool {
        match self.lead_bytes {
            0 => packet.reset_to(len),
            lead => fill_behind(packet, lead, len),
        }
    }
}

fn fill_behind(packet: &mut Packet, lead: usize, len: usize) -> bool {
    if packet.fresh_headroom() >= lead {
        return len.checked_sub(lead).is_some_and(|len| packet.reset_to(len));
    }
    len >= lead && packet.reset_to(len) && packet.trim_front(lead)
}
