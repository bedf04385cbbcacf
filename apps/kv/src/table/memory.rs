//! The memory of a table: a region of the plan.

use verbline::engine::Region;

/// An access beyond the memory. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfReach;

/// Memory that others may read at the same time, in whole words of 8 bytes.
pub(crate) trait Memory {
    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfReach>;
    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfReach>;
    fn store_u64(&self, offset: usize, value: u64) -> Result<(), OutOfReach>;
}

impl Memory for Region {
    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfReach> {
        Region::read_into(self, offset, bytes).map_err(|_| OutOfReach)
    }

    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfReach> {
        Region::write_from(self, offset, bytes).map_err(|_| OutOfReach)
    }

    fn store_u64(&self, offset: usize, value: u64) -> Result<(), OutOfReach> {
        Region::store_u64(self, offset, value).map_err(|_| OutOfReach)
    }
}

/// A region without a plan around it.
#[cfg(test)]
impl Memory for std::sync::Arc<verbline::mem::PeerRegion> {
    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfReach> {
        verbline::mem::PeerRegion::read_into(self, offset, bytes).map_err(|_| OutOfReach)
    }

    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfReach> {
        verbline::mem::PeerRegion::write_from(self, offset, bytes).map_err(|_| OutOfReach)
    }

    fn store_u64(&self, offset: usize, value: u64) -> Result<(), OutOfReach> {
        verbline::mem::PeerRegion::store_u64(self, offset, value).map_err(|_| OutOfReach)
    }
}
