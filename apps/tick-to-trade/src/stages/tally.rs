//! What the stages counted and measured, for the report.
//!
//! Each stage counts in its own memory and hands its part over when it is dropped, at the end of
//! its lcore: no lock is near the data path.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hdrhistogram::Histogram;
use verbline::prelude::StageContext;

use crate::arbitration::ArbiterCounts;
use crate::book::BookImage;
use crate::fast::FortsCounts;
use crate::recovery::{FollowerCounts, ServicesCounts};
use crate::risk::RiskCounts;

/// Where stages leave their parts.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<Tallies>>);

/// Parts of one kind, by the names of their stages: a plan may have several stages of a kind.
pub type ByStage<T> = BTreeMap<String, T>;

/// One part a stage.
#[derive(Debug, Default)]
pub struct Tallies {
    /// The exchanges'.
    pub exchanges: ByStage<ExchangeTally>,
    /// Those of exchanges which generate ITCH: their services, and their own books at the end.
    pub origins: ByStage<OriginTally>,
    /// The arbiters'.
    pub arbiters: ByStage<ArbiterTally>,
    /// Those of ITCH books.
    pub itch: ByStage<ItchTally>,
    /// Those of FORTS books.
    pub forts: ByStage<FortsTally>,
    /// The strategies'.
    pub strategies: ByStage<StrategyTally>,
}

/// Where one stage leaves its part.
#[derive(Clone, Debug, Default)]
pub(super) struct Home {
    tally: Tally,
    stage: String,
}

impl Home {
    /// Leaves the part by `put`, which is given the stage's name.
    pub(super) fn leave(&self, put: impl FnOnce(&mut Tallies, String)) {
        put(&mut self.tally.lock(), self.stage.clone());
    }
}

impl Tally {
    /// Where this stage leaves its part.
    pub(super) fn home(&self, stage: &StageContext<'_>) -> Home {
        Home { tally: self.clone(), stage: stage.name().to_owned() }
    }

    /// The parts that have been handed over so far.
    pub fn lock(&self) -> MutexGuard<'_, Tallies> {
        // Plain data that is replaced whole: a panic elsewhere cannot leave it half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an arbiter saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArbiterTally {
    /// In messages.
    pub counts: ArbiterCounts,
    /// How long it had heard nothing of its feed at the stop, if for too long.
    pub silent_ns: Option<u64>,
}

/// What the exchange did.
#[derive(Debug)]
pub struct ExchangeTally {
    /// Messages of the feed, each of which both channels carry.
    pub published: u64,
    /// Messages that channel A and channel B dropped on purpose.
    pub dropped: [u64; 2],
    /// Messages that both did.
    pub dropped_both: u64,
    /// Orders that arrived.
    pub orders: u64,
    /// Bytes that arrived as orders and were none.
    pub malformed_orders: u64,
    /// Orders for ticks that are not remembered, or that there were not: without a latency.
    pub unknown_ticks: u64,
    /// Orders whose report could not be sent.
    pub unanswered: u64,
    /// From the scheduled time of a tick to the arrival of its order, ns.
    pub tick_to_trade_ns: Histogram<u64>,
    /// The same, cut into what happened in turn, summed over all orders: scheduled to published, to
    /// received by the trader, to decided, to arrived.
    pub steps_ns: [u64; 4],
}

/// Names of [`ExchangeTally::steps_ns`].
pub const STEPS: [&str; 4] = ["publish", "feed", "decide", "order"];

/// What the exchange that generates ITCH served, and its books at the end.
#[derive(Debug, Default)]
pub struct OriginTally {
    /// Messages sent again, and snapshots.
    pub services: ServicesCounts,
    /// The time of pauses in which it would have published, ns.
    pub skipped_ns: u64,
    /// The next sequence number.
    pub next_sequence: u64,
    /// The book of each instrument.
    pub books: Vec<BookImage>,
}

/// What the ITCH books saw.
#[derive(Debug, Default)]
pub struct ItchTally {
    /// What following the stream counted.
    pub follower: FollowerCounts,
    /// The next sequence number.
    pub next_sequence: u64,
    /// Books that were not right at the end, or not known to be.
    pub stale_books: usize,
    /// Updates that were taken back before the strategy was told, since their book had ceased to be
    /// right.
    pub taken_back: u64,
    /// Changes of a best level: told, overtaken, taken back or untold.
    pub changes: u64,
    /// Changes that the strategy was told of.
    pub told: u64,
    /// Changes that a later one of the same instrument took the place of, before the strategy was
    /// told.
    pub overtaken: u64,
    /// Changes that the strategy was not told of: of instruments that it does not follow, or left
    /// at the end.
    pub untold: u64,
    /// Price levels at the end, over all books and sides.
    pub levels: usize,
    /// Live orders at the end.
    pub live_orders: usize,
    /// The books at the end.
    pub books: Vec<BookImage>,
}

/// What the FORTS books saw.
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
    /// Changes that the strategy was told of.
    pub told: u64,
    /// Changes that a later one of the same instrument took the place of, before the strategy was
    /// told.
    pub overtaken: u64,
    /// Changes that the strategy was not told of: of instruments that it does not follow, or left
    /// at the end.
    pub untold: u64,
    /// Snapshots equal to a book that increments had changed; the others prove nothing.
    pub equal_of_changing: u64,
    /// The books' own counts.
    pub books: FortsCounts,
}

/// What the strategy did.
#[derive(Debug, Default)]
pub struct StrategyTally {
    /// Changes of a best level that it looked at.
    pub updates: u64,
    /// Of these, of a book whose best bid was not below its best offer: nothing comes of them.
    pub crossed: u64,
    /// Orders that the trigger wanted.
    pub intents: u64,
    /// Orders sent.
    pub orders: u64,
    /// Orders wanted that were not sent: the packet went to another order, or there was no room for
    /// it.
    pub unsent: u64,
    /// Reports of the exchange, one for each order that it took.
    pub reports: u64,
    /// Orders filled by the exchange, in part or whole.
    pub filled: u64,
    /// Cancelled, in part or whole.
    pub cancelled: u64,
    /// What the risk gate let pass and refused.
    pub risk: RiskCounts,
}
