//! The books of the FORTS feed, five levels per instrument, and how far each can be trusted.
//!
//! The exchange numbers the entries of each instrument (`RptSeq`). A book is [`Trust::Live`] while
//! they come without a break. After a gap in the stream every book is [`Trust::Suspect`]: the
//! number of an instrument's next entry shows whether it lost any. A book that did is
//! [`Trust::Stale`] until a snapshot fits: one at or after the last entry received, or an earlier
//! one if all entries in between are held here.

mod anew;
mod outcome;

use super::message::{Action, Entry, EntryType, Message};
use crate::book::{DepthBook, DepthError, DepthLevel};
use crate::itch::Side;

pub use outcome::{BooksError, FortsCounts};

/// Price levels per side in the feed.
pub const FORTS_DEPTH: usize = 5;

/// The bounds; [`FortsBooks::new`] allocates for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BooksSpec {
    /// Instruments that may appear.
    pub instruments: u16,
    /// Entries held for each instrument while it waits for a snapshot.
    pub held_entries: u16,
}

impl Default for BooksSpec {
    fn default() -> Self {
        Self { instruments: 64, held_entries: 1024 }
    }
}

impl BooksSpec {
    /// Memory that [`FortsBooks::new`] allocates, in bytes.
    pub fn memory_bytes(self) -> u64 {
        let held = u64::from(self.held_entries) * size_of::<Entry>() as u64;
        u64::from(self.instruments) * (held + 2 * size_of::<FortsBook>() as u64)
    }
}

/// How far a book can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// All entries were applied.
    Live,
    /// Some of the book's entries may have been in a gap.
    Suspect,
    /// The book lost entries, or never had a snapshot: do not trade on it.
    Stale,
}

/// The effect of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryOutcome {
    /// The entry was applied.
    Applied {
        /// The best level of a side changed.
        top: bool,
    },
    /// A snapshot contained the entry already.
    Old,
    /// The book is stale; the entry is held for a snapshot.
    Held,
}

/// The effect of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotOutcome {
    /// The book is at the same `RptSeq` and equal.
    Equal,
    /// The book is at the same `RptSeq` and differs; it took the snapshot's levels.
    Different,
    /// A stale book is live again, held entries included; or suspect, if the snapshot is from
    /// before a gap.
    Recovered,
    /// The snapshot is older than the book.
    Old,
    /// The snapshot is ahead of a book that is not stale: the entries are on their way.
    Ahead,
    /// A stale book waits on: entries after the snapshot are missing, or its numbering may not be
    /// the current one.
    TooEarly,
}

/// One instrument.
#[derive(Debug)]
pub struct FortsBook {
    security_id: u64,
    trust: Trust,
    rpt_seq: u32,
    /// The sequence number that a snapshot must have processed to end a suspicion.
    gap_upto: u64,
    /// `RptSeq` of the last snapshot taken, and of the last entry received that it contained.
    snapshot_seq: u32,
    came: u32,
    /// After a renumbering: the number from which a snapshot must have processed the stream.
    awaits_from: Option<u64>,
    depth: DepthBook<FORTS_DEPTH>,
    /// Consecutive entries since the last break.
    held: Vec<Entry>,
}

impl FortsBook {
    /// `SecurityID`.
    pub fn security_id(&self) -> u64 {
        self.security_id
    }

    /// How far the book can be relied on.
    #[inline]
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// The number of the last entry applied.
    pub fn rpt_seq(&self) -> u32 {
        self.rpt_seq
    }

    /// The levels; prices are times 10^5.
    #[inline]
    pub fn depth(&self) -> &DepthBook<FORTS_DEPTH> {
        &self.depth
    }
}

/// The books of a feed.
pub struct FortsBooks {
    books: Vec<FortsBook>,
    spare: Vec<FortsBook>,
    spec: BooksSpec,
    counts: FortsCounts,
    /// The number of the last increment.
    at: u64,
    /// Where the current numbering began, if the numbers have started anew.
    numbered_from: Option<u64>,
    /// The last number that the stream lost.
    gap_upto: u64,
    scratch: DepthBook<FORTS_DEPTH>,
}

impl FortsBooks {
    /// Allocates all memory that the books will ever use.
    pub fn new(spec: BooksSpec) -> Self {
        let spare = (0..spec.instruments)
            .map(|_| FortsBook {
                security_id: 0,
                trust: Trust::Stale,
                rpt_seq: 0,
                gap_upto: 0,
                snapshot_seq: 0,
                came: 0,
                awaits_from: None,
                depth: DepthBook::new(),
                held: Vec::with_capacity(usize::from(spec.held_entries)),
            })
            .collect();
        let books = Vec::with_capacity(usize::from(spec.instruments));
        let (counts, scratch) = (FortsCounts::default(), DepthBook::new());
        Self { books, spare, spec, counts, at: 0, numbered_from: None, gap_upto: 0, scratch }
    }

