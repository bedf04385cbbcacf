//! The protocols between the software RNIC's threads, each small enough to be model-checked as it
//! is.
//!
//! - [`ring`] and [`consumer`], between senders and the thread that polls: completions, and one
//!   notification an arm.
//! - [`mailbox`], between one sender and the thread that polls: the only message of a connection in
//!   flight.
//! - [`credit`], between a sender and the thread that posts receives: the count of posted receives,
//!   and the start of a waiting sender.
//! - [`seqlock_entry`], between threads that use a key and threads that change it: the key's grant.
//! - [`versions`], between transfers through an indirect key and threads that configure it: the
//!   key's configuration when each transfer began.
//! - [`guard`], between data paths and threads that destroy an object: when nobody can hold the
//!   object any more.
//! - [`lock`], between threads that enter the same short section.
//! - [`turn`], between threads that can do the same work: one does it.
//! - [`standby`], between owners that poll and the thread that works while none does.
//! - [`lock_order`]: no thread waits for one that may wait for it, checked in debug builds.
//!
//! Nothing here knows of verbs, queue pairs or memory regions. No caller of a safe function can
//! break memory: a function that needs a promise of its caller is an `unsafe fn`, and slots are
//! reached by raw pointers only.
//!
//! # How it is proved
//! `tests/loom.rs` runs this very code under [loom](https://docs.rs/loom), which tries the
//! interleavings that it can tell apart, up to three preemptions:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --profile loom -p verbline-sync --test loom
//! ```

pub mod consumer;
pub mod credit;
pub mod guard;
pub mod lock;
pub mod lock_order;
pub mod mailbox;
mod primitives;
pub mod ring;
pub mod seqlock_entry;
pub mod standby;
pub mod turn;
pub mod versions;

pub use primitives::Backoff;
