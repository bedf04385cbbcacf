//! An idle lcore: when it sleeps, how it goes to sleep, and its wake sources.

mod bins;
pub(crate) mod forecast;
mod gaps;
pub(crate) mod policy;
#[cfg(feature = "simulation")]
pub mod simulation;
pub(crate) mod sleep;
#[cfg(test)]
mod tests;
pub(crate) mod wake_cost;
pub(crate) mod wake_set;
