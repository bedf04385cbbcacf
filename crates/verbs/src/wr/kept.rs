//! Memory that a QP keeps for its life: regions, windows and signature keys, each numbered from 0.
//! Operations name it by number, without reference counts.

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

/// The memory for a QP to keep ([`crate::QueuePair::keep_memory`]).
#[derive(Clone, Debug, Default)]
pub struct KeepSpec {
    /// Regions of the QP's PD. `None` reserves a number without a region.
    pub regions: Vec<Option<PeerMr>>,
    /// The number of windows, of type 2 and bound to nothing.
    pub windows: u16,
    /// The number of signature keys; each stands for one part of a region at a time.
    pub keys: u16,
}

/// The memory that a QP keeps. Keys are dropped before their regions.
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

    /// The spec for another QP to keep the same memory under the same numbers.
    pub(crate) fn spec(&self) -> KeepSpec {
        // `QueuePair::keep_memory` keeps no more of them than there are numbers.
        let (windows, keys) = (self.windows.len() as u16, self.keys.len() as u16);
        KeepSpec { regions: self.regions.clone(), windows, keys }
    }
}
