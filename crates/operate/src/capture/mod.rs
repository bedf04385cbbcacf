//! A capture, streamed to the client that asks for it as a pcapng file.

pub mod blocks;
mod frame;
mod pcapng;
pub(crate) mod stream;
