//! How long a block device is, as the kernel shows it to everybody (`/sys/dev/block`).
//!
//! Guarantees: asking never waits. lseek(2) to the end of a device, like every other call on its
//! file, waits for the lock that a discard of the whole device holds until it is done.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, Stat};

/// The kernel's unit, whatever the device's is.
const SECTOR_BYTES: u64 = 512;

/// Where sysfs shows a fact of the device of `stat`.
fn shown(stat: &Stat, file: &str) -> String {
    format!("/sys/dev/block/{}:{}/{file}", rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))
}

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Sectors(OwnedFd);

impl Sectors {
    /// Opens the count of the device of `stat`; `None` if it is no block device, or sysfs does not
    /// show it.
    pub(super) fn of(stat: &Stat) -> Option<Sectors> {
        if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(shown(stat, "size"), flags, Mode::empty()).ok().map(Sectors)
    }

    /// Whether the device of `stat` takes no writes, as far as sysfs shows.
    pub(super) fn is_read_only(stat: &Stat) -> bool {
        std::fs::read_to_string(shown(stat, "ro")).is_ok_and(|text| text.trim() == "1")
    }

    /// The device's length now, bytes.
    pub(super) fn len_bytes(&self) -> io::Result<u64> {
        let mut text = [0; 24];
        // Read from its front, it is written anew.
        let len = rustix::io::pread(&self.0, &mut text, 0)?;
        let sectors = std::str::from_utf8(&text[..len]).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
        let bytes = sectors.and_then(|sectors| sectors.checked_mul(SECTOR_BYTES));
        bytes.ok_or_else(|| io::Error::other("/sys/dev/block shows no number of sectors"))
    }
}
