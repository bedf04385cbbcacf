//! The protocols between threads, each small enough to be model-checked as it is.
//!
//! Hidden from the documentation: public only so that `tests/loom.rs` runs this very code under loom. Nothing here
//! knows of verbs, queue pairs or memory regions.

pub mod consumer;
pub mod credit;
pub mod guard;
pub mod lock;
pub mod mailbox;
pub mod ring;
pub mod sync;
