//! Typed indices into a [`Plan`](crate::Plan): one newtype a resource, so that a ring's number
//! can't be used as a stage's.
//!
//! An id is only made by this crate, and only valid for the plan that it came from.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u32);

        impl $name {
            /// The position in the plan's list of this resource, from 0.
            pub fn index(self) -> usize {
                self.0 as usize
            }

            pub(crate) fn from_index(index: usize) -> Self {
                $name(u32::try_from(index).expect("a plan file of this size is refused before it is read"))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "#{}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A `[device.…]`: one opened RDMA device port.
    DeviceId, "device";
    /// A `[pool.…]`: one registered region, cut into packets.
    PoolId, "pool";
    /// A `[region.…]`: memory that a stage owns, and that work requests reach by a key.
    RegionId, "region";
    /// A `[lcore.…]`: one pinned thread.
    LcoreId, "lcore";
    /// A `[port.…]`: one queue pair.
    PortId, "port";
    /// A `[ring.…]`: one hand-off between two lcores.
    RingId, "ring";
    /// A `[injector.…]`: threads of the embedder hand messages in here.
    InjectorId, "injector";
    /// A `[spread.…]`: packets dealt out to several targets.
    SpreadId, "spread";
    /// A `[stage.…]`: one instance of a kind that the application registered.
    StageId, "stage";
}

/// The next place of packets: the target of a stage's output or of a port's `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A stage on the same lcore.
    Stage(StageId),
    /// A port on the same lcore, to be sent.
    Port(PortId),
    /// A ring, which other lcores may fill as well.
    Ring(RingId),
    /// Several targets; each packet goes to one of them, or a copy to each. Only a stage's outputs
    /// lead there.
    Spread(SpreadId),
    /// Back to the pool, counted.
    Drop,
}

impl Target {
    pub(crate) fn port(self) -> Option<PortId> {
        match self {
            Target::Port(id) => Some(id),
            Target::Stage(_) | Target::Ring(_) | Target::Spread(_) | Target::Drop => None,
        }
    }
}

/// The consumer of a ring's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consumer {
    /// A stage, which gets them as its input.
    Stage(StageId),
    /// A port, which sends them.
    Port(PortId),
}

/// A producer of a ring's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Producer {
    /// A stage, through one or several of its outputs.
    Stage(StageId),
    /// A port, through its `next`.
    Port(PortId),
}
