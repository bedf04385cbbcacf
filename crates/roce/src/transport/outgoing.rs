//! A packet about to be sent, before its payload is read.

use crate::wire::{Bth, Segment};

/// The packet, and the place of its payload in the data of its work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) bth: Bth,
    pub(crate) segment: Segment,
    /// The index of the send work request.
    pub(crate) index: u64,
    /// The payload's offset in the work request's data.
    pub(crate) offset: u64,
    pub(crate) payload: usize,
    /// The number of packet numbers that it takes: a READ request takes those of its answer.
    pub(crate) packets: u32,
}
