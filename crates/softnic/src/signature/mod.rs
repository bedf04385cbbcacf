//! Block signatures: protection information that is generated, checked, copied or taken away while
//! data moves through a key. Pure code: it knows bytes, and no queue pair.
//!
//! `guard` sums a block up, `domain` says what a block's protection information must be, `flow`
//! does one block, `converter` a stream of them.

pub(crate) mod converter;
pub(crate) mod domain;
pub(crate) mod flow;
pub(crate) mod guard;
