//! The graph of a plan.

mod dot_mermaid;
pub(crate) mod graph;
