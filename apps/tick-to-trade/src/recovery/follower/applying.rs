//! Applies held messages to the books; a faulty message puts its book in doubt.

use super::fault::{Fault, locate_of};
use super::{Follower, Told};
use crate::book::{BookError, Change, OrderBooks};
use crate::itch::{self, Side};
use crate::recovery::standing::Waits;

/// Held messages applied in one go: few, so that arriving packets do not wait for long.
const APPLIED_AT_ONCE: u32 = 1_024;

impl Follower {
    /// Applies held messages up to the next missing one.
    pub(super) fn advance(&mut self, now_ns: u64, told: &mut impl FnMut(&OrderBooks, Change, Told, u64)) {
        if self.is_live {
            return;
        }
        for _ in 0..APPLIED_AT_ONCE {
            if self.next == self.end || !self.ring.has(self.next) {
                break;
            }
            self.apply_held(self.next, now_ns, told);
            self.next += 1;
        }
        if self.next == self.end {
            self.settle(now_ns, told);
        }
    }

    /// Applies a message of the ring, if its book takes it.
    pub(super) fn apply_held(
        &mut self,
        sequence: u64,
        now_ns: u64,
        told: &mut impl FnMut(&OrderBooks, Change, Told, u64),
    ) {
        let Some(bytes) = self.ring.get(sequence) else { return };
        let locate = locate_of(bytes);
        let book = locate.and_then(|locate| self.books.by_locate(locate));
        if book.is_some_and(|book| !self.standing.takes(book, sequence)) {
            self.counts.skipped += 1;
            return;
        }
        let fault = match itch::parse(bytes) {
            Ok(message) => match self.books.apply(&message) {
                Ok(change) => {
                    self.counts.applied += 1;
                    let Some(change) = change else { return };
                    told(&self.books, change, Told::Withheld, sequence);
                    if !change.top {
                        return;
                    }
                    self.counts.withheld += 1;
                    // Checked now, as a later message may hide it.
                    if !self.books.is_crossed(change.book) {
                        let waits = if self.is_behind { Waits::Recovery } else { Waits::Change };
                        return self.standing.wait(change.book, waits);
                    }
                    Fault::Crossed(change.book)
                }
                Err(error) => Fault::Contradiction(message.stock_locate(), error),
            },
            Err(error) => Fault::malformed(bytes, error),
        };
        self.note(fault, now_ns);
    }

    /// Called at the end of the stream: repeats the withheld updates of books that are right.
    fn settle(&mut self, now_ns: u64, told: &mut impl FnMut(&OrderBooks, Change, Told, u64)) {
        self.is_behind = false;
        while let Some((book, waits)) = self.standing.take_waiting(self.next) {
            let change = Change { book, side: Side::Buy, top: true, execution: None, is_broken: false };
            let told_as = if waits == Waits::Recovery { Told::Recovered } else { Told::Live };
            self.counts.withheld = self.counts.withheld.saturating_sub(1);
            told(&self.books, change, told_as, self.next.saturating_sub(1));
        }
        if self.has_begun && self.standing.all_take(self.next) && !self.wants_directory && self.fetch.is_none() {
            self.is_live = true;
            self.counts.stale_ns += now_ns.saturating_sub(self.not_live_since_ns);
        }
    }

    /// Counts a faulty message, and puts its book in doubt.
    #[cold]
    pub(super) fn note(&mut self, fault: Fault, now_ns: u64) {
        let book = match fault {
            Fault::Crossed(book) => {
                self.counts.crossed += 1;
                Some(book)
            }
            // One of the two locate codes is false, and nothing shows which: either book may lack a
            // change.
            Fault::Contradiction(locate, BookError::OtherInstrument { own, .. }) => {
                self.counts.contradictions += 1;
                self.doubt(self.books.by_locate(own), now_ns);
                self.books.by_locate(locate)
            }
            Fault::Contradiction(_, BookError::InstrumentsFull { .. }) => {
                self.counts.unfollowed += 1;
                return;
            }
            // The directory is requested already, and the instrument's snapshot follows it.
            Fault::Contradiction(locate, _) if self.wants_directory && self.books.by_locate(locate).is_none() => {
                self.counts.skipped += 1;
                return;
            }
            Fault::Contradiction(_, BookError::UnknownInstrument { .. }) => {
                return self.miss_instrument(now_ns);
            }
            // Later messages of an order that was not followed.
            Fault::Contradiction(locate, _) if self.is_full() && self.books.by_locate(locate).is_none() => {
                self.counts.unfollowed += 1;
                return;
            }
            Fault::Contradiction(locate, _) => {
                self.counts.contradictions += 1;
                self.books.by_locate(locate)
            }
            Fault::Malformed(locate) => {
                self.counts.malformed += 1;
                locate.and_then(|locate| self.books.by_locate(locate))
            }
        };
        self.doubt(book, now_ns);
    }

    /// Puts a book in doubt.
    fn doubt(&mut self, book: Option<u16>, now_ns: u64) {
        // A book being rebuilt stays as it is: the ring still has the message.
        if let Some(book) = book.filter(|&book| !self.standing.is_stale(book)) {
            self.leave_live(now_ns);
            self.is_doubted = true;
            self.standing.spoil(book, self.books.is_empty(book));
            self.counts.suspected += 1;
        }
    }

    /// Whether no further book can be opened.
    fn is_full(&self) -> bool {
        self.books.books().len() == usize::from(self.spec.books.instruments)
    }

    /// Handles a message of an instrument that was never announced.
    fn miss_instrument(&mut self, now_ns: u64) {
        if self.is_full() {
            self.counts.unfollowed += 1;
            return;
        }
        self.counts.contradictions += 1;
        if self.spec.snapshots && !self.wants_directory && now_ns >= self.directory_rests_until_ns {
            self.leave_live(now_ns);
            self.wants_directory = true;
        }
    }
}
