//! The parameters of a follower, and the kinds of its changes and requests.

use crate::book::BookSpec;
use crate::recovery::ring::MessageRing;
use crate::recovery::standing::Standing;

/// The bounds and time-outs of a follower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerSpec {
    /// The books.
    pub books: BookSpec,
    /// The first sequence number of the feed; `None` starts at the first packet, with snapshots of
    /// all instruments.
    pub first: Option<u64>,
    /// Messages held behind a gap, or for a book being rebuilt; rounded up to a power of two.
    pub held_messages: u32,
    /// Messages per request: as many as are sure to fit one answer.
    pub request_messages: u16,
    /// Whether there is a retransmission server.
    pub retransmits: bool,
    /// Whether there is a snapshot server.
    pub snapshots: bool,
    /// A larger gap is left to snapshots at once.
    pub gap_messages_max: u32,
    /// The time-out of a request; each repetition doubles it.
    pub timeout_ns: u64,
    /// How often missing messages are requested before they are left to snapshots.
    pub tries: u32,
    /// The time-out of a snapshot's next part; each failed snapshot doubles it.
    pub snapshot_timeout_ns: u64,
    /// A book that is in doubt again sooner than this rests until then.
    pub rebuild_pause_ns: u64,
}

/// The recipient of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// The retransmission server.
    Retransmission,
    /// The snapshot server.
    Snapshot,
}

/// The meaning of a book's change for a trader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The book is right.
    Live,
    /// The book is right again: it was behind, or was rebuilt.
    Recovered,
    /// The book is wrong, or not known to be right.
    Withheld,
}

impl FollowerSpec {
    /// Memory that `Follower::new` allocates, in bytes.
    pub fn memory_bytes(self) -> u64 {
        self.books.memory_bytes()
            + MessageRing::memory_bytes(self.held_messages)
            + Standing::memory_bytes(self.books.instruments)
    }
}
