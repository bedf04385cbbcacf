//! The interface to the app: the [`stage::Stage`] trait, the outputs, the registry, and injectors
//! for messages from the app's own threads.

pub(crate) mod context;
pub(crate) mod injector;
pub(crate) mod opening;
mod operations;
pub(crate) mod outputs;
pub(crate) mod registry;
pub(crate) mod spread;
mod spread_send;
pub(crate) mod stage;
