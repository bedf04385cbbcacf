//! Block storage that an lcore drives: requests go in by batches, and come back by polling.
//!
//! - A [`Request`] names blocks and carries its memory: a packet, which belongs to the store until
//!   the request is done. So what a device read into a packet goes on to the disk, and the other
//!   way round, without a copy.
//! - A [`Store`] takes requests, and hands each back exactly once as a [`Done`]. It neither blocks
//!   nor allocates. An lcore that wants to sleep waits for [`Store::wake_fd`].
//! - [`MemoryStore`] keeps blocks in memory that RDMA operations may reach themselves;
//!   [`NullStore`] keeps nothing. [`FileStore`] is a file or a block device, by io_uring.
//! - Tests of what is built on a store turn on the feature `faulty`: a `FaultyStore` is a disk that
//!   fails, dawdles, tears, forgets and lies by a seed.
//!
//! ```
//! use std::collections::VecDeque;
//! use std::sync::Arc;
//!
//! use verbline_mem::{PageChoice, PeerRegion, Pool, PoolSpec, Region, RegionSpec};
//! use verbline_store::{MemoryStore, Request, Store};
//!
//! let map = |name: &str, len_bytes| {
//!     Region::map(&RegionSpec { name: name.into(), len_bytes, pages: PageChoice::Auto, lock: false })
//! };
//! let spec = PoolSpec { name: "blocks".into(), packets: 8, data_bytes: 4096, headroom_bytes: 0 };
//! let pool = Pool::new(map("blocks", Pool::required_bytes(&spec))?, spec)?;
//! let mut disk = MemoryStore::new(Arc::new(PeerRegion::new(map("disk", 1 << 20)?)), 4096, 8)?;
//!
//! let mut packet = pool.cache(8).get_of_len(4096).ok_or("no packet")?;
//! packet.data_mut().fill(7);
//! // Block 3, with tag 1. The packet goes with the request, and comes back when it is done.
//! let mut requests = VecDeque::from([Request::write(3, 1, packet, false, 1)]);
//! assert_eq!(disk.submit(&mut requests), 1);
//! let mut done = Vec::with_capacity(8);
//! while disk.poll(&mut done) == 0 {}
//! assert!(done[0].result.is_ok() && done[0].packet.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **What is durable.** A write that is done may be lost in a crash, until a [`Op::Flush`] that was
//! submitted after it was done is done too. A write with `fua` is durable when it is done. A write
//! that is under way in a crash may be there, in parts, or not at all; no other block changes.
//!
//! **Order.** Requests that are under way together may be carried out in any order. A caller that
//! needs one before another waits for the first.

#![forbid(unsafe_code)]

#[cfg(feature = "faulty")]
pub mod faulty;
pub mod file;
pub mod immediate;
pub mod memory;
pub mod request;
pub mod store;

#[cfg(feature = "faulty")]
pub use faulty::{Disk, Faults, FaultyStore};
pub use file::{DirectIo, FileCounts, FileError, FileSpec, FileStore, Identity, IdentityFrom};
pub use immediate::NullStore;
pub use memory::{BlockMemory, MemoryStore};
pub use request::{Done, Fault, Op, Request};
pub use store::{Extent, Geometry, GeometryError, Store};
