//! What an app writes and what it is given: the [`stage::Stage`] trait, the [`acceptor::Acceptor`]
//! trait, the outputs, the registry of both, and the errors.

pub(crate) mod acceptor;
pub(crate) mod connection;
pub(crate) mod context;
mod deal;
pub(crate) mod error;
pub(crate) mod guarded;
pub(crate) mod opening;
mod operate;
pub(crate) mod operation_memory;
pub(crate) mod operations;
pub(crate) mod outputs;
pub(crate) mod region;
pub(crate) mod registry;
pub mod signature;
pub(crate) mod sink;
pub(crate) mod spread;
pub(crate) mod stage;
pub(crate) mod stuck;
