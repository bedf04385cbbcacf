//! Signature offload: block signatures, and the indirect keys that check them.
//!
//! Generating, checking, copying and removing protection information is pure code on bytes, without
//! queue pairs: `guard` sums up a block, `domain` has the correct protection information of a
//! block, `flow` converts one block, `converter` a stream of them. A key (`mkey`) has a `layout`
//! and a signature by its `configuration`. `types` has the names of `mlx5dv.h`.

pub(crate) mod configuration;
pub(crate) mod converter;
pub(crate) mod domain;
pub(crate) mod flow;
pub(crate) mod guard;
pub(crate) mod layout;
pub(crate) mod mkey;
pub(crate) mod types;
