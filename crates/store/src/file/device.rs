//! What a file store needs of the ring beneath: for tests, a ring that fails as they say.

use std::io;
use std::os::fd::BorrowedFd;

use verbline_mem::Pool;
use verbline_mem::uring::{Completed, Entry, FileRing, PushError};

/// A file, by a ring: [`FileRing`] has the semantics.
pub trait Device: Send {
    /// Takes an entry.
    ///
    /// # Errors
    /// It comes back, with the reason.
    fn push(&mut self, entry: Entry) -> Result<(), (Entry, PushError)>;

    /// Starts what was pushed; gives whether all is started.
    ///
    /// # Errors
    /// What trying again does not mend.
    fn submit(&mut self) -> io::Result<bool>;

    /// Gives at most `most` of what is done to `each`; gives how many.
    fn complete(&mut self, most: usize, each: &mut dyn FnMut(Completed)) -> usize;

    /// Entries that were pushed and whose completion was not taken.
    fn under_way(&self) -> usize;

    /// Readable while there are completions to take.
    fn wake_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Packets of this pool will come.
    fn use_pool(&mut self, pool: &Pool) {
        let _ = pool;
    }

    /// The file's length now, bytes.
    ///
    /// # Errors
    /// The kernel's.
    fn len_bytes(&self) -> io::Result<u64>;
}

impl Device for FileRing {
    fn push(&mut self, entry: Entry) -> Result<(), (Entry, PushError)> {
        FileRing::push(self, entry)
    }

    fn submit(&mut self) -> io::Result<bool> {
        FileRing::submit(self)
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

    fn use_pool(&mut self, pool: &Pool) {
        FileRing::register(self, std::slice::from_ref(pool));
    }

    fn len_bytes(&self) -> io::Result<u64> {
        // Of a block device too, which fstat(2) says nothing of. The offset is nobody's.
        Ok(rustix::fs::seek(self.file(), rustix::fs::SeekFrom::End(0))?)
    }
}
