//! Faults of a plan: where they are, what they say, and how they are shown.

pub(crate) mod diagnostics;
pub(crate) mod excerpt;
mod render;
pub(crate) mod sink;
pub(crate) mod source;
pub(crate) mod suggestions;
