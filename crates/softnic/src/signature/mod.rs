//! Signature offload: block signatures, and the indirect keys that check them.
//!
//! What is generated, checked, copied or taken away while data moves through a key is pure code
//! that knows bytes, and no queue pair: `guard` sums a block up, `domain` says what a block's
//! protection information must be, `flow` does one block, `converter` a stream of them. A key
//! (`mkey`) has a `layout` and a signature by its `configuration`. `types` has the names of
//! `mlx5dv.h`.

pub(crate) mod configuration;
pub(crate) mod converter;
pub(crate) mod domain;
pub(crate) mod flow;
pub(crate) mod guard;
pub(crate) mod layout;
pub(crate) mod mkey;
pub(crate) mod types;
