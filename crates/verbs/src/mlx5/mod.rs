//! Signature offload of mlx5 cards, by libmlx5, which is opened when a kernel device is first asked
//! for it.
//!
//! The evidence so far: it compiles, its declarations are checked against mlx5dv.h (`header`), its
//! symbols against the library (`functions`), and its calls against functions that record them
//! (`translation`, `tests`). **It has not run on a card**: its authors have none.

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
