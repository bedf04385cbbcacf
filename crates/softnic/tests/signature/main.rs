//! Signature offload: indirect keys, block signatures, and the pipelining of responses.
#![allow(clippy::undocumented_unsafe_blocks)]

mod arrivals;
#[path = "../harness/mod.rs"]
mod harness;
mod keys;
mod pipelining;
mod rig;
mod transfers;
