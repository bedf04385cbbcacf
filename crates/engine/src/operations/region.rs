//! Memory that a stage owns and that peers may reach: a `[region.NAME]` of the plan.
//!
//! There is no slice of it: a device may write it at any moment. It is read and written by copies
//! and by atomics of whole words, like [`verbline_mem::PeerRegion`]. Protection from torn data (a
//! version before and behind it, a flag written last) is up to the protocol.

use std::sync::{Arc, OnceLock};

use verbline_mem::PeerAccessError;
use verbline_plan::Rights;
use verbline_verbs::Access;
use verbline_verbs::expert::SgEntry;
use verbline_verbs::rdma::{KeptRegion, Part, PeerMr, Remote, Span};

/// The reason why an access was refused. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionAccessError {
    /// It leaves the region, or is not aligned as required.
    #[error(transparent)]
    Range(#[from] PeerAccessError),
    /// The region has no memory yet.
    #[error("a region has its memory once the runtime is built: use it from the stage's methods, not in its factory")]
    NotMade,
}

/// A region of the plan, in the hands of its stage. Its memory exists once the runtime is built:
/// from the first call of a method of the stage on, and not in its factory.
#[derive(Clone, Debug)]
pub struct Region {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    /// Its index in the plan, which is its number for queue pairs.
    number: KeptRegion,
    len_bytes: u64,
    memory: OnceLock<PeerMr>,
}

impl Region {
    pub(crate) fn declared(region: &verbline_plan::Region) -> Region {
        let (name, number) = (region.name.clone(), KeptRegion(region.id.index() as u16));
        Region { shared: Arc::new(Shared { name, number, len_bytes: region.len_bytes, memory: OnceLock::new() }) }
    }

    /// Sets its memory, once.
    pub(crate) fn made(&self, memory: PeerMr) {
        let before = self.shared.memory.set(memory);
        debug_assert!(before.is_ok(), "a region is made once");
    }

    /// Its name in the plan.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its length in the plan, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.shared.len_bytes as usize
    }

    /// A part of it for an operation; `None` if the part leaves the region.
    #[inline]
    pub fn part(&self, offset: usize, len: usize) -> Option<Part> {
        let end = offset.checked_add(len)?;
        let span = Span::new(offset as u64, len as u64).filter(|_| end <= self.len_bytes())?;
        Some(Part { region: self.shared.number, span })
    }

    /// A part of it for a scatter/gather list ([`Local::List`](crate::Local::List)), which keeps
    /// the region alive. Refused if the part leaves the region.
    pub fn slice(&self, offset: usize, len: u32) -> Result<SgEntry, RegionAccessError> {
        let slice = self.memory()?.slice(offset, len).map(SgEntry::from);
        let (len_bytes, region_bytes) = (len as usize, self.len_bytes());
        slice.ok_or(PeerAccessError::OutOfBounds { offset, len_bytes, region_bytes }.into())
    }

    /// The address and key of the bytes from `offset` on, to be told to a peer
    /// ([`Remote::to_bytes`] for a message); the region's `rights` limit the peer's access. The key
    /// is that of the whole region, and valid for the whole run.
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

/// A plan's rights as verbs access flags.
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
