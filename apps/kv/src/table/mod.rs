//! A shard's table: fixed slots in memory that clients may read by RDMA while the shard writes it.
//!
//! A key has two buckets of four slots each, by its hash. While a slot is written, its version is
//! odd; it also has a checksum. A reader that catches a half-written slot detects that, and reads
//! again.
//!
//! ```text
//! table    | bucket 0 | bucket 1 | … |         each bucket SLOTS slots
//! slot     | version 8 | checksum 8 | key bytes 4 | value bytes 4 | key, padded to 8 | value, padded to 8 |
//! ```

mod shape;
mod view;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use shape::{KEY_BYTES_MAX, Shape, VALUE_BYTES_MAX, hash};
pub(crate) use view::{Found, find};
pub(crate) use writer::{FoundKey, Table, TableError};
