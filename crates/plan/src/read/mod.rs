//! The keys of a plan: their reading into raw shapes, their explanations, and their schema for
//! editors.

pub(crate) mod raw;
pub(crate) mod raw_port;
pub(crate) mod raw_stage;
pub(crate) mod reader;
pub(crate) mod reference;
pub(crate) mod schema;
