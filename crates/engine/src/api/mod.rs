//! What an app writes and is given: the [`stage::Stage`], what it sends through, the kinds that it registers, and the
//! errors.

pub(crate) mod error;
pub(crate) mod outputs;
pub(crate) mod registry;
pub(crate) mod stage;
