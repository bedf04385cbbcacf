//! Memory of the data plane: hugepage regions, packet pools, and the packet handle.
//!
//! - A [`Region`] is a mapping on hugepages, prefaulted, locked if asked; where none are to be had
//!   it says so ([`Region::fallback`]).
//! - A [`Pool`] cuts a region into [`Packet`]s: 8-byte handles that move, and return to the pool
//!   when dropped.
//! - A [`PoolCache`] is one lcore's share of a pool; a [`Batch`] carries packets from stage to
//!   stage. Moving either way is copying words.
//! - A [`PeerRegion`] is a region that a peer may write: copies and atomics, never references.
//! - With the feature `uring`, `uring::FileRing` reads and writes files with packets as buffers.
//! - [`facts`] tells what the machine has; [`prefetch`] is a hint to its caches;
//!   [`stdout_was_closed`] is what only shows before `main`; [`share_arenas_if_limited`] keeps
//!   threads from mapping more than a limited process may.
//!
//! ```
//! use verbline_mem::{PageChoice, Pool, PoolSpec, Region, RegionSpec};
//!
//! let spec = PoolSpec { name: "ticks".into(), packets: 256, data_bytes: 2048, headroom_bytes: 64 };
//! let len_bytes = Pool::required_bytes(&spec);
//! let pages = RegionSpec { name: "ticks".into(), len_bytes, pages: PageChoice::Auto, lock: false };
//! let pool = Pool::new(Region::map(&pages)?, spec)?;
//!
//! let mut packet = pool.cache(64).get().ok_or("no packet")?;
//! assert!(packet.fill(b"a tick"));
//! drop(packet); // back in its pool
//! assert_eq!(pool.account().held, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing is allocated after the pools, caches and batches are made. Every packet is on the free
//! list, in a cache, or held ([`Pool::account`]); a pool that goes while packets are held is
//! leaked, never freed ([`leaked_pools`]).

mod arenas;
pub mod batch;
pub mod cache;
mod cache_array;
pub mod connection;
mod copy;
pub mod facts;
mod freelist;
mod fresh_view;
mod handles;
mod mapping;
#[cfg(all(test, loom))]
mod model;
pub mod numa;
mod offer;
pub mod packet;
pub mod pages;
pub mod peer;
pub mod pool;
mod prefetch;
pub mod region;
mod send_note;
mod shared;
mod standard;
mod sync;
#[cfg(all(feature = "uring", not(loom)))]
pub mod uring;

pub use arenas::{arenas_are_shared, share_arenas_if_limited};
pub use batch::Batch;
pub use cache::{BoundCache, PoolCache};
pub use connection::ConnectionId;
pub use numa::{KernelNodes, NodeControl, NodeFound, NodeOutcome, NodeWish};
pub use packet::{Packet, PoolForm};
pub use pages::{Fallback, PageChoice, PageSize, Shortage};
pub use peer::{PeerAccessError, PeerRegion};
pub use pool::{MrBinding, Pool, PoolAccount, PoolError, PoolSpec, leaked_pools};
pub use prefetch::prefetch;
pub use region::{Region, RegionError, RegionSpec};
pub use standard::stdout_was_closed;