    /// Totals since construction.
    pub fn counts(&self) -> &FortsCounts {
        &self.counts
    }

    /// All books, in the order of their first appearance.
    pub fn books(&self) -> &[FortsBook] {
        &self.books
    }

    /// The index of an instrument's book, if it has appeared.
    #[inline]
    pub fn index_of(&self, security_id: u64) -> Option<usize> {
        // A dozen instruments: a walk over them beats a hash.
        self.books.iter().position(|book| book.security_id == security_id)
    }

    /// Reports that the stream lost everything up to and including `last_missing`: every live book
    /// becomes suspect.
    pub fn gap(&mut self, last_missing: u64) {
        self.gap_upto = last_missing;
        for book in &mut self.books {
            book.gap_upto = last_missing;
            if book.trust == Trust::Live {
                book.trust = Trust::Suspect;
            }
        }
    }

    /// Applies one entry of an increment. Returns the book's index and the effect.
    ///
    /// # Errors
    /// The entry is unusable or contradicts the book, which is stale from then on; or there is no
    /// room for its instrument.
    pub fn apply_entry(&mut self, msg_seq_num: u32, entry: &Entry) -> Result<(usize, EntryOutcome), BooksError> {
        let security_id = entry.security_id.ok_or(BooksError::NoInstrument { msg_seq_num })?;
        let index = self.open(security_id)?;
        self.at = u64::from(msg_seq_num);
        let book = &mut self.books[index];
        if book.trust != Trust::Stale {
            if entry.rpt_seq <= book.rpt_seq && entry.rpt_seq >= book.last_entry() {
                book.came = entry.rpt_seq;
                self.counts.old += 1;
                return Ok((index, EntryOutcome::Old));
            }
            if entry.rpt_seq == book.rpt_seq.wrapping_add(1) {
                // The entry follows the last one, so nothing of this instrument was in the gap.
                book.trust = Trust::Live;
                let top = book.apply(entry)?;
                self.counts.applied += 1;
                return Ok((index, EntryOutcome::Applied { top }));
            }
            self.counts.breaks += 1;
            book.make_stale();
        }
        // The stream is in order, so a number that goes back means that the numbers have started
        // anew.
        if entry.rpt_seq < book.last_entry() {
            book.begin_anew(self.at.saturating_sub(1));
        }
        self.counts.held += 1;
        book.hold(entry);
        Ok((index, EntryOutcome::Held))
    }

    /// Applies a snapshot. Returns the book's index and the effect.
    ///
    /// # Errors
    /// The snapshot names no instrument, holds an unusable entry, or there is no room for its
    /// instrument; or the entries held since contradict it, and the book stays stale.
    pub fn apply_snapshot(&mut self, snapshot: &Message) -> Result<(usize, SnapshotOutcome), BooksError> {
        let msg_seq_num = snapshot.msg_seq_num;
        let security_id = snapshot.security_id.ok_or(BooksError::NoInstrument { msg_seq_num })?;
        let index = self.open(security_id)?;
        if !self.books[index].may_take(snapshot, self.at) {
            return Ok((index, SnapshotOutcome::TooEarly));
        }
        self.scratch.clear();
        for entry in &snapshot.entries {
            let bad = BooksError::Entry { security_id, rpt_seq: snapshot.rpt_seq };
            let Some(side) = side(entry.entry_type) else { continue };
            self.scratch.insert(side, level(entry).ok_or(bad)?).map_err(|error| BooksError::Book {
                security_id,
                rpt_seq: snapshot.rpt_seq,
                error,
            })?;
        }
        let book = &mut self.books[index];
        // Nothing of this instrument was in the gap up to here, or the snapshot contains it.
        let covers_gap = u64::from(snapshot.last_msg_seq_num_processed) >= book.gap_upto;
        let outcome = match (book.trust, snapshot.rpt_seq.cmp(&book.rpt_seq)) {
            (Trust::Stale, _) => book.recover(snapshot.rpt_seq, &self.scratch)?,
            (_, std::cmp::Ordering::Less) => SnapshotOutcome::Old,
            (Trust::Live, std::cmp::Ordering::Greater) => SnapshotOutcome::Ahead,
            (Trust::Suspect, std::cmp::Ordering::Greater) if !covers_gap => SnapshotOutcome::Ahead,
            (_, std::cmp::Ordering::Greater) => {
                // The entries between were in the gap.
                self.counts.breaks += 1;
                book.make_stale();
                book.recover(snapshot.rpt_seq, &self.scratch)?
            }
            (trust, std::cmp::Ordering::Equal) => {
                if trust == Trust::Suspect && covers_gap {
                    book.trust = Trust::Live;
                }
                book.compare(&self.scratch)
            }
        };
        if outcome == SnapshotOutcome::Recovered && !covers_gap {
            // The gap came after the snapshot, and may have held further entries.
            book.trust = Trust::Suspect;
        }
        self.counts.recovered += u64::from(outcome == SnapshotOutcome::Recovered);
        self.counts.equal += u64::from(outcome == SnapshotOutcome::Equal);
        self.counts.different += u64::from(outcome == SnapshotOutcome::Different);
        Ok((index, outcome))
    }

