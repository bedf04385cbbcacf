//! The feed begins anew: its exchange has restarted.

use super::Follower;
use crate::book::Scrub;

impl Follower {
    /// Gives up all books, the directory and the locate codes: the stream is over, and another one
    /// follows. Its first packet is taken at any number, with snapshots of all instruments.
    #[cold]
    pub fn begin_anew(&mut self, now_ns: u64) {
        self.counts.begun_anew += 1;
        match self.is_live {
            true => self.not_live_since_ns = now_ns,
            // Held messages, and those it waited for.
            false => self.counts.abandoned += self.end - self.next,
        }
        self.lost_books = self.stale_books().max(self.books.books().len());
        (self.is_live, self.has_begun, self.is_behind, self.is_doubted) = (false, false, false, true);
        (self.next, self.end, self.floor) = (0, 0, 0);
        self.books.clear();
        self.ring.clear();
        self.standing.clear();
        self.asks.restart(0);
        (self.session, self.fetch, self.wants_directory) = (None, None, false);
        (self.directory_rests_until_ns, self.fetch_rests_until_ns, self.failures) = (0, 0, 0);
        (self.scrub, self.silent) = (Scrub::default(), ([0; 2], 0));
    }
}
