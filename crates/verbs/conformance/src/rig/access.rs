//! Access flags of memory and of queue pairs.

use rdma_sys::ibv_access_flags as bit;
use std::ops::BitOr;

/// `enum ibv_access_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access(pub(crate) u32);

impl Access {
    /// Local reading only, which needs no flag.
    pub(crate) const NONE: Access = Access(0);
    pub(crate) const LOCAL_WRITE: Access = Access(bit::IBV_ACCESS_LOCAL_WRITE.0);
    pub(crate) const REMOTE_WRITE: Access = Access(bit::IBV_ACCESS_REMOTE_WRITE.0);
    pub(crate) const REMOTE_READ: Access = Access(bit::IBV_ACCESS_REMOTE_READ.0);
    pub(crate) const REMOTE_ATOMIC: Access = Access(bit::IBV_ACCESS_REMOTE_ATOMIC.0);
    pub(crate) const MW_BIND: Access = Access(bit::IBV_ACCESS_MW_BIND.0);
    pub(crate) const ON_DEMAND: Access = Access(bit::IBV_ACCESS_ON_DEMAND.0);
    pub(crate) const RELAXED_ORDERING: Access = Access(bit::IBV_ACCESS_RELAXED_ORDERING.0);
    /// Every access by this and by remote queue pairs.
    pub(crate) const ALL: Access =
        Access(Self::LOCAL_WRITE.0 | Self::REMOTE_WRITE.0 | Self::REMOTE_READ.0 | Self::REMOTE_ATOMIC.0);

    pub(crate) const fn without(self, other: Access) -> Access {
        Access(self.0 & !other.0)
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}
