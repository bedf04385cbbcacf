//! Errors of opening a file as a store, and what to do about each.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use verbline_mem::uring::RingError;

use crate::store::GeometryError;

/// Why a file or device could not be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// open(2) and what belongs to it refused.
    #[error("store {}: {call} failed: {source}; {remedy}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The call.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// A hint where to look.
        remedy: &'static str,
    },
    /// Somebody else has it, as a mounted file system, or a process.
    #[error(
        "store {}: {by}; two writers destroy each other's blocks: end that first, or name another file or device",
        path.display()
    )]
    Held {
        /// The file.
        path: PathBuf,
        /// Who.
        by: String,
    },
    /// Direct I/O was asked for, and the file system has none.
    #[error(
        "store {}: its file system has no direct I/O (O_DIRECT): use another one, or allow the page cache with \
         DirectIo::Auto", path.display()
    )]
    NoDirectIo {
        /// The file.
        path: PathBuf,
    },
    /// Blocks are no multiple of what direct I/O moves.
    #[error(
        "store {}: direct I/O needs blocks of a multiple of {least} bytes here, and block_bytes is {block_bytes}: \
         set it to {least}, or allow the page cache with DirectIo::Never", path.display()
    )]
    BlocksTooSmall {
        /// The file.
        path: PathBuf,
        /// The requested block size, bytes.
        block_bytes: u32,
        /// The least that the file allows, bytes.
        least: u32,
    },
    /// A block device that takes no writes.
    #[error(
        "store {}: the device is read-only; open it as such (`read_only = true`), or make it writable: \
         `blockdev --setrw {}` as root", path.display(), path.display()
    )]
    ReadOnlyDevice {
        /// The device.
        path: PathBuf,
    },
    /// The kernel would refuse writes to its end.
    #[error(
        "store {}: it has {len_bytes} bytes, and this process may write no file beyond {limit_bytes} \
         (RLIMIT_FSIZE): raise the limit (`ulimit -f unlimited`, LimitFSIZE=infinity in the systemd unit), or open \
         it read-only", path.display()
    )]
    BeyondFileLimit {
        /// The file.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The limit, bytes.
        limit_bytes: u64,
    },
    /// Neither a regular file nor a block device.
    #[error("store {}: it is {kind}; name a regular file or a block device", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// The kind of file.
        kind: String,
    },
    /// It holds not one block.
    #[error(
        "store {}: it has {len_bytes} bytes, less than a block of {block_bytes}; make it larger: truncate -s 1G FILE",
        path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
        /// The block size, bytes.
        block_bytes: u32,
    },
    /// It is to be made, and of not one block.
    #[error(
        "store {}: a file of {len_bytes} bytes (create_bytes) is less than a block of {block_bytes}; ask for more",
        path.display()
    )]
    TooShort {
        /// The file.
        path: PathBuf,
        /// The requested length, bytes.
        len_bytes: u64,
        /// The block size, bytes.
        block_bytes: u32,
    },
    /// Blocks can't be of this size.
    #[error("store {}: {source}", path.display())]
    Geometry {
        /// The file.
        path: PathBuf,
        /// Why.
        source: GeometryError,
    },
    /// There is no ring.
    #[error("store {}: {source}", path.display())]
    Ring {
        /// The file.
        path: PathBuf,
        /// Why.
        source: RingError,
    },
}

pub(super) fn system(path: &Path, call: &'static str, errno: Errno, remedy: &'static str) -> FileError {
    FileError::System { path: path.to_owned(), call, source: io::Error::from(errno), remedy }
}
