//! Memory that a stage owns and that peers may reach: a `[region.NAME]` of the plan.
//!
//! There is no slice of it: a device may write it at any moment. It is read and written by copies
//! and by atomics of whole words, as [`verbline_mem::PeerRegion`] has them. What holds torn data
//! together (a version before and behind it, a flag written last) is the protocol's business.

use std::sync::{Arc, OnceLock};

use verbline_mem::PeerAccessError;
use verbline_plan::Rights;
use verbline_verbs::Access;
use verbline_verbs::expert::SgEntry;
use verbline_verbs::rdma::{KeptRegion, Part, PeerMr, Remote, Span};

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
    /// Its place among the plan's, and so what queue pairs call it.
    number: KeptRegion,
    len_bytes: u64,
    memory: OnceLock<PeerMr>,
}

impl Region {
    pub(crate) fn declared(region: &verbline_plan::Region) -> Region {
        let (name, number) = (region.name.clone(), KeptRegion(region.id.index() as u16));
        Region { shared: Arc::new(Shared { name, number, len_bytes: region.len_bytes, memory: OnceLock::new() }) }
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
    pub fn part(&self, offset: usize, len: usize) -> Option<Part> {
        let end = offset.checked_add(len)?;
        let span = Span::new(offset as u64, len as u64).filter(|_| end <= self.len_bytes())?;
        Some(Part { region: self.shared.number, span })
    }

    /// A part of it for a scatter/gather list ([`Local::List`](crate::Local::List)), which keeps
    /// the region for as long. Refused where it leaves the region.
    pub fn slice(&self, offset: usize, len: u32) -> Result<SgEntry, RegionAccessError> {
        let slice = self.memory()?.slice(offset, len).map(SgEntry::from);
        let (len_bytes, region_bytes) = (len as usize, self.len_bytes());
        slice.ok_or(PeerAccessError::OutOfBounds { offset, len_bytes, region_bytes }.into())
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

/// A plan's rights in the words of verbs.
pub(crate) fn access(rights: Rights) -> Access {
    let words = [
        (Rights::LOCAL_WRITE, Access::LOCAL_WRITE),
        (Rights::REMOTE_READ, Access::REMOTE_READ),
        (Rights::REMOTE_WRITE, Access::REMOTE_WRITE),
        (Rights::REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (Rights::BIND, Access::MW_BIND),
    ];
    let granted = words.into_iter().filter(|(right, _)| rights.contains(*right));
    granted.fold(Access::NONE, |all, (_, access)| all | access)
}
