//! Claims a file or device for this process, so that no other writes to it, for as long as one of
//! the process's stores over it is there.
//!
//! - A block device is opened with `O_EXCL`, which the kernel refuses while it is mounted, used for
//!   swap, part of another device, or claimed by another process.
//! - A regular file is locked as a whole (flock(2)). Of a file on NFS, Linux makes that a lock of
//!   the server, which other machines' clients see.
//! - Who only reads a file shares it with other readers; of a device it claims nothing.
//!
//! All stores of this process have one claim together: who has what of it is the caller's to say.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::error::{FileError, system};
use super::holder;
use super::identity::Identity;
use crate::request::Fault;

/// A file or device, by what it is and not by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    File { device: u64, inode: u64 },
    Device(u64),
}

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Claim {
    key: Key,
    is_exclusive: bool,
    identity: Identity,
    /// Why nobody is kept from it.
    pub(super) lack: Option<&'static str>,
    /// Set once durable data of the file was lost. The kernel tells one store; all must know.
    pub(super) lost: Arc<OnceLock<Fault>>,
    /// The claim goes with it.
    _file: OwnedFd,
}

/// The claims that are held; a few, of the control path.
static CLAIMS: Mutex<Vec<Weak<Claim>>> = Mutex::new(Vec::new());

impl Claim {
    /// Claims the file or device at `path`, which `stat` is of.
    pub(super) fn take(path: &Path, stat: &Stat, is_read_only: bool) -> Result<Arc<Claim>, FileError> {
        let key = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Key::Device(stat.st_rdev),
            _ => Key::File { device: stat.st_dev, inode: stat.st_ino },
        };
        let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
        claims.retain(|claim| claim.strong_count() > 0);
        let is_enough = |claim: &Arc<Claim>| claim.key == key && (claim.is_exclusive || is_read_only);
        if let Some(claim) = claims.iter().filter_map(Weak::upgrade).find(is_enough) {
            return Ok(claim);
        }
        let (file, lack) = hold(path, stat, key, is_read_only)?;
        let identity = Identity::of(path, &file, stat);
        let claim =
            Arc::new(Claim { key, is_exclusive: !is_read_only, identity, lack, lost: Arc::default(), _file: file });
        claims.push(Arc::downgrade(&claim));
        Ok(claim)
    }

    pub(super) fn identity(&self) -> Identity {
        self.identity
    }
}

fn hold(path: &Path, stat: &Stat, key: Key, is_read_only: bool) -> Result<(OwnedFd, Option<&'static str>), FileError> {
    let held = |by: String| FileError::Held { path: path.to_owned(), by };
    let access = if is_read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let exclusive = match key {
        Key::Device(_) if !is_read_only => OFlags::EXCL,
        _ => OFlags::empty(),
    };
    let file = match rustix::fs::open(path, access | exclusive | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::BUSY) if exclusive == OFlags::EXCL => return Err(held(holder::of_device(stat.st_rdev))),
        Err(errno) => return Err(system(path, "open(2)", errno, "check its name and its rights")),
    };
    if let Key::Device(_) = key {
        return Ok((file, None));
    }
    let lock = match is_read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    match rustix::fs::flock(&file, lock) {
        Ok(()) => Ok((file, None)),
        Err(Errno::AGAIN) => Err(held(holder::of_file(stat.st_dev, stat.st_ino))),
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Ok((file, Some("its file system has no locks (flock(2)): nobody is kept from writing to it as well")))
        }
        Err(errno) => Err(system(path, "flock(2)", errno, "check its rights")),
    }
}
