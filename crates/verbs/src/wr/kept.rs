//! Memory that a QP keeps for good, so that operations name it by a number and no count is kept of
//! them: regions, windows and signature keys, each numbered from 0.

use crate::memory::peer::PeerMr;
use crate::memory::window::MemoryWindow;
use crate::signature::KeptSignatureKey;

/// A region that a QP keeps, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeptRegion(pub u16);

/// A window that a QP keeps, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeptWindow(pub u16);

/// A signature key that a QP keeps, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeptKey(pub u16);

/// What a QP is to keep ([`crate::QueuePair::keep_memory`]).
#[derive(Clone, Debug, Default)]
pub struct KeepSpec {
    /// Regions of the QP's PD. An empty place is a number that names nothing.
    pub regions: Vec<Option<PeerMr>>,
    /// How many windows, of type 2 and bound to nothing.
    pub windows: u16,
    /// How many signature keys; each stands for one part of a region at a time.
    pub keys: u16,
}

/// What a QP keeps. Keys go before what they stand for.
#[derive(Debug, Default)]
pub(crate) struct KeptMemory {
    pub(crate) keys: Vec<KeptSignatureKey>,
    pub(crate) regions: Vec<Option<PeerMr>>,
    pub(crate) windows: Vec<MemoryWindow>,
}

impl KeptMemory {
    #[inline]
    pub(crate) fn region(&self, region: KeptRegion) -> Option<&PeerMr> {
        self.regions.get(usize::from(region.0))?.as_ref()
    }

    /// What another QP has to keep to have the same under the same numbers.
    pub(crate) fn spec(&self) -> KeepSpec {
        // No more of them are kept than have numbers (`QueuePair::keep_memory`).
        let (windows, keys) = (self.windows.len() as u16, self.keys.len() as u16);
        KeepSpec { regions: self.regions.clone(), windows, keys }
    }
}
