//! The poll loop of one lcore, its nodes (stages in their places) and its rings.

pub(crate) mod completing;
pub(crate) mod drain;
mod in_order;
mod late;
pub(crate) mod node;
mod notices;
pub(crate) mod poll_loop;
pub(crate) mod rings;
mod shutdown;
mod sleeping;
mod steps;
mod tapped;
#[cfg(test)]
mod waiting_tests;
pub(crate) mod waits;
mod watched;
