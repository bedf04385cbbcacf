//! The operations of a ring that a file store uses, as a trait: tests put a failing ring in its
//! place.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use verbline_mem::Packet;
use verbline_mem::uring::{Completed, FileRing, PushError, Submission};

/// A file, by a ring: [`FileRing`] has the semantics.
pub trait Device: Send {
    /// Takes an entry.
    ///
    /// # Errors
    /// It comes back, with the reason.
    fn push(&mut self, entry: Submission) -> Result<(), (Submission, PushError)>;

    /// Starts what was pushed; gives whether all is started.
    ///
    /// # Errors
    /// An error that a retry does not mend: the device is broken, and takes nothing any more.
    fn submit(&mut self) -> io::Result<bool>;

    /// Gives `each` the tags and packets of what was pushed and not started before the device
    /// broke.
    fn take_back(&mut self, each: &mut dyn FnMut(u64, Option<Packet>));

    /// Gives at most `most` of what is done to `each`; gives how many.
    fn complete(&mut self, most: usize, each: &mut dyn FnMut(Completed)) -> usize;

    /// Entries that were pushed and whose completion was not taken.
    fn under_way(&self) -> usize;

    /// Readable while there are completions to take.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// The file's length now, bytes.
    ///
    /// # Errors
    /// The kernel's.
    fn len_bytes(&self) -> io::Result<u64>;
}

impl Device for FileRing {
    fn push(&mut self, entry: Submission) -> Result<(), (Submission, PushError)> {
        FileRing::push(self, entry)
    }

    fn submit(&mut self) -> io::Result<bool> {
        FileRing::submit(self)
    }

    fn take_back(&mut self, each: &mut dyn FnMut(u64, Option<Packet>)) {
        FileRing::take_back(self, each);
    }

    fn complete(&mut self, most: usize, each: &mut dyn FnMut(Completed)) -> usize {
        FileRing::complete(self, most, each)
    }

    fn under_way(&self) -> usize {
        FileRing::under_way(self)
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(FileRing::wake_fd(self))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        // As the kernel knows it: a server is not asked, which may never answer.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(self.file(), c"", flags, StatxFlags::TYPE | StatxFlags::SIZE)?;
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            // statx(2) has no length of it. Nothing uses the file's offset.
            FileType::BlockDevice => Ok(rustix::fs::seek(self.file(), rustix::fs::SeekFrom::End(0))?),
            _ => Ok(stat.stx_size),
        }
    }
}
