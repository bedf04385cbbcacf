//! The trader's five-level books of the recorded feed: applies increments, compares each snapshot
//! with its book, and recovers a book from a snapshot after a loss.

use std::collections::VecDeque;

use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::arbiter::Mark;
use super::settings::{INSTRUMENTS_MAX, MoexSettings};
use super::tally::{FortsTally, Home, Tally};
use super::update::{UPDATE_LEN_BYTES, Update, Updates};
use crate::fast::{
    BooksSpec, Decoder, EntryOutcome, EntryType, FortsBooks, Message, MessageKind, SnapshotOutcome, Trust,
};
use crate::framing::split_preamble;
use crate::itch::{Side, Symbol};
use crate::risk::{Quote, Top};

mod halts;
mod statuses;

use halts::Halts;

const CHANGED: OutId = OutId(0);
const DROPS: &[&str] = &["malformed", "snapshots_full", "false_preamble", "not_in_order"];
const MALFORMED: DropReason = DropReason::Stage(0);
const SNAPSHOTS_FULL: DropReason = DropReason::Stage(1);
const FALSE_PREAMBLE: DropReason = DropReason::Stage(2);
/// An increment that did not come from an arbiter, e.g. one on the snapshots' channel.
const NOT_IN_ORDER: DropReason = DropReason::Stage(3);

/// Snapshots that wait for their increments: at most as many as one turn of the lcore brings.
const SNAPSHOTS_HELD: usize = 256;

/// Entries held per instrument while it waits for a snapshot.
const BOOKS: BooksSpec = BooksSpec { instruments: INSTRUMENTS_MAX, held_entries: 1_024 };

pub(super) fn register(registry: &mut Registry, tally: &Tally) {
    let home = tally.clone();
    let spec = StageSpec {
        outputs: &["changed"],
        holds_packets: SNAPSHOTS_HELD as u32,
        drops: DROPS,
        summary: "decodes FAST, keeps five-level books, recovers from snapshots",
        ..StageSpec::default()
    };
    // A check builds no books.
    let describe = |stage: &StageContext<'_>| {
        stage.no_params()?;
        Ok(MoexSettings::open(stage)?.1)
    };
    registry.opening_stage("forts-book", spec, describe, move |feed, stage| {
        Ok(Box::new(FortsBook::new(feed.decoder(), stage.burst(), home.home(stage))))
    });
    registry.needs("forts-book", needs);
}

/// The memory for the books, and the packet size for one update.
fn needs(_: &Asked<'_>) -> Needs {
    Needs {
        memory_bytes: vec![
            ("books", BOOKS.memory_bytes()),
            ("updates", Updates::memory_bytes(INSTRUMENTS_MAX)),
            ("halted instruments without a book", Halts::MEMORY_BYTES),
        ],
        packet_bytes: vec![("an update", UPDATE_LEN_BYTES as u64)],
        ..Needs::default()
    }
}

struct FortsBook {
    books: FortsBooks,
    decoder: Decoder,
    message: Message,
    /// Snapshots ahead of their books, in the order of arrival.
    waiting: VecDeque<Packet>,
    /// Whether the market trades, by its last status. The status comes along with the snapshots,
    /// and without those no book is right either.
    is_open: bool,
    halts: Halts,
    updates: Updates,
    /// The observations of each book.
    seen: Box<[Seen]>,
    /// How often increments were lost.
    losses: u32,
    tally: FortsTally,
    home: Home,
}

/// What to do with a message's packet.
enum Taken {
    /// It has changed books: send updates in it.
    Applied,
    /// Hold it: a snapshot ahead of its book.
    Ahead,
    /// Free it.
    Done,
    Dropped(DropReason),
}

/// The observations of one book.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The book has had an entry: only then does a snapshot prove anything.
    changes: bool,
    /// Snapshots equal to the book.
    equal: u64,
    /// The exchange has halted the instrument.
    is_halted: bool,
    /// The count of losses at the last update to the strategy.
    losses: u32,
    /// The strategy is owed an update: the best levels changed and none was queued, or it was taken
    /// back.
    is_owed: bool,
}

