//! The trader's five-level books of the recorded feed: applies increments, holds each snapshot
//! against the book, and brings a book back from a snapshot after a loss.

use std::collections::VecDeque;

use verbline::plan::{Asked, Needs};
use verbline::prelude::*;

use super::arbiter::Mark;
use super::settings::{INSTRUMENTS_MAX, MoexSettings};
use super::tally::{FortsTally, Home, Tally};
use super::update::{UPDATE_LEN_BYTES, Update, Updates};
use crate::fast::{BooksSpec, Decoder, EntryOutcome, FortsBooks, Message, MessageKind, SnapshotOutcome, Trust};
use crate::framing::split_preamble;
use crate::itch::{Side, Symbol};
use crate::risk::{Quote, Top};

const CHANGED: OutId = OutId(0);
const DROPS: &[&str] = &["malformed", "snapshots_full", "false_preamble", "not_in_order"];
const MALFORMED: DropReason = DropReason::Stage(0);
const SNAPSHOTS_FULL: DropReason = DropReason::Stage(1);
const FALSE_PREAMBLE: DropReason = DropReason::Stage(2);
/// An increment that did not come by an arbiter, e.g. on the snapshots' channel.
const NOT_IN_ORDER: DropReason = DropReason::Stage(3);

/// Snapshots that wait for their increments: no more than one turn of the lcore can bring.
const SNAPSHOTS_HELD: usize = 256;

/// Entries of an instrument that are held while it waits for a snapshot.
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
    // A check makes no books.
    let describe = |stage: &StageContext<'_>| {
        stage.no_params()?;
        Ok(MoexSettings::open(stage)?.1)
    };
    registry.opening_stage("forts-book", spec, describe, move |feed, stage| {
        Ok(Box::new(FortsBook::new(feed.decoder(), stage.burst(), home.home(stage))))
    });
    registry.needs("forts-book", needs);
}

/// Memory for the books, and packets that hold one update.
fn needs(_: &Asked<'_>) -> Needs {
    Needs {
        memory_bytes: vec![("books", BOOKS.memory_bytes()), ("updates", Updates::memory_bytes(INSTRUMENTS_MAX))],
        packet_bytes: vec![("an update", UPDATE_LEN_BYTES as u64)],
        ..Needs::default()
    }
}

struct FortsBook {
    books: FortsBooks,
    decoder: Decoder,
    message: Message,
    /// Snapshots that are ahead of their book, in the order of their arrival.
    waiting: VecDeque<Packet>,
    /// The market trades, as the exchange said last: it does so beside the snapshots, without which
    /// no book is right either.
    is_open: bool,
    updates: Updates,
    /// What was seen of each book.
    seen: Box<[Seen]>,
    /// How often increments were lost.
    losses: u32,
    tally: FortsTally,
    home: Home,
}

/// `TradSesStatus` (340) while the market trades. Any other is a halt, an auction or a close.
const OPEN: u32 = 2;

/// `SecurityTradingStatus` (326) of an instrument that trades. Any other is a halt, an auction, or
/// an instrument that is not for trading. One of which nothing was said trades.
const TRADES: u32 = 17;

/// What becomes of the packet of a message.
enum Taken {
    /// It has changed books: it may carry what the strategy is told.
    Applied,
    /// A snapshot that is ahead of its book.
    Ahead,
    /// All is done.
    Done,
    Dropped(DropReason),
}

