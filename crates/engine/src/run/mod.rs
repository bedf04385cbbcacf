//! A run as its owner sees it: started, watched, waited for and stopped.

pub(crate) mod runtime;
pub(crate) mod start;
pub(crate) mod stop;