impl Stage for FortsBook {
    fn process(&mut self, input: &mut Batch, out: &mut Outputs<'_>) {
        for packet in input.drain_front(input.len()) {
            let Some((sequence, fast)) = split_preamble(packet.data()) else {
                out.drop(packet, MALFORMED);
                continue;
            };
            match self.take(Mark::of(&packet), Mark::of_anew(&packet), sequence, fast) {
                Taken::Applied => {
                    if !self.waiting.is_empty() {
                        self.retry();
                    }
                    self.updates.send(packet, out);
                }
                Taken::Ahead => self.keep(packet, out),
                Taken::Done => {}
                Taken::Dropped(reason) => out.drop(packet, reason),
            }
        }
    }

    fn poll(&mut self, out: &mut Outputs<'_>) -> Next {
        if self.updates.turn(out) { Next::At(Tick::MAX) } else { Next::Busy }
    }
}

impl FortsBook {
    fn new(decoder: Decoder, burst: usize, home: Home) -> FortsBook {
        FortsBook {
            books: FortsBooks::new(BOOKS),
            decoder,
            message: Message::new(),
            waiting: VecDeque::with_capacity(SNAPSHOTS_HELD),
            is_open: false,
            halts: Halts::new(),
            updates: Updates::new(INSTRUMENTS_MAX, burst, CHANGED),
            seen: vec![Seen::default(); usize::from(INSTRUMENTS_MAX)].into_boxed_slice(),
            losses: 0,
            tally: FortsTally::default(),
            home,
        }
    }

    /// Takes a message. `mark` is the arbiter's, if the packet came from one. With `anew`, the feed
    /// begins anew with the packet; `Some(None)` there means that no message of it counts.
    fn take(&mut self, mark: Option<Mark>, anew: Option<Option<Mark>>, sequence: u32, fast: &[u8]) -> Taken {
        let in_order = mark.or(anew.flatten());
        // Done first, as it holds for any message, even an invalid one.
        if in_order.is_some_and(|mark| mark.lost_before) {
            self.lose(sequence);
        }
        if anew.is_some() {
            self.begin_anew(sequence.into());
        }
        if let Some(reason) = self.unreadable(sequence, fast) {
            // Its entries are lost.
            if in_order.is_some() {
                self.lose(sequence.saturating_add(1));
            }
            return Taken::Dropped(reason);
        }
        match self.message.kind {
            MessageKind::Increment if in_order.is_some() => {
                self.apply(sequence);
                return Taken::Applied;
            }
            MessageKind::Increment => return Taken::Dropped(NOT_IN_ORDER),
            // Resets of the snapshots' own channel do not concern the stream.
            MessageKind::SequenceReset if in_order.is_some() => self.begin_anew(self.message.new_seq_num.into()),
            MessageKind::SessionStatus => self.session(self.message.session_status),
            MessageKind::SecurityStatus => self.security(),
            MessageKind::Snapshot => {
                self.tally.snapshots += 1;
                if self.compare() == Some(SnapshotOutcome::Ahead) {
                    return Taken::Ahead;
                }
            }
            _ => {}
        }
        Taken::Done
    }

    /// Decodes a message, or returns why it can't be used.
    fn unreadable(&mut self, sequence: u32, fast: &[u8]) -> Option<DropReason> {
        if self.decoder.decode(fast, &mut self.message).is_err() {
            self.tally.malformed += 1;
            return Some(MALFORMED);
        }
        (self.message.msg_seq_num != sequence).then_some(FALSE_PREAMBLE)
    }

    /// Handles a loss before this message: it may have changed any book.
    #[cold]
    fn lose(&mut self, sequence: u32) {
        self.losses += 1;
        self.books.gap(u64::from(sequence).saturating_sub(1));
        self.take_back();
    }

    /// Applies the decoded increment to the books, and queues updates for the strategy.
    fn apply(&mut self, sequence: u32) {
        self.tally.increments += 1;
        self.tally.entries += self.message.entries.len() as u64;
        let entries = std::mem::take(&mut self.message.entries);
        for entry in &entries {
            if entry.entry_type == EntryType::EmptyBook && entry.security_id.is_none() {
                // The market is reset: it empties the books of all instruments.
                self.begin_anew(u64::from(sequence) + 1);
                continue;
            }
            let applied = self.books.apply_entry(sequence, entry);
            self.meet();
            if let Ok((index, _)) = applied {
                self.seen[index].changes = true;
            }
            match applied {
                Ok((index, EntryOutcome::Applied { top })) => {
                    self.seen[index].is_owed |= top;
                    if self.seen[index].is_owed && self.trades(index) {
                        self.tell(index, sequence);
                    }
                }
                Ok((_, EntryOutcome::Held)) => self.take_back(),
                Ok((_, EntryOutcome::Old)) => {}
                Err(_) => {
                    self.tally.contradictions += 1;
                    self.take_back();
                }
            }
        }
        self.message.entries = entries;
    }