/// What was seen of one book.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// It has had an entry: only then does a snapshot prove anything.
    changes: bool,
    /// Snapshots that it equalled.
    equal: u64,
    /// The exchange says that it is not traded.
    is_halted: bool,
    /// How often increments had been lost when the strategy was last told of it.
    losses: u32,
    /// Its best levels have changed, and the strategy was not told, or that was taken back.
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
            updates: Updates::new(INSTRUMENTS_MAX, burst, CHANGED),
            seen: vec![Seen::default(); usize::from(INSTRUMENTS_MAX)].into_boxed_slice(),
            losses: 0,
            tally: FortsTally::default(),
            home,
        }
    }

    /// Takes a message as the arbiter marked it, if it came by one; `anew`: the feed begins anew
    /// with it, and without a mark there nothing of it counts.
    fn take(&mut self, mark: Option<Mark>, anew: Option<Option<Mark>>, sequence: u32, fast: &[u8]) -> Taken {
        let in_order = mark.or(anew.flatten());
        // Whatever the message is, and though it may be none.
        if in_order.is_some_and(|mark| mark.lost_before) {
            self.lose(sequence);
        }
        if self.decoder.decode(fast, &mut self.message).is_err() {
            self.tally.malformed += 1;
            return Taken::Dropped(MALFORMED);
        }
        if self.message.msg_seq_num != sequence {
            return Taken::Dropped(FALSE_PREAMBLE);
        }
        if anew.is_some() {
            self.begin_anew(sequence.into());
        }
        match self.message.kind {
            MessageKind::Increment if in_order.is_some() => {
                self.apply(sequence);
                return Taken::Applied;
            }
            MessageKind::Increment => return Taken::Dropped(NOT_IN_ORDER),
            // Resets of the snapshots' own channel say nothing of the stream.
            MessageKind::SequenceReset if mark.is_some() => self.begin_anew(self.message.new_seq_num.into()),
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

    /// Messages were lost before this one: any book may have changed by them.
    #[cold]
    fn lose(&mut self, sequence: u32) {
        self.losses += 1;
        self.books.gap(u64::from(sequence).saturating_sub(1));
        self.take_back();
    }

    /// Applies the decoded increment to the books, and keeps what the strategy is to be told of it.
    fn apply(&mut self, sequence: u32) {
        self.tally.increments += 1;
        self.tally.entries += self.message.entries.len() as u64;
        let entries = std::mem::take(&mut self.message.entries);
        for entry in &entries {
            let applied = self.books.apply_entry(sequence, entry);
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

    /// Keeps the best levels of a book for the strategy.
    #[inline]
    fn tell(&mut self, index: usize, sequence: u32) {
        self.seen[index].is_owed = false;
        let Some(mut update) = update(&self.books, index, u64::from(sequence)) else { return };
        // What the strategy concluded from a book before a loss is void.
        let told = std::mem::replace(&mut self.seen[index].losses, self.losses);
        update.reset = told != self.losses;
        self.tally.changes += 1;
        self.tally.untold += u64::from(!self.updates.put(update));
    }

    /// The exchange says how the market stands. While it does not trade, the books are kept, and
    /// the strategy is told nothing.
    fn session(&mut self, status: u32) {
        let is_open = status == OPEN;
        match (std::mem::replace(&mut self.is_open, is_open), is_open) {
            (true, false) => {
                tracing::warn!("the market does not trade (TradSesStatus {status}): nothing is traded until it does");
                self.take_back();
            }
            (false, true) => tracing::info!("the market trades"),
            _ => {}
        }
    }

    /// The exchange says how an instrument stands: as of the market, of that one book.
    #[cold]
    fn security(&mut self) {
        let (Some(security_id), Some(status)) = (self.message.security_id, self.message.trading_status) else { return };
        // One that is halted before its book is known must be known as halted.
        let index = match self.books.index_of(security_id) {
            None if status == TRADES => return,
            Some(index) => index,
            None => match self.books.open(security_id) {
                Ok(index) => index,
                // It can have no book, and is not traded.
                Err(_) => return,
            },
        };
        let is_halted = status != TRADES;
        if std::mem::replace(&mut self.seen[index].is_halted, is_halted) == is_halted {
            return;
        }
        match is_halted {
            true => {
                tracing::warn!("instrument {security_id} is not traded (SecurityTradingStatus {status})");
                self.take_back();
            }
            false => tracing::info!("instrument {security_id} is traded again"),
        }
    }

    /// Whether the instrument of a book is traded.
    #[inline]
    fn trades(&self, index: usize) -> bool {
        self.is_open && !self.seen[index].is_halted
    }

    /// Takes back what waits to be told of books that may not be right any more, or are not traded.
    fn take_back(&mut self) {
        for index in 0..self.books.books().len() {
            let may_tell = self.trades(index) && self.books.books()[index].trust() == Trust::Live;
            if !may_tell && self.updates.len() > 0 {
                self.take_back_of(index);
            }
        }
    }

    /// The same of one book, which is told of again with its next entry that fits.
    #[cold]
    fn take_back_of(&mut self, index: usize) {
        if u16::try_from(index).is_ok_and(|instrument| self.updates.forget(instrument)) {
            self.tally.changes -= 1;
            self.seen[index].is_owed = true;
        }
    }

    /// No book is right until a snapshot of the new numbers, and what waits to be told is void.
    #[cold]
    fn begin_anew(&mut self, next: u64) {
        self.losses += 1;
        self.books.begin_anew(next);
        self.take_back();
    }

    /// Holds the decoded snapshot against its book.
    fn compare(&mut self) -> Option<SnapshotOutcome> {
        match self.books.apply_snapshot(&self.message) {
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

    /// Looks again at each snapshot that was ahead.
    fn retry(&mut self) {
        for _ in 0..self.waiting.len() {
            let Some(packet) = self.waiting.pop_front() else { return };
            let decoded = split_preamble(packet.data()).map(|(_, fast)| self.decoder.decode(fast, &mut self.message));
            // It could be decoded as it came, and is as it was.
            if !matches!(decoded, Some(Ok(()))) {
                self.tally.malformed += 1;
            } else if self.compare() == Some(SnapshotOutcome::Ahead) {
                self.waiting.push_back(packet);
            }
        }
    }
}

/// The best levels of a book that can be relied on; sizes are positive, and there are fewer books
/// than 2^16.
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
