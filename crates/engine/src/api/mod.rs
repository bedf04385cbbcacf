//! What an app writes and what it is given: the [`stage::Stage`] trait, the outputs, the registry
//! of stage kinds, and the errors.

pub(crate) mod error;
pub(crate) mod outputs;
pub(crate) mod registry;
pub(crate) mod stage;
