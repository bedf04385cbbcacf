//! The ranges of a Dataset Management, and the parts in which they are given back.

use verbline_nvme::Command;
use verbline_nvme::io::{DSM_DEALLOCATE, DsmRange};

use crate::commands::Io;
use crate::layout::Layout;

/// The most bytes that one request of a Dataset Management gives back. Parts end at its multiples.
/// A file can't be written while a part of it is given back: ext4 took 200 s to give back 512 MiB
/// in fragments of 4 KiB.
const DISCARD_BYTES: u64 = 16 << 20;

impl Io {
    /// The next part that a Dataset Management gives back: the number of blocks from the cursor on.
    ///
    /// # Errors
    /// A range goes beyond the namespace's `blocks`, and nothing was given back: the first block
    /// that is not there.
    pub(crate) fn next_discard(&mut self, command: &Command, layout: &Layout, blocks: u64) -> Result<Option<u32>, u64> {
        let data = self.data.as_ref().filter(|_| command.cdw10[1] & DSM_DEALLOCATE != 0);
        let Some(data) = data else { return Ok(None) };
        let ranges = || DsmRange::read_all(data.data()).take(DsmRange::count_of(command));
        let is_beyond = |range: &DsmRange| range.blocks > 0 && range.slba.saturating_add(range.blocks.into()) > blocks;
        if self.ranges == 0
            && let Some(beyond) = ranges().find(is_beyond)
        {
            return Err(beyond.slba.max(blocks));
        }
        let mut rest = ranges().skip(self.ranges);
        while self.left == 0 {
            let Some(range) = rest.next() else { return Ok(None) };
            self.ranges += 1;
            (self.cursor, self.left) = (range.slba, range.blocks.into());
        }
        let most = DISCARD_BYTES / u64::from(layout.stored_bytes());
        self.part = self.left.min(most - self.cursor % most);
        // At most the number of blocks of a range, which is a u32.
        Ok(Some(self.part as u32))
    }
}
