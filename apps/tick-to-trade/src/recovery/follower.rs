//! The client's half: books that follow a stream, and the recovery that keeps them right.
//!
//! A follower whose books are all right is *live*: messages go straight to the books, and recovery
//! costs no more than a comparison per packet. After a gap, or when a book is in doubt, each
//! message goes through a ring first. The stream stops at a missing message; messages before it are
//! applied in order. A book to be rebuilt takes nothing until its snapshot has come, and then the
//! messages of the ring from the snapshot's number on; the other books go on meanwhile.

mod applying;
mod fault;
mod rebuilding;
mod spec;

use fault::Fault;

use super::asks::{AskSpec, Asks};
use super::counts::FollowerCounts;
use super::fetch::Fetch;
use super::request::Request;
use super::ring::MessageRing;
use super::standing::{Standing, Waits};
use crate::book::{Change, OrderBooks, Scrub};
use crate::itch;
use crate::mold::{Packet, Session};

pub use spec::{FollowerSpec, Service, Told};

/// The books of a stream, and the state of each.
pub struct Follower {
    spec: FollowerSpec,
    books: OrderBooks,
    /// All books are right, and no message is held.
    is_live: bool,
    /// The stream has begun.
    has_begun: bool,
    /// Some message before `end` was missing when it was held.
    is_behind: bool,
    /// A message was missing, or a book in doubt, since the last [`Follower::take_doubt`].
    is_doubted: bool,
    /// The next sequence number to apply.
    next: u64,
    /// While not live: one past the last message known to have been sent.
    end: u64,
    /// While not live: the ring has had every message from here to `next`.
    floor: u64,
    ring: MessageRing,
    standing: Standing,
    asks: Asks,
    session: Option<Session>,
    fetch: Option<Fetch>,
    /// Books given up when the feed began anew. They count as stale while no book is known.
    lost_books: usize,
    /// Instruments may have been announced that the follower missed.
    wants_directory: bool,
    /// The earliest time to request the directory again.
    directory_rests_until_ns: u64,
    /// The earliest time to request the next snapshot; each failure doubles the pause.
    fetch_rests_until_ns: u64,
    failures: u32,
    snapshot_number: u32,
    scrub: Scrub,
    not_live_since_ns: u64,
    /// The end of the stream, the end that the latest snapshot implies, and since when both have
    /// stood.
    silent: ([u64; 2], u64),
    counts: FollowerCounts,
}

impl Follower {
    /// Allocates all memory that following will ever use.
    pub fn new(spec: FollowerSpec) -> Follower {
        let asks = AskSpec {
            chunk: spec.request_messages.max(1),
            timeout_ns: spec.timeout_ns.max(1),
            tries: spec.tries.clamp(1, 32),
        };
        Follower {
            books: OrderBooks::new(spec.books),
            is_live: spec.first.is_some(),
            has_begun: spec.first.is_some(),
            is_behind: false,
            is_doubted: false,
            next: spec.first.unwrap_or(0),
            end: spec.first.unwrap_or(0),
            floor: 0,
            ring: MessageRing::new(spec.held_messages),
            standing: Standing::new(spec.books.instruments),
            asks: Asks::new(asks),
            session: None,
            fetch: None,
            lost_books: 0,
            wants_directory: false,
            directory_rests_until_ns: 0,
            fetch_rests_until_ns: 0,
            failures: 0,
            snapshot_number: 0,
            scrub: Scrub::default(),
            not_live_since_ns: 0,
            silent: ([0; 2], 0),
            counts: FollowerCounts::default(),
            spec,
        }
    }

    /// The books in their current state.
    pub fn books(&self) -> &OrderBooks {
        &self.books
    }

    /// Totals since construction.
    pub fn counts(&self) -> &FollowerCounts {
        &self.counts
    }

