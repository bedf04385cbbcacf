//! The integration tests of `softnic`: one program, one module per theme.
#![allow(clippy::undocumented_unsafe_blocks, reason = "test code calls the verbs as C does")]

mod conversation;
mod datagrams;
mod events;
mod fast_paths;
mod harness;
mod limits;
mod long_transfers;
mod messages;
mod model;
mod objects;
mod one_sided;
mod priorities;
mod psns;
mod refusals;
mod shared;
mod signature;
mod states;
mod threads;
mod windows;
