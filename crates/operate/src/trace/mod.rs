//! A trace of a run: the activity of its lcores, and the way of each packet.
//!
//! [`Client::trace`](crate::client::Client::trace) begins one. From its [`Events`](events::Events),
//! an [`Analysis`] makes slices of the lcores' time, which [`chrome`] writes to a file, and ways of
//! packets, counted in its [`Summary`](summary::Summary).

pub mod chrome;
pub mod events;
pub mod journey;
pub mod kept;
pub mod summary;
pub mod timeline;

mod analysis;
pub(crate) mod feed;
mod follow;
mod merge;
pub(crate) mod settings;
pub(crate) mod tallies;
mod tally;

pub use analysis::Analysis;
pub use tally::Wanted;
pub use timeline::Output;
