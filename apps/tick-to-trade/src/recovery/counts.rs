//! What a follower counts.

/// Totals since construction, in messages unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FollowerCounts {
    /// Came in order, by the arbiter.
    pub received: u64,
    /// Applied to a book, or of a kind that changes none.
    pub applied: u64,
    /// Are not ITCH.
    pub malformed: u64,
    /// Contradict a book.
    pub contradictions: u64,
    /// *Books* that a message left with a best bid not below the best offer.
    pub crossed: u64,
    /// Came once more, by the arbiter or after they had been sent again.
    pub duplicates: u64,
    /// Of instruments beyond those that the books have room for.
    pub unfollowed: u64,
    /// *Gaps* found.
    pub gaps: u64,
    /// Missing in gaps.
    pub missing: u64,
    /// Missing ones that were sent again.
    pub retransmitted: u64,
    /// Missing ones that came by the arbiter after all.
    pub late: u64,
    /// *Requests* for missing ones.
    pub requests: u64,
    /// *Requests* that were sent once more, since no answer came in time.
    pub requests_again: u64,
    /// Of answers that nobody waits for: they came late, twice, or were never asked for.
    pub unasked: u64,
    /// *Times* that the stream was given up up to some number, and all books were left to
    /// snapshots.
    pub given_up: u64,
    /// Passed over then, missing ones included.
    pub abandoned: u64,
    /// Passed over since their book is to be rebuilt, or was rebuilt from a later snapshot.
    pub skipped: u64,
    /// *Snapshots* asked for.
    pub snapshots: u64,
    /// *Snapshots* that did not come to their end in time.
    pub snapshots_late: u64,
    /// *Snapshots* that were of no use: older than what is held, or not what was asked for.
    pub snapshots_refused: u64,
    /// *Books* put in doubt: they contradicted themselves, or a message of theirs was corrupt.
    pub suspected: u64,
    /// *Books* rebuilt from a snapshot.
    pub rebuilt: u64,
    /// *Changes* of a best level while its book was not right, or not known to be: nobody was told.
    pub withheld: u64,
    /// *Times* that the feed began anew, and all books were given up.
    pub begun_anew: u64,
    /// *Nanoseconds* in which some book was not right, or not known to be.
    pub stale_ns: u64,
}

impl FollowerCounts {
    /// Whether every message of the stream, received or missing, has become one thing: so it is of
    /// a follower that is live.
    pub fn adds_up(&self) -> bool {
        let became = self.applied
            + self.malformed
            + self.contradictions
            + self.unfollowed
            + self.skipped
            + self.abandoned
            + self.duplicates;
        // A late one is both received and missing.
        became + self.late == self.received + self.missing
    }
}
