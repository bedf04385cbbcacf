//! A shard's table: fixed slots in memory that clients may read by RDMA while the shard writes it.
//!
//! A key has two buckets of four slots each, by its hash. A slot is written under a version that is
//! odd meanwhile, and has a checksum: a reader that catches a slot half written sees that, and
//! reads again.
//!
//! ```text
//! table    | bucket 0 | bucket 1 | … |         each bucket SLOTS slots
//! slot     | version 8 | checksum 8 | key bytes 4 | value bytes 4 | key, padded to 8 | value, padded to 8 |
//! ```

mod memory;
mod shape;
mod view;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use shape::{Shape, hash};
pub(crate) use view::{Found, find};
pub(crate) use writer::{FoundKey, Table, TableError};
