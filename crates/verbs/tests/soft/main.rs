//! The public API on the software RNIC, one subject a file.
#![allow(unreachable_pub, reason = "a test binary exports nothing; `pub` separates its modules")]

mod backpressure;
mod common;
mod connections;
mod events;
mod lifecycle;
mod multicast;
mod one_sided;
mod oracle;
mod pingpong;
mod shared_receive;
mod states;
mod windows;
