//! Connections by address: made before the lcores run, and made again when they are lost.

pub(crate) mod connections;
pub(crate) mod connector;
pub(crate) mod handover;
pub(crate) mod spec;
pub(crate) mod supervisor;