    /// The index of an instrument's book; opens the book if there is none.
    ///
    /// # Errors
    /// There is no room for another book.
    pub fn open(&mut self, security_id: u64) -> Result<usize, BooksError> {
        if let Some(index) = self.index_of(security_id) {
            return Ok(index);
        }
        let limit = self.spec.instruments;
        let book = self.spare.pop().ok_or(BooksError::InstrumentsFull { security_id, limit })?;
        self.books.push(FortsBook { security_id, awaits_from: self.numbered_from, gap_upto: self.gap_upto, ..book });
        Ok(self.books.len() - 1)
    }
}

impl FortsBook {
    /// Applies an entry that follows the last one; on an error the book is stale.
    fn apply(&mut self, entry: &Entry) -> Result<bool, BooksError> {
        self.rpt_seq = entry.rpt_seq;
        let before = [self.depth.best(Side::Buy), self.depth.best(Side::Sell)];
        let (security_id, rpt_seq) = (self.security_id, entry.rpt_seq);
        let applied = self.change(entry).map_err(|error| match error {
            Some(error) => BooksError::Book { security_id, rpt_seq, error },
            None => BooksError::Entry { security_id, rpt_seq },
        });
        if let Err(error) = applied {
            self.make_stale();
            return Err(error);
        }
        Ok(before != [self.depth.best(Side::Buy), self.depth.best(Side::Sell)])
    }

    /// `Err(None)`: the entry is unusable.
    fn change(&mut self, entry: &Entry) -> Result<(), Option<DepthError>> {
        if entry.entry_type == EntryType::EmptyBook {
            self.depth.clear();
            return Ok(());
        }
        let Some(side) = side(entry.entry_type) else { return Ok(()) };
        let level = level(entry).ok_or(None)?;
        let actual = match entry.action {
            Action::New => self.depth.insert(side, level)?,
            Action::Change => Some(self.depth.change(side, level)?),
            Action::Delete => Some(self.depth.delete(side, level.price)?),
            Action::Other(_) => return Err(None),
        };
        match (actual, entry.level) {
            (Some(actual), Some(expected)) if actual != expected => {
                Err(Some(DepthError::Place { side, price: level.price, expected, actual }))
            }
            _ => Ok(()),
        }
    }

    fn make_stale(&mut self) {
        self.trust = Trust::Stale;
        self.held.clear();
    }

    /// Holds an entry for a snapshot. After a break, or without room, the held entries start anew
    /// here.
    fn hold(&mut self, entry: &Entry) {
        let follows = self.held.last().is_none_or(|last| entry.rpt_seq == last.rpt_seq.wrapping_add(1));
        if !follows || self.held.len() == self.held.capacity() {
            self.held.clear();
        }
        if self.held.capacity() > 0 {
            self.held.push(*entry);
        }
        // Without the entries before it, only a snapshot at or after this one fits.
        self.rpt_seq = entry.rpt_seq;
    }

    /// Applies a snapshot and the entries held after it to a stale book. If they contradict it, the
    /// book stays stale, and only a snapshot that contains all entries received so far fits.
    fn recover(&mut self, rpt_seq: u32, depth: &DepthBook<FORTS_DEPTH>) -> Result<SnapshotOutcome, BooksError> {
        let first_held = self.held.first().map_or(self.rpt_seq.saturating_add(1), |entry| entry.rpt_seq);
        if rpt_seq.saturating_add(1) < first_held && rpt_seq < self.rpt_seq {
            return Ok(SnapshotOutcome::TooEarly);
        }
        self.depth.clone_from(depth);
        let came = self.rpt_seq.max(rpt_seq);
        self.came = self.last_entry();
        (self.rpt_seq, self.snapshot_seq, self.awaits_from) = (rpt_seq, rpt_seq, None);
        self.trust = Trust::Live;
        for at in 0..self.held.len() {
            let entry = self.held[at];
            if entry.rpt_seq > rpt_seq {
                self.apply(&entry).inspect_err(|_| self.rpt_seq = came)?;
            }
        }
        self.held.clear();
        Ok(SnapshotOutcome::Recovered)
    }

    fn compare(&mut self, depth: &DepthBook<FORTS_DEPTH>) -> SnapshotOutcome {
        if self.depth == *depth {
            return SnapshotOutcome::Equal;
        }
        self.depth.clone_from(depth);
        SnapshotOutcome::Different
    }
}

fn side(entry_type: EntryType) -> Option<Side> {
    match entry_type {
        EntryType::Bid => Some(Side::Buy),
        EntryType::Offer => Some(Side::Sell),
        _ => None,
    }
}

fn level(entry: &Entry) -> Option<DepthLevel> {
    Some(DepthLevel { price: entry.price?.to_e5()?, size: entry.size? })
}
