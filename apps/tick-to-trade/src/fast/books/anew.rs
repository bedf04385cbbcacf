//! Numbers that start anew: earlier numbers no longer order the entries.

use super::{FortsBook, FortsBooks, Trust};
use crate::fast::message::Message;

impl FortsBooks {
    /// Starts the stream's numbers anew at `next`: every book is stale until a snapshot of the new
    /// numbering.
    pub fn begin_anew(&mut self, next: u64) {
        let from = next.saturating_sub(1);
        (self.at, self.numbered_from, self.gap_upto) = (from, Some(from), 0);
        self.books.iter_mut().for_each(|book| book.begin_anew(from));
    }
}

impl FortsBook {
    /// Starts the book's numbers anew behind the number `from` of the stream.
    #[cold]
    pub(super) fn begin_anew(&mut self, from: u64) {
        self.trust = Trust::Stale;
        (self.rpt_seq, self.snapshot_seq, self.came, self.gap_upto) = (0, 0, 0, 0);
        self.held.clear();
        self.awaits_from = Some(from);
    }

    /// Whether a snapshot that comes while the stream is at `at` may be of the current numbering.
    pub(super) fn may_take(&self, snapshot: &Message, at: u64) -> bool {
        let processed = u64::from(snapshot.last_msg_seq_num_processed);
        self.awaits_from.is_none_or(|from| (from..=at).contains(&processed))
    }

    /// The number of the last entry that the stream brought.
    pub(super) fn last_entry(&self) -> u32 {
        if self.rpt_seq > self.snapshot_seq { self.rpt_seq } else { self.came }
    }
}
