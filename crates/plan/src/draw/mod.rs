//! The plan as a picture.

mod dot_mermaid;
pub(crate) mod graph;
