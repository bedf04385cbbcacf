//! Empties books and rebuilds them from snapshots, one after the other; all of them, when the feed
//! begins anew since its exchange has restarted.

use super::fault::locate_of;
use super::{Follower, Told};
use crate::book::{Change, OrderBooks, Scrub};
use crate::itch::{self, Message};
use crate::mold::Packet;
use crate::recovery::fetch::Fetch;
use crate::recovery::snapshot::{SnapshotName, read_end};

/// Slots of the table of orders that one poll examines: some 30 µs.
const SCRUBBED_AT_ONCE: usize = 16_384;

/// Each failure of a snapshot doubles its time-out, and the pause after a useless one: up to 2^3
/// times.
const DOUBLINGS_MAX: u32 = 3;

/// The effect of a snapshot's message.
enum Step {
    /// More messages follow.
    Goes,
    /// It was the last message: the stream goes on with this number.
    Ends(u64),
    /// It does not belong to the requested snapshot.
    Fails,
}

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

    /// Takes messages of a snapshot. Packets of another than the requested one are ignored.
    pub fn take_snapshot(
        &mut self,
        packet: &Packet<'_>,
        now_ns: u64,
        told: &mut impl FnMut(&OrderBooks, Change, Told, u64),
    ) {
        let deadline_ns = now_ns.saturating_add(self.snapshot_timeout_ns());
        let Some(fetch) = &mut self.fetch else { return };
        let name = fetch.name;
        if *packet.session() != name.session() || !fetch.takes(packet.sequence(), packet.count(), deadline_ns) {
            return;
        }
        for message in packet.messages() {
            match self.take_part(name, message) {
                Step::Goes => {}
                Step::Fails => return self.refuse(now_ns),
                Step::Ends(sequence) => {
                    self.complete(name, sequence, now_ns, told);
                    return self.advance(now_ns, told);
                }
            }
        }
    }

    /// Empties a part of the stale books, gives up a snapshot that does not come, and requests the
    /// next one.
    pub(super) fn tend_snapshots(&mut self, now_ns: u64) {
        self.scrub();
        let deadline_ns = now_ns.saturating_add(self.snapshot_timeout_ns());
        if let Some(fetch) = self.fetch.as_mut().filter(|fetch| now_ns >= fetch.deadline_ns())
            && !fetch.ask_again(deadline_ns)
        {
            self.counts.snapshots_late += 1;
            self.failures += 1;
            self.drop_fetch();
        }
        let may_ask = self.spec.snapshots && self.session.is_some() && self.fetch.is_none();
        if !may_ask || now_ns < self.fetch_rests_until_ns {
            return;
        }
        let locate = match self.wants_directory {
            true => 0,
            false => match self.standing.pick(now_ns).and_then(|book| self.books.book(book)) {
                Some(book) => book.stock_locate(),
                None => return,
            },
        };
        self.snapshot_number = self.snapshot_number.wrapping_add(1);
        let name = SnapshotName { locate, number: self.snapshot_number };
        self.fetch = Some(Fetch::new(name, self.spec.request_messages.max(1), deadline_ns));
        self.counts.snapshots += 1;
    }

    fn snapshot_timeout_ns(&self) -> u64 {
        self.spec.snapshot_timeout_ns.max(1) << self.failures.min(DOUBLINGS_MAX)
    }

    fn scrub(&mut self) {
        let standing = &self.standing;
        if !standing.some_to_be_emptied() {
            return;
        }
        if self.books.scrub(&mut self.scrub, SCRUBBED_AT_ONCE, |book| standing.is_to_be_emptied(book)) {
            for book in 0..self.books.books().len() as u16 {
                if self.standing.is_to_be_emptied(book) {
                    self.standing.set_empty(book, self.books.is_empty(book));
                }
            }
        }
    }

    /// Applies one message of a snapshot.
    fn take_part(&mut self, name: SnapshotName, message: &[u8]) -> Step {
        if let Some(sequence) = read_end(message) {
            return Step::Ends(sequence);
        }
        let Ok(message) = itch::parse(message) else { return Step::Fails };
        let locate = message.stock_locate();
        let announces = matches!(message, Message::StockDirectory(_));
        let known = self.books.by_locate(locate);
        let is_of_it = match message {
            Message::StockDirectory(_) => name.locate == 0 || name.locate == locate,
            Message::TradingAction(_)
            | Message::OperationalHalt(_)
            | Message::AddOrder(_)
            | Message::AddOrderMpid(_) => name.locate == locate,
            _ => false,
        };
        if !is_of_it || name.locate != 0 && !known.is_some_and(|book| self.standing.is_stale(book)) {
            return Step::Fails;
        }
        if announces && name.locate != 0 {
            self.books.begin_snapshot(locate);
        }
        match self.books.apply(&message) {
            Ok(_) => {}
            // Instruments beyond the room are not followed.
            Err(_) if announces => return Step::Goes,
            Err(_) => return Step::Fails,
        }
        if known.is_none()
            && let Some(book) = self.books.by_locate(locate)
        {
            self.standing.spoil(book, true);
        }
        Step::Goes
    }

    /// Puts a complete snapshot to use.
    fn complete(
        &mut self,
        name: SnapshotName,
        sequence: u64,
        now_ns: u64,
        told: &mut impl FnMut(&OrderBooks, Change, Told, u64),
    ) {
        let is_held = (sequence..self.next).all(|sequence| self.ring.has(sequence));
        let is_near = sequence.saturating_sub(self.next) <= self.ring.capacity();
        if sequence < self.floor || !is_held || !is_near {
            return self.refuse(now_ns);
        }
        (self.fetch, self.failures) = (None, 0);
        let Some(book) = self.books.by_locate(name.locate).filter(|_| name.locate != 0) else {
            self.wants_directory = false;
            self.directory_rests_until_ns = now_ns.saturating_add(self.spec.rebuild_pause_ns);
            return;
        };
        self.counts.rebuilt += 1;
        // The strategy is told once: one change, withheld until then.
        self.counts.withheld += 1;
        self.standing.rebuild(book, sequence, now_ns.saturating_add(self.spec.rebuild_pause_ns));
        // The messages of the stream since then are applied to this book alone.
        for sequence in sequence..self.next {
            if self.ring.get(sequence).and_then(locate_of) == Some(name.locate) {
                self.counts.skipped = self.counts.skipped.saturating_sub(1);
                self.apply_held(sequence, now_ns, told);
            }
        }
    }

    fn refuse(&mut self, now_ns: u64) {
        self.counts.snapshots_refused += 1;
        self.fetch_rests_until_ns = now_ns.saturating_add(self.snapshot_timeout_ns() / 4);
        self.failures += 1;
        self.drop_fetch();
    }

    /// Drops a useless snapshot; its book is to be emptied again.
    fn drop_fetch(&mut self) {
        let Some(name) = self.fetch.take().map(|fetch| fetch.name) else { return };
        if let Some(book) = self.books.by_locate(name.locate).filter(|&book| self.standing.is_stale(book)) {
            self.standing.set_empty(book, self.books.is_empty(book));
        }
    }
}
