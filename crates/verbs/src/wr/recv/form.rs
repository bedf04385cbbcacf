//! The work request of a receive, and the packet's length once its message has come.

use rdma_sys::ibv_sge;
use verbline_mem::{Packet, PoolForm};

use crate::wr::post::{PostStop, registered_lkey};

/// What a work request says of its packet: the same for all of a pool, so it is looked up when the
/// pool changes.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// The pool's number, which no other pool ever has; 0 at first.
    pub(super) pool: u64,
    /// Where the device writes, from the buffer's start on, bytes.
    offset: u64,
    /// Length, and above it the key: one word, so that it is written as one.
    length_lkey: u64,
    /// Bytes that come before the message.
    lead_bytes: usize,
    pd_id: u64,
    /// What the packets are like, while all that the queue holds are of this pool and nothing comes
    /// before their messages. A queue that once held packets of two pools goes without until it
    /// meets another while it is empty.
    pub(super) only: Option<PoolForm>,
}

impl Form {
    /// Of no pool yet.
    pub(super) fn new(pd_id: u64, lead_bytes: usize) -> Form {
        Form { pd_id, lead_bytes, pool: 0, offset: 0, length_lkey: 0, only: None }
    }

    /// `alone` says that the queue holds nothing.
    #[cold]
    pub(super) fn learned(self, packet: &Packet, alone: bool) -> Result<Form, PostStop> {
        let lkey = registered_lkey(packet, self.pd_id)?;
        // What comes before the message goes into the headroom if that is long enough, so that the
        // message lands where messages lie; else where those lie.
        let (headroom, capacity) = (packet.fresh_headroom(), packet.fresh_capacity());
        let lead = if headroom < self.lead_bytes { 0 } else { self.lead_bytes };
        let length = u32::try_from(capacity + lead).unwrap_or(u32::MAX);
        let length_lkey = u64::from(lkey) << 32 | u64::from(length);
        let only = (alone && self.lead_bytes == 0).then(|| packet.pool_form());
        Ok(Form { pool: packet.pool_id(), offset: (headroom - lead) as u64, length_lkey, only, ..self })
    }

    #[inline]
    pub(super) fn sge(&self, packet: &Packet) -> ibv_sge {
        // The length is not 0, which would mean 2^31: a pool's packets have room.
        let [length, lkey] = [self.length_lkey as u32, (self.length_lkey >> 32) as u32];
        ibv_sge { addr: packet.buffer_addr() + self.offset, length, lkey }
    }

    /// Makes the packet hold the message; `len` counts what came before it too. False, and no
    /// change, when `len` bytes cannot have come.
    ///
    /// # Safety
    /// The packet is, or was, in a slot of the queue whose form this is.
    #[inline]
    pub(super) unsafe fn fill(&self, packet: &mut Packet, len: usize) -> bool {
        match &self.only {
            // SAFETY: all that are in slots are of this pool.
            Some(only) => unsafe { packet.reset_by(only, len) },
            None => self.fill_any(packet, len),
        }
    }

    /// Like [`Form::fill`], of any packet.
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
