//! A packet that is about to be sent, before its payload was read.

use crate::wire::{Bth, Segment};

/// The packet, and which bytes of which work request it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) bth: Bth,
    pub(crate) segment: Segment,
    /// The send work request.
    pub(crate) index: u64,
    /// Where in its bytes the payload begins.
    pub(crate) offset: u64,
    pub(crate) payload: usize,
    /// The packet numbers that it takes: a READ request has those of its answer.
    pub(crate) packets: u32,
}
