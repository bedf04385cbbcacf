//! The text of a plan: from a file and `--set` flags to a tree in which every value knows its place.

mod de;
pub mod duration;
pub(crate) mod file;
pub(crate) mod params;
pub(crate) mod set;
pub(crate) mod syntax;
pub(crate) mod tree;
