//! The stages: the exchange's side and the trader's side, wired by a plan.
//!
//! ```text
//! exchange ──A──▶ arbiter ──▶ itch-book or forts-book ──▶ strategy ──order──▶ exchange
//!          ──B──▶              │ ▲                           ▲──────report──────┘
//!          ◀──request──────────┘ │
//!          ──messages, snapshots─┘
//! ```
//!
//! A packet is reused all the way: the arriving frame becomes the update message of the book, and
//! that becomes the order.

#[cfg(test)]
pub(crate) mod alone;
mod arbiter;
mod channels;
mod desk;
mod forts_book;
mod itch_book;
mod itch_exchange;
mod moex_exchange;
mod pacer;
mod replay;
mod services;
mod settings;
mod silence;
mod strategy;
mod tally;
mod teller;
mod update;
mod wire;

use verbline::prelude::*;

pub use settings::INSTRUMENTS_MAX;
use settings::{ItchSettings, MoexSettings, RiskSettings, TriggerSettings};
pub use tally::{
    ArbiterTally, ByStage, ExchangeTally, FortsTally, ItchTally, OriginTally, STEPS, StrategyTally, Tallies, Tally,
};

/// Registers every kind of stage and its sections. The stages add their counts to `tally`.
pub fn register(registry: &mut Registry, tally: &Tally) {
    registry
        .section_of::<ItchSettings>("feed", "what `itch-exchange` generates, and loses")
        .section_of::<MoexSettings>("feed", "the recording that `moex-exchange` plays")
        .section_of::<TriggerSettings>("trigger", "when an order is sent")
        .section_of::<RiskSettings>("risk", "which orders are held back");
    itch_exchange::register(registry, tally);
    moex_exchange::register(registry, tally);
    arbiter::register(registry, tally);
    itch_book::register(registry, tally);
    forts_book::register(registry, tally);
    strategy::register(registry, tally);
}
