//! Blocks in a file or on a block device, by io_uring.
//!
//! Direct I/O past the page cache where the file system has it, from and to the packets themselves;
//! where it has none (tmpfs before Linux 6.6, some network file systems) through the page cache,
//! and [`FileStore::notes`] say so. A flush is fdatasync(2), and a write with `fua` is one with
//! RWF_DSYNC: what is done is on the medium, as far as the medium tells the truth. Blocks with
//! protection information behind them (520 bytes) fit no device's own, and go through the page
//! cache.
//!
//! - Transfers that the kernel cuts short go on where they ended; what it can't do now (EAGAIN,
//!   EINTR) is tried again. Either is counted ([`FileStore::counts`]).
//! - A ring that the kernel refuses for good is broken: every request, under way or later, ends
//!   with [`Fault::RingBroken`](crate::Fault), and the kernel's words.
//! - After a flush that failed, every later flush and write with `fua` fails too, whichever store
//!   of the file is asked: the kernel tells of a write that it lost once only, so that nobody could
//!   say what is durable. A write with `fua` for which there is no space fails alone.
//! - A file or device that is open for writing is this process's alone: nobody else mounts the
//!   device, and no other process that asks for a lock writes to the file ([`FileError::Held`]).
//! - Its blocks have a name that is kept with them ([`FileStore::identity`]).
//! - A file that shrinks ends reads behind its end with [`Fault::OutOfRange`](crate::Fault); a
//!   write there makes it grow again. [`Store::refresh`](crate::Store::refresh) sees the new size.

mod claim;
pub mod device;
mod error;
mod holder;
mod identity;
mod open;
mod sectors;
mod steps;
mod store;

pub use error::FileError;
pub use identity::{Identity, IdentityFrom};
pub use open::{DirectIo, FileSpec};
pub use store::{FileCounts, FileStore};
