//! A run, seen by its owner: started, watched, waited for and stopped.

pub(crate) mod runtime;
pub(crate) mod start;
pub(crate) mod stop;
