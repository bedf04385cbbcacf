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
pub use memory::{BlockMemory, MemoryStore, Resizer};
pub use request::{Done, Fault, Op, Request};
pub use store::{Extent, Geometry, GeometryError, Store};
