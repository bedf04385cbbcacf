//! A disk for tests, which fails, dawdles, tears, forgets and lies, by a seed.
//!
//! A [`Disk`] outlives the stores over it, as a disk does the processes that use it. It has a
//! volatile cache: what was written is read at once, and lies on the medium only when a flush or
//! `fua` says so. [`Disk::crash`] takes the power away. Of what was not flushed, each block is then
//! as it was, or as any write since left it: a write of several blocks may be there in parts.
//!
//! For tests: it takes a lock and allocates.

mod disk;
mod store;

pub use disk::{Disk, Faults};
pub use store::FaultyStore;
