//! What every store checks of a request before it does anything.

use crate::request::{Fault, Op, Request};
use crate::store::Geometry;

/// Where a request's blocks lie, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// The bytes of a request in a store of this geometry, or what is wrong with it.
///
/// # Errors
/// [`Fault::OutOfRange`], [`Fault::BadMemory`], [`Fault::Misaligned`] or [`Fault::ReadOnly`].
#[inline]
pub fn extent(request: &Request, geometry: &Geometry) -> Result<Extent, Fault> {
    if request.op.is_change() && geometry.read_only {
        return Err(Fault::ReadOnly);
    }
    let block_bytes = u64::from(geometry.block_bytes);
    let end = request.lba.checked_add(u64::from(request.blocks)).filter(|end| *end <= geometry.blocks);
    if end.is_none() {
        return Err(Fault::OutOfRange);
    }
    let extent = Extent { offset: request.lba * block_bytes, len: u64::from(request.blocks) * block_bytes };
    let fits = match (&request.packet, request.op) {
        (Some(packet), Op::Read | Op::Write { .. }) => packet.len() as u64 == extent.len,
        (None, op) => !op.moves_data(),
        (Some(_), _) => false,
    };
    match &request.packet {
        _ if !fits => Err(Fault::BadMemory),
        Some(packet) if !geometry.is_aligned(packet) => Err(Fault::Misaligned),
        _ => Ok(extent),
    }
}
