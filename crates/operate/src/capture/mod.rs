//! A capture, streamed to the client that asks for it as a pcapng file.

pub mod blocks;
pub(crate) mod feed;
mod frame;
mod pcapng;
