//! The keys of a plan: read from the tree into raw shapes, and explained.

pub(crate) mod raw;
pub(crate) mod raw_port;
pub(crate) mod raw_stage;
pub(crate) mod reader;
pub(crate) mod reference;
