//! The protocols between threads, each small enough to be model-checked as it is.
//!
//! Public only under loom, where `tests/loom.rs` runs this very code. Nothing here knows of verbs, queue pairs or memory regions.

#![allow(unreachable_pub, reason = "public under loom, where the models are outside this crate")]

pub mod consumer;
pub mod credit;
pub mod grant;
pub mod guard;
pub mod lock;
pub mod mailbox;
pub mod ring;
pub mod sync;
