//! The stages' counts and measurements, for the report.
//!
//! Each stage counts in its own memory and hands its part over when it is dropped, at the end of
//! its lcore: there is no lock on the data path.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use verbline::prelude::StageContext;

use crate::arbitration::ArbiterCounts;
use crate::book::BookImage;
use crate::fast::FortsCounts;
use crate::recovery::{FollowerCounts, ServicesCounts};
use crate::risk::RiskCounts;

/// The place where stages leave their parts.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Tallies>>);

/// Parts of one kind, by the names of their stages: a plan may have several stages of a kind.
pub type ByStage<T> = BTreeMap<String, T>;

/// The parts of all stages.
#[derive(Debug, Default)]
pub struct Tallies {
    /// Exchanges.
    pub exchanges: ByStage<ExchangeTally>,
    /// Exchanges that generate ITCH: their services, and their own books at the end.
    pub origins: ByStage<OriginTally>,
    /// Arbiters.
    pub arbiters: ByStage<ArbiterTally>,
    /// ITCH books.
    pub itch: ByStage<ItchTally>,
    /// FORTS books.
    pub forts: ByStage<FortsTally>,
    /// Strategies.
    pub strategies: ByStage<StrategyTally>,
}

/// The place where one stage leaves its part.
#[derive(Clone, Debug, Default)]
pub(super) struct Home {
    tally: Tally,
    stage: String,
}

impl Home {
    /// Leaves the part by `put`, which gets the stage's name.
    pub(super) fn leave(&self, put: impl FnOnce(&mut Tallies, String)) {
        put(&mut self.tally.lock(), self.stage.clone());
    }
}

impl Tally {
    /// The place of this stage's part.
    pub(super) fn home(&self, stage: &StageContext<'_>) -> Home {
        Home { tally: self.clone(), stage: stage.name().to_owned() }
    }

    /// The parts that have been handed over so far.
    pub fn lock(&self) -> MutexGuard<'_, Tallies> {
        // Plain data, replaced whole: a panic elsewhere cannot leave it half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An arbiter's part.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArbiterTally {
    /// In messages.
    pub counts: ArbiterCounts,
    /// The length of the feed's silence at the stop, if it was too long.
    pub silent_ns: Option<u64>,
    /// The length of all silences that were too long, ns.
    pub silent_in_all_ns: u64,
}

/// An exchange's part.
#[derive(Debug)]
pub struct ExchangeTally {
    /// Messages of the feed; each goes out on both channels.
    pub published: u64,
    /// Messages dropped on purpose, by channel.
    pub dropped: [u64; 2],
    /// Messages that both channels dropped.
    pub dropped_both: u64,
    /// Orders that arrived.
    pub orders: u64,
    /// Packets that arrived as orders and were malformed.
    pub malformed_orders: u64,
    /// Orders for ticks that are unknown or no longer kept: they have no latency.
    pub unknown_ticks: u64,
    /// Orders whose report could not be sent.
    pub unanswered: u64,
    /// From the scheduled time of a tick to the arrival of its order, ns.
    pub tick_to_trade_ns: Histogram<u64>,
    /// The tick-to-trade time in consecutive steps, summed over all orders: scheduled to published,
    /// to received by the trader, to decided, to arrived.
    pub steps_ns: [u64; 4],
}

/// Names of [`ExchangeTally::steps_ns`].
pub const STEPS: [&str; 4] = ["publish", "feed", "decide", "order"];

/// The services of an exchange that generates ITCH, and its books at the end.
#[derive(Debug, Default)]
pub struct OriginTally {
    /// Messages sent again, and snapshots.
    pub services: ServicesCounts,
    /// The time of pauses in which it published nothing, ns.
    pub skipped_ns: u64,
    /// The next sequence number.
    pub next_sequence: u64,
    /// The book of each instrument.
    pub books: Vec<BookImage>,
}

/// An ITCH book stage's part.
#[derive(Debug, Default)]
pub struct ItchTally {
    /// The follower's counts.
    pub follower: FollowerCounts,
    /// The next sequence number.
    pub next_sequence: u64,
    /// Books that were wrong at the end, or not known to be right.
    pub stale_books: usize,
    /// Updates taken back before they were sent, as their book was no longer right, or its
    /// instrument was halted.
    pub taken_back: u64,
    /// Changes of a best level: told, overtaken, taken back or untold.
    pub changes: u64,
    /// Changes sent to the strategy.
    pub told: u64,
    /// Changes overtaken by a later one of the same instrument before they were sent.
    pub overtaken: u64,
    /// Changes not sent to the strategy: of instruments that it does not follow, or left at the
    /// end.
    pub untold: u64,
    /// Price levels at the end, over all books and sides.
    pub levels: usize,
    /// Live orders at the end.
    pub live_orders: usize,
    /// The books at the end.
    pub books: Vec<BookImage>,
}

/// A FORTS book stage's part.
#[derive(Debug, Default)]
pub struct FortsTally {
    /// Increments decoded.
    pub increments: u64,
    /// Their entries.
    pub entries: u64,
    /// Snapshots decoded.
    pub snapshots: u64,
    /// Datagrams that are not FAST.
    pub malformed: u64,
    /// Entries or snapshots that contradict a book.
    pub contradictions: u64,
    /// Changes of a best level: told, overtaken or untold.
    pub changes: u64,
    /// Changes sent to the strategy.
    pub told: u64,
    /// Changes overtaken by a later one of the same instrument before they were sent.
    pub overtaken: u64,
    /// Changes not sent to the strategy: of instruments that it does not follow, or left at the
    /// end.
    pub untold: u64,
    /// Snapshots equal to a book that increments had changed; the others prove nothing.
    pub equal_of_changing: u64,
    /// The books' own counts.
    pub books: FortsCounts,
}

/// A strategy's part.
#[derive(Debug, Default)]
pub struct StrategyTally {
    /// Changes of a best level that it considered.
    pub updates: u64,
    /// Changes among them of a locked or crossed book: the trigger ignores them.
    pub crossed: u64,
    /// Orders that the trigger asked for.
    pub intents: u64,
    /// Orders sent.
    pub orders: u64,
    /// Orders not sent: the packet went to another order, or there was no room.
    pub unsent: u64,
    /// Orders that reports of the exchange have settled, each in whole.
    pub reports: u64,
    /// Reports that match no open order, or exceed what is left of it: no position has them.
    pub unmatched: u64,
    /// Orders filled, in part or whole.
    pub filled: u64,
    /// Orders cancelled, in part or whole.
    pub cancelled: u64,
    /// The risk gate's passes and refusals.
    pub risk: RiskCounts,
}
