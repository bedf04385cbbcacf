//! The text of a plan: a file and `--set` flags become a tree in which each value has its place.

mod de;
pub mod duration;
pub(crate) mod file;
pub(crate) mod keys;
pub(crate) mod params;
pub(crate) mod set;
pub(crate) mod syntax;
pub(crate) mod tree;
