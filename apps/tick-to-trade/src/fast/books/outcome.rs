//! Errors of the feed's messages, and the books' counts.

use crate::book::DepthError;

/// Why a message could not be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BooksError {
    /// A new instrument exceeds the bound.
    #[error("instrument {security_id} is one more than the {limit} there may be; raise `instruments`")]
    InstrumentsFull {
        /// The instrument.
        security_id: u64,
        /// The bound.
        limit: u16,
    },
    /// An entry or snapshot that names no instrument.
    #[error("MsgSeqNum {msg_seq_num} has an entry without SecurityID: the message is corrupt")]
    NoInstrument {
        /// The message.
        msg_seq_num: u32,
    },
    /// A book entry without price or size, or with a price that is no multiple of 10^-5.
    #[error(
        "instrument {security_id}, RptSeq {rpt_seq}: an entry without a usable price, size or action; the book is \
         stale now"
    )]
    Entry {
        /// The instrument.
        security_id: u64,
        /// The entry.
        rpt_seq: u32,
    },
    /// An entry contradicts the book.
    #[error("instrument {security_id}, RptSeq {rpt_seq}: {error}; the book is stale now")]
    Book {
        /// The instrument.
        security_id: u64,
        /// The entry.
        rpt_seq: u32,
        /// The contradiction.
        error: DepthError,
    },
}

/// Totals since construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FortsCounts {
    /// Entries applied.
    pub applied: u64,
    /// Entries that a snapshot contained already.
    pub old: u64,
    /// Entries that came while the book was stale.
    pub held: u64,
    /// Breaks in an instrument's `RptSeq`.
    pub breaks: u64,
    /// Books brought back by a snapshot, first snapshots included.
    pub recovered: u64,
    /// Snapshots at a live book's `RptSeq` that were equal.
    pub equal: u64,
    /// Snapshots at a live book's `RptSeq` that were not equal.
    pub different: u64,
}
