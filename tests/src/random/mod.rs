//! Random valid plans: drawn by seed, run, and judged by the conditions on every run.
//!
//! A [`Draft`] is what a plan is made of, as plain numbers, so that a failing one shrinks by making
//! numbers smaller. It is written out as the TOML text of a plan ([`Draft::text`]) whose pools have
//! the packets, and the headroom, that the plan's own sums ask for and not one more. The stages do
//! what the engine allows and an app seldom does: they hold, release, drop, leave packets in their
//! input, take fresh ones, prepend, hand on a part of a batch, arm timers, ask for immediate data,
//! fences and their packets back, and answer every [`Next`](verbline::prelude::Next). Beside them a
//! plan may have parts with a purpose of their own: two stages that talk, operations on a region,
//! threads that inject or write to sockets, connections that come and go. A thread beside the run
//! may change its ports, pause them, capture, trace and look.
//!
//! [`judge`] compares what the stages counted with what the report says.

mod clerk;
mod draft;
mod drawn;
mod gate;
mod gather;
mod judge;
mod judge_links;
mod judge_pairs;
mod judge_parts;
mod links;
mod marks;
mod meddler;
mod memory;
mod operator;
mod owner;
mod pairs;
mod parts;
mod polls;
mod run;
mod stages;
mod talk;
mod taps;
mod text;
mod text_parts;
mod timers;
mod visits;
mod watches;
mod ways;

pub use draft::{Draft, draw, shrink};
pub use judge::judge;
pub use judge_pairs::{Facts, judge_pair};
pub use pairs::sides;
pub use run::{is_alone, is_side, run, run_without, verdict, with_least_pools};
