//! The integration tests of `mem`: one program, one module per theme.
#![cfg(not(loom))]

mod batch;
mod deal;
mod nodes;
mod oracle;
mod packet;
mod peer;
mod pool;
mod region;
mod support;
mod uring;
