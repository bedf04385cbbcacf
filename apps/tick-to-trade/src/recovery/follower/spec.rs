//! What a follower is told: its bounds, and what a change and a request are.

use crate::book::BookSpec;
use crate::recovery::ring::MessageRing;
use crate::recovery::standing::Standing;

/// What a follower may use, and how long it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerSpec {
    /// The books.
    pub books: BookSpec,
    /// The first sequence number of the feed; `None` takes the stream up wherever it is, with
    /// snapshots of all instruments.
    pub first: Option<u64>,
    /// Messages that are held behind a gap, or for a book that is being rebuilt; rounded up to a
    /// power of two.
    pub held_messages: u32,
    /// Messages of one request: as many as are sure to fit one answer.
    pub request_messages: u16,
    /// There is a server that sends messages again.
    pub retransmits: bool,
    /// There is a server of snapshots.
    pub snapshots: bool,
    /// A gap of more messages is left to snapshots at once.
    pub gap_messages_max: u32,
    /// How long an answer to a request may take; each further time twice as long.
    pub timeout_ns: u64,
    /// How often missing messages are asked for before they are left to snapshots.
    pub tries: u32,
    /// How long the next part of a snapshot may take; each further time twice as long.
    pub snapshot_timeout_ns: u64,
    /// A book that is in doubt again sooner than this is left out until then.
    pub rebuild_pause_ns: u64,
}

/// Whom a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// The server that sends messages again.
    Retransmission,
    /// The server of snapshots.
    Snapshot,
}

/// What a change of a book means to somebody who trades on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The book is right.
    Live,
    /// The book is right again: it was behind, or was rebuilt.
    Recovered,
    /// The book is not right, or not known to be.
    Withheld,
}

impl FollowerSpec {
    /// What `Follower::new` allocates, in bytes.
    pub fn memory_bytes(self) -> u64 {
        self.books.memory_bytes()
            + MessageRing::memory_bytes(self.held_messages)
            + Standing::memory_bytes(self.books.instruments)
    }
}
