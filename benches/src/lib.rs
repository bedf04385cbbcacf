//! The common parts of the benchmarks: pinned threads, our side of every row, and the floors for
//! comparison.
//!
//! [`ours`] has one function per measurement, each returning [`Figures`]. The criterion benchmarks
//! (`benches/`) and the runs beside peers (`src/bin/peers`) use the same parts, so that the
//! compared code is the watched code.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod callgrind;
pub mod drawing;
pub mod figures;
pub mod floor;
pub mod ours;
pub mod pair;

pub use figures::Figures;
