//! Memory that a stage owns and that peers may reach: a `[region.NAME]` of the plan.
//!
//! There is no slice of it: a device may write it at any moment. It is read and written by copies
//! and by atomics of whole words, as [`verbline_mem::PeerRegion`] has them. What holds torn data
//! together (a version before and behind it, a flag written last) is the protocol's business.

use std::sync::{Arc, OnceLock};

use verbline_mem::PeerAccessError;
use verbline_verbs::rdma::{PeerMr, Remote, Span};

/// Why an access was refused. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionAccessError {
    /// It leaves the region, or is not aligned as it must be.
    #[error(transparent)]
    Range(#[from] PeerAccessError),
    /// Its memory is not there yet.
    #[error("a region has its memory once the runtime is built: use it from the stage's methods, not in its factory")]
    NotMade,
}

/// A region of the plan, in the hands of the stage that owns it. Its memory is there once the
/// runtime is built: from the first call of a method of the stage on, and not in its factory.
#[derive(Clone, Debug)]
pub struct Region {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    /// Its place among the plan's.
    index: u16,
    len_bytes: u64,
    memory: OnceLock<PeerMr>,
}

/// A part of a region, for an operation to read from or write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// The region's place among the plan's.
    pub(crate) region: u16,
    pub(crate) span: Span,
}

impl Range {
    /// Where it starts in its region, bytes.
    pub fn offset(self) -> usize {
        self.span.offset() as usize
    }

    /// Length, bytes.
    pub fn len(self) -> usize {
        self.span.len_bytes() as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.span.is_empty()
    }
}

impl Region {
    pub(crate) fn declared(region: &verbline_plan::Region) -> Region {
        let (name, index) = (region.name.clone(), region.id.index() as u16);
        Region { shared: Arc::new(Shared { name, index, len_bytes: region.len_bytes, memory: OnceLock::new() }) }
    }

    /// Its memory has been made, once.
    pub(crate) fn made(&self, memory: PeerMr) {
        let before = self.shared.memory.set(memory);
        debug_assert!(before.is_ok(), "a region is made once");
    }

    /// Its name in the plan.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its length, bytes, as the plan has it.
    pub fn len_bytes(&self) -> usize {
        self.shared.len_bytes as usize
    }

    /// A part of it for an operation; `None` if that leaves it.
    #[inline]
    pub fn range(&self, offset: usize, len: usize) -> Option<Range> {
        let end = offset.checked_add(len)?;
        let span = Span::new(offset as u64, len as u64).filter(|_| end <= self.len_bytes())?;
        Some(Range { region: self.shared.index, span })
    }

    /// What to tell a peer so that it can reach the bytes from `offset` on, as far as the region's
    /// `rights` let it ([`Remote::to_bytes`] for a message). The key is that of the whole region,
    /// and holds for as long as the run.
    pub fn remote(&self, offset: usize) -> Result<Remote, RegionAccessError> {
        Ok(self.memory()?.remote(offset as u64))
    }

    /// Copies `bytes.len()` bytes from `offset` on; each aligned word of 8 bytes is read whole.
    pub fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), RegionAccessError> {
        Ok(self.memory()?.read_into(offset, bytes)?)
    }

    /// Copies `bytes` to `offset` on; each aligned word of 8 bytes is written whole.
    pub fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), RegionAccessError> {
        Ok(self.memory()?.write_from(offset, bytes)?)
    }

    /// The word at `offset`, a multiple of 8, in this machine's byte order. Acquires.
    pub fn load_u64(&self, offset: usize) -> Result<u64, RegionAccessError> {
        Ok(self.memory()?.load_u64(offset)?)
    }

    /// Stores the word at `offset`, a multiple of 8. Releases.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), RegionAccessError> {
        Ok(self.memory()?.store_u64(offset, value)?)
    }

    pub(crate) fn memory(&self) -> Result<&PeerMr, RegionAccessError> {
        self.shared.memory.get().ok_or(RegionAccessError::NotMade)
    }
}
