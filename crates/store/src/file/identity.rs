//! The name of the blocks in a file or on a device: a UUID that no other blocks have, and that is
//! the same after a restart.
//!
//! It is made at random and kept with the file, in the extended attribute [`ATTRIBUTE`]: it moves
//! with the file, and another file under the same path has another name. Where the file system
//! keeps no attributes, or the file can't be changed, it is made of the number and the birth time
//! of the file, which are lost when the file is copied; of a block device, of the name that the
//! kernel has for it in /sys, or else of its path.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Stat, StatxFlags, XattrFlags, major, minor};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

/// The extended attribute that holds the name.
const ATTRIBUTE: &str = "user.verbline.uuid";

/// The name of a store's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A UUID (RFC 9562), of version 4 or 8.
    pub uuid: [u8; 16],
    /// Where it comes from.
    pub from: IdentityFrom,
}

/// How long a name lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityFrom {
    /// It is kept with the blocks, wherever they go.
    Kept,
    /// It is that of the file or device in this system: a copy has another.
    Place,
    /// It is that of the path of a device: nothing better is known of it.
    Path,
}

impl Identity {
    pub(super) fn of(path: &Path, file: &OwnedFd, stat: &Stat) -> Identity {
        let (uuid, from) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => of_device(path, stat.st_rdev),
            _ => match kept(file) {
                Some(uuid) => (uuid, IdentityFrom::Kept),
                None => (of_birth(file, stat), IdentityFrom::Place),
            },
        };
        Identity { uuid, from }
    }
}

/// The name that the file keeps; it gets one if it has none. `None`: it can't keep one.
fn kept(file: &OwnedFd) -> Option<[u8; 16]> {
    let read = || {
        let mut uuid = [0; 17];
        (rustix::fs::fgetxattr(file, ATTRIBUTE, &mut uuid).ok()? == 16).then(|| uuid.first_chunk().copied()).flatten()
    };
    if let Some(uuid) = read() {
        return Some(uuid);
    }
    let mut random = [0; 16];
    let got = getrandom(&mut random, GetRandomFlags::empty()).ok()?;
    let uuid = versioned(random, 4);
    // It is to be there after a crash, as the blocks are.
    let set =
        || rustix::fs::fsetxattr(file, ATTRIBUTE, &uuid, XattrFlags::CREATE).and_then(|()| rustix::fs::fsync(file));
    (got == random.len() && set().is_ok()).then(read).flatten()
}

fn of_birth(file: &OwnedFd, stat: &Stat) -> [u8; 16] {
    let birth = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
    let birth = birth.map_or((0, 0), |found| (found.stx_btime.tv_sec, found.stx_btime.tv_nsec));
    let hash = Sha256::new().chain_update(b"file").chain_update(stat.st_ino.to_le_bytes());
    hashed(hash.chain_update(birth.0.to_le_bytes()).chain_update(birth.1.to_le_bytes()))
}

fn of_device(path: &Path, device: u64) -> ([u8; 16], IdentityFrom) {
    let folder = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let read =
        |name: &str| fs::read_to_string(Path::new(&folder).join(name)).ok().filter(|text| !text.trim().is_empty());
    let names = ["wwid", "device/wwid", "dm/uuid", "md/uuid", "serial", "loop/backing_file"];
    // A partition has the name of the whole, and its number there.
    let name = names.into_iter().find_map(|name| read(name).or_else(|| read(&format!("../{name}"))));
    let partition = read("partition").unwrap_or_default();
    match name {
        Some(name) => {
            let hash = Sha256::new().chain_update(b"device").chain_update(name.trim());
            (hashed(hash.chain_update(b" ").chain_update(partition.trim())), IdentityFrom::Place)
        }
        None => {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let hash = Sha256::new().chain_update(b"path").chain_update(path.as_os_str().as_encoded_bytes());
            (hashed(hash), IdentityFrom::Path)
        }
    }
}

fn hashed(hash: Sha256) -> [u8; 16] {
    let digest = hash.finalize();
    versioned(std::array::from_fn(|at| digest[at]), 8)
}

/// With the version, and the variant of RFC 9562.
fn versioned(mut uuid: [u8; 16], version: u8) -> [u8; 16] {
    uuid[6] = uuid[6] & 0x0F | version << 4;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}
