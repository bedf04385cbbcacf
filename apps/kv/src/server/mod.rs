//! The server's stages: a router that says which shard a request is for, and the shards.

mod route;
mod shard;

use verbline::prelude::*;

/// Registers both kinds.
pub(crate) fn register(registry: &mut Registry) {
    route::register(registry);
    shard::register(registry);
}
