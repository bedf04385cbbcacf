//! Diagnostics of a plan: places, texts, and rendering.

pub(crate) mod diagnostics;
pub(crate) mod excerpt;
mod render;
pub(crate) mod sink;
pub(crate) mod source;
pub(crate) mod suggestions;
