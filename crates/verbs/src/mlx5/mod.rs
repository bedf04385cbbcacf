//! Signature offload of mlx5 cards, by libmlx5, which is opened when a kernel device is first asked
//! for it.
//!
//! What is known of it: it compiles, its declarations are held against mlx5dv.h (`header`), its
//! symbols against the library (`functions`), and the calls that it makes against functions that
//! record them (`translation`, `tests`). **It has not run on a card**: nobody who worked on it has
//! one.

pub(crate) mod card;
pub(crate) mod configuration;
#[cfg(test)]
mod emulated;
pub(crate) mod extended;
mod ffi;
pub(crate) mod functions;
#[cfg(test)]
mod header;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod translation;