    /// Queues an update with a book's best levels.
    #[inline]
    fn tell(&mut self, index: usize, sequence: u32) {
        self.seen[index].is_owed = false;
        let Some(mut update) = update(&self.books, index, u64::from(sequence)) else { return };
        // The strategy's conclusions from before a loss are void.
        let told = std::mem::replace(&mut self.seen[index].losses, self.losses);
        update.reset = told != self.losses;
        self.tally.changes += 1;
        self.tally.untold += u64::from(!self.updates.put(update));
    }

    /// Takes back waiting updates of books that are not known to be right, or not traded.
    fn take_back(&mut self) {
        for index in 0..self.books.books().len() {
            let may_tell = self.trades(index) && self.books.books()[index].trust() == Trust::Live;
            if !may_tell && self.updates.len() > 0 {
                self.take_back_of(index);
            }
        }
    }

    /// Takes back the update of one book; its next entry that fits queues another.
    #[cold]
    fn take_back_of(&mut self, index: usize) {
        if u16::try_from(index).is_ok_and(|instrument| self.updates.forget(instrument)) {
            self.tally.changes -= 1;
            self.seen[index].is_owed = true;
        }
    }

    /// Starts the numbers anew: no book is right before a snapshot of the new ones, and waiting
    /// updates are void.
    #[cold]
    fn begin_anew(&mut self, next: u64) {
        self.losses += 1;
        self.books.begin_anew(next);
        self.take_back();
    }

    /// Compares the decoded snapshot with its book.
    fn compare(&mut self) -> Option<SnapshotOutcome> {
        let applied = self.books.apply_snapshot(&self.message);
        self.meet();
        match applied {
            Ok((index, outcome)) => {
                self.seen[index].equal += u64::from(outcome == SnapshotOutcome::Equal);
                if outcome == SnapshotOutcome::Different {
                    self.take_back_of(index);
                }
                Some(outcome)
            }
            Err(_) => {
                self.tally.contradictions += 1;
                None
            }
        }
    }

    fn keep(&mut self, packet: Packet, out: &mut Outputs<'_>) {
        if self.waiting.len() == SNAPSHOTS_HELD
            && let Some(oldest) = self.waiting.pop_front()
        {
            out.drop(oldest, SNAPSHOTS_FULL);
        }
        self.waiting.push_back(packet);
    }

    /// Tries each snapshot that was ahead again.
    fn retry(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(packet) = self.waiting.pop_front() else { return };
            let decoded = split_preamble(packet.data()).map(|(_, fast)| self.decoder.decode(fast, &mut self.message));
            // Decoding succeeded when it came, and the bytes are unchanged.
            if !matches!(decoded, Some(Ok(()))) {
                self.tally.malformed += 1;
            } else if self.compare() == Some(SnapshotOutcome::Ahead) {
                self.waiting.push_back(packet);
            }
        }
    }
}

/// An update with a book's best levels; `None` if a size is negative, or there are more than 2^16
/// books.
fn update(books: &FortsBooks, index: usize, tick: u64) -> Option<Update> {
    let book = books.books().get(index)?;
    let quote = |side| {
        let Some(level) = book.depth().best(side) else { return Some(Quote::EMPTY) };
        Some(Quote { price: level.price, size: u64::try_from(level.size).ok()? })
    };
    Some(Update {
        instrument: u16::try_from(index).ok()?,
        reset: false,
        number: book.security_id(),
        symbol: Symbol(*b"FORTS   "),
        tick,
        top: Top { bid: quote(Side::Buy)?, ask: quote(Side::Sell)? },
        last: 0,
    })
}

impl Drop for FortsBook {
    fn drop(&mut self) {
        let mut tally = std::mem::take(&mut self.tally);
        tally.books = *self.books.counts();
        tally.untold += self.updates.len() as u64;
        (tally.told, tally.overtaken) = (self.updates.told(), self.updates.overtaken());
        tally.equal_of_changing = self.seen.iter().filter(|seen| seen.changes).map(|seen| seen.equal).sum();
        self.home.leave(|all, stage| _ = all.forts.insert(stage, tally));
    }
}

#[cfg(test)]
mod tests;
