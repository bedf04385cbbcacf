//! The counts of a follower.

/// Totals since construction, in messages unless noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FollowerCounts {
    /// Came in order, from the arbiter.
    pub received: u64,
    /// Applied to a book, or of a kind that changes none.
    pub applied: u64,
    /// Not ITCH.
    pub malformed: u64,
    /// Contradicting a book.
    pub contradictions: u64,
    /// *Books* that a message left with a best bid not below the best offer.
    pub crossed: u64,
    /// Came again, from the arbiter or after a retransmission.
    pub duplicates: u64,
    /// Of instruments that the books have no room for.
    pub unfollowed: u64,
    /// *Gaps* found.
    pub gaps: u64,
    /// Missing in gaps.
    pub missing: u64,
    /// Missing messages that were retransmitted.
    pub retransmitted: u64,
    /// Missing messages that came from the arbiter after all.
    pub late: u64,
    /// *Requests* for missing messages.
    pub requests: u64,
    /// *Requests* repeated, as no answer came in time.
    pub requests_again: u64,
    /// In unexpected answers: late, duplicate, or never requested.
    pub unasked: u64,
    /// *Times* that the stream was given up up to some number, and all books were left to
    /// snapshots.
    pub given_up: u64,
    /// Skipped when the stream was given up, missing ones included.
    pub abandoned: u64,
    /// Skipped because their book is to be rebuilt, or was rebuilt from a later snapshot.
    pub skipped: u64,
    /// *Snapshots* requested.
    pub snapshots: u64,
    /// *Snapshots* not complete in time.
    pub snapshots_late: u64,
    /// *Snapshots* that were useless: older than the held messages, or not the requested one.
    pub snapshots_refused: u64,
    /// *Books* put in doubt: they were contradicted or crossed, or a message of theirs was corrupt.
    pub suspected: u64,
    /// *Books* rebuilt from a snapshot.
    pub rebuilt: u64,
    /// *Changes* of a best level withheld from the strategy while the book was wrong, or not known
    /// to be right.
    pub withheld: u64,
    /// *Times* that the feed began anew, and all books were given up.
    pub begun_anew: u64,
    /// *Nanoseconds* in which some book was wrong, or not known to be right.
    pub stale_ns: u64,
}

impl FollowerCounts {
    /// Whether every message of the stream, received or missing, was counted once as one outcome.
    /// Holds for a live follower.
    pub fn adds_up(&self) -> bool {
        let became = self.applied
            + self.malformed
            + self.contradictions
            + self.unfollowed
            + self.skipped
            + self.abandoned
            + self.duplicates;
        // A late message counts as both received and missing.
        became + self.late == self.received + self.missing
    }
}
