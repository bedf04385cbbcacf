//! The keys of a plan: read from the tree into raw shapes, explained, and described to editors.

pub(crate) mod raw;
pub(crate) mod raw_port;
pub(crate) mod raw_stage;
pub(crate) mod reader;
pub(crate) mod reference;
pub(crate) mod schema;