    /// Whether every book is right, as far as can be known.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.is_live
    }

    /// Whether the stream has begun: its first packet was taken.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether a message was missing or a book put in doubt since the last call: updates that still
    /// wait for the strategy may be wrong.
    pub fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_doubted)
    }

    /// Takes back an update of a book. If the book is right, the update is repeated as soon as that
    /// is known; with `is_recovered` as [`Told::Recovered`].
    pub fn withhold(&mut self, book: u16, is_recovered: bool) {
        if !self.is_live && usize::from(book) < self.books.books().len() && !self.standing.is_stale(book) {
            self.counts.withheld += 1;
            self.standing.wait(book, if is_recovered { Waits::Recovery } else { Waits::Change });
        }
    }

    /// Starts loading the lines that the first messages of a packet read.
    #[inline]
    pub fn prefetch(&self, packet: &Packet<'_>, skip: u32) {
        let first = packet.messages().skip(skip as usize).take(OrderBooks::AHEAD);
        first.for_each(|message| self.books.prefetch(message));
    }

    /// The next sequence number to apply.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// The number of books to be rebuilt; all books while a message is missing. After the feed has
    /// begun anew, the earlier books, until one is announced.
    pub fn stale_books(&self) -> usize {
        match self.books.books().len() {
            0 => self.lost_books,
            all if self.is_behind => all,
            _ => self.standing.stale(),
        }
    }

    /// Takes a packet of the stream. Packets come in order, each message once, with gaps. Its first
    /// `skip` messages came before. Calls `told` for each change, with the number of its message.
    #[inline]
    pub fn take(
        &mut self,
        packet: &Packet<'_>,
        skip: u32,
        now_ns: u64,
        told: &mut impl FnMut(&OrderBooks, Change, Told, u64),
    ) {
        self.counts.received += u64::from(packet.count()).saturating_sub(u64::from(skip));
        if !self.is_live || packet.sequence() + u64::from(skip) != self.next {
            return self.take_apart(packet, skip, now_ns, told);
        }
        let mut later = packet.messages().skip(skip as usize + OrderBooks::AHEAD);
        let mut messages = packet.messages().skip(skip as usize);
        for message in messages.by_ref() {
            if let Some(later) = later.next() {
                self.books.prefetch(later);
            }
            let sequence = self.next;
            self.next += 1;
            let fault = match itch::parse(message) {
                Ok(message) => match self.books.apply(&message) {
                    Ok(Some(change)) if change.top && self.books.is_crossed(change.book) => {
                        self.counts.applied += 1;
                        Fault::Crossed(change.book)
                    }
                    Ok(change) => {
                        self.counts.applied += 1;
                        if let Some(change) = change {
                            told(&self.books, change, Told::Live, sequence);
                        }
                        continue;
                    }
                    Err(error) => Fault::Contradiction(message.stock_locate(), error),
                },
                Err(error) => Fault::malformed(message, error),
            };
            self.note(fault, now_ns);
            if !self.is_live {
                break;
            }
        }
        if !self.is_live {
            self.session = Some(*packet.session());
            let first = self.next;
            messages.enumerate().for_each(|(index, message)| self.hold(first + index as u64, message, now_ns));
            self.advance(now_ns, told);
        }
    }

    /// Takes retransmitted messages. Those that are not missing are counted and skipped.
    pub fn take_again(
        &mut self,
        packet: &Packet<'_>,
        now_ns: u64,
        told: &mut impl FnMut(&OrderBooks, Change, Told, u64),
    ) {
        for (index, message) in packet.messages().enumerate() {
            let sequence = packet.sequence() + index as u64;
            let is_missing = !self.is_live && (self.next..self.end).contains(&sequence) && !self.ring.has(sequence);
            if !is_missing || self.session != Some(*packet.session()) {
                self.counts.unasked += 1;
                continue;
            }
            self.counts.retransmitted += 1;
            self.ring.put(sequence, message);
        }
        self.advance(now_ns, told);
    }

    /// Continues the recovery: applies held messages, repeats unanswered requests, empties books,
    /// fetches snapshots. Call it again at [`Follower::deadline_ns`].
    pub fn poll(&mut self, now_ns: u64, told: &mut impl FnMut(&OrderBooks, Change, Told, u64)) {
        if self.is_live {
            return;
        }
        self.advance(now_ns, told);
        self.find_lost_end(now_ns);
        if self.is_stopped() && (!self.spec.retransmits || self.asks.tend(&self.ring, self.next, now_ns).is_err()) {
            self.give_up(self.end);
            self.advance(now_ns, told);
        }
        self.tend_snapshots(now_ns);
    }

    /// The next request to send, if one is due.
    pub fn next_request(&mut self, now_ns: u64) -> Option<(Service, Request)> {
        let session = self.session.filter(|_| !self.is_live)?;
        if self.spec.retransmits
            && self.is_stopped()
            && let Some((sequence, count, again)) = self.asks.next(&self.ring, self.next, self.end, now_ns)
        {
            self.counts.requests += 1;
            self.counts.requests_again += u64::from(again);
            return Some((Service::Retransmission, Request { session, sequence, count }));
        }
        Some((Service::Snapshot, self.fetch.as_mut()?.next_request()?))
    }

    /// When to poll next; `None` while live, and before the stream has begun.
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        if self.is_live || !self.has_begun {
            return None;
        }
        if self.next < self.end && !self.is_stopped() || self.standing.some_to_be_emptied() {
            return Some(now_ns);
        }
        let asks = self.asks.deadline_ns().filter(|_| self.is_stopped());
        let fetch = self.fetch.as_ref().map(Fetch::deadline_ns);
        let rest = now_ns + REST_NS;
        Some([asks, fetch, Some(rest)].into_iter().flatten().min().unwrap_or(rest))
    }

    /// Whether the next message of the stream is missing.
    fn is_stopped(&self) -> bool {
        self.next < self.end && !self.ring.has(self.next)
    }

    /// Like [`Follower::take`], for a packet that is not simply the next one.
    #[cold]
    fn take_apart(
        &mut self,
        packet: &Packet<'_>,
        skip: u32,
        now_ns: u64,
        told: &mut impl FnMut(&OrderBooks, Change, Told, u64),
    ) {
        let first = packet.sequence() + u64::from(skip);
        let end = packet.sequence() + u64::from(packet.count());
        self.session = Some(*packet.session());
        if self.is_live && end <= self.next {
            self.counts.duplicates += end.saturating_sub(first);
            return;
        }
        if !self.has_begun {
            self.begin(first, now_ns);
        }
        self.leave_live(now_ns);
        if first > self.end {
            self.find_gap(first);
        }
        for (index, message) in packet.messages().enumerate().skip(skip as usize) {
            self.hold(packet.sequence() + index as u64, message, now_ns);
        }
        self.advance(now_ns, told);
    }

    /// Starts following the stream at the number of its first packet.
    fn begin(&mut self, first: u64, now_ns: u64) {
        (self.has_begun, self.next, self.end, self.floor) = (true, first, first, first);
        self.not_live_since_ns = now_ns;
        self.asks.restart(first);
        // A stream that begins at 1 begins with the directory.
        self.wants_directory = self.spec.snapshots && (first > 1 || self.counts.begun_anew > 0);
    }

    fn leave_live(&mut self, now_ns: u64) {
        if self.is_live {
            self.is_live = false;
            (self.end, self.floor, self.not_live_since_ns) = (self.next, self.next, now_ns);
            self.asks.restart(self.next);
        }
    }

    /// Notes that the messages from `end` up to `first` are missing.
    fn find_gap(&mut self, first: u64) {
        let missing = first - self.end;
        self.counts.gaps += 1;
        self.counts.missing += missing;
        if missing > self.spec.gap_messages_max.into() || first - self.next >= self.ring.capacity() {
            return self.give_up(first);
        }
        (self.is_behind, self.is_doubted, self.end) = (true, true, first);
    }

    /// Finds messages lost at the end of the stream. A snapshot implies messages up to its number,
    /// which were in flight when it came. If neither they nor any behind them come within the
    /// time-out, they are lost: on a silent stream nothing else shows the loss.
    fn find_lost_end(&mut self, now_ns: u64) {
        let ahead_to = self.standing.ahead_to();
        let (silent, since_ns) = self.silent;
        if ahead_to <= self.end || self.next != self.end || silent != [self.end, ahead_to] {
            self.silent = ([self.end, ahead_to], now_ns);
        } else if now_ns.saturating_sub(since_ns) >= self.spec.snapshot_timeout_ns.max(1) {
            self.find_gap(ahead_to);
        }
    }

    fn hold(&mut self, sequence: u64, message: &[u8], now_ns: u64) {
        self.leave_live(now_ns);
        if sequence < self.next || self.ring.has(sequence) {
            self.counts.duplicates += 1;
            return;
        }
        if sequence - self.next >= self.ring.capacity() {
            self.give_up(sequence);
        }
        self.counts.late += u64::from(sequence < self.end);
        self.ring.put(sequence, message);
        self.end = self.end.max(sequence + 1);
    }

    /// Stops waiting for messages before `to`: the stream goes on from there, and each book from
    /// its next snapshot.
    fn give_up(&mut self, to: u64) {
        self.is_doubted = true;
        self.counts.given_up += 1;
        self.counts.abandoned += to - self.next;
        (self.next, self.floor, self.end) = (to, to, self.end.max(to));
        self.asks.restart(to);
        self.standing.spoil_before(to, self.books.books().len());
        self.wants_directory = self.spec.snapshots;
    }
}

/// While nothing is due: the time until the next look at books that rest.
const REST_NS: u64 = 1_000_000;
