//! What the benchmarks share: pinned threads, our side of every row, and the floors that they are
//! held against.
//!
//! [`ours`] has one function a measurement, each giving [`Figures`]. The criterion benchmarks
//! (`benches/`) and the runs beside peers (`src/bin/peers`) stand on the same pieces, so that what
//! is compared is what is watched.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod callgrind;
pub mod drawing;
pub mod figures;
pub mod floor;
pub mod ours;
pub mod pair;

pub use figures::Figures;
