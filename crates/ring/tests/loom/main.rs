//! Loom models of the real doorbell, fences, notices, displacement and detection of quiet: every
//! interleaving, every value that a load may see.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p verbline-ring --release --test loom`
#![cfg(loom)]

mod displace;
mod doorbell;
mod notices;
mod quiet;
