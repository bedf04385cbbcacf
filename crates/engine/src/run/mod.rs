//! A run as its owner sees it: started, watched, waited for and stopped.

pub(crate) mod capture;
pub(crate) mod observed;
pub(crate) mod observer;
#[cfg(test)]
mod random_steps;
pub(crate) mod runtime;
pub(crate) mod seat;
pub(crate) mod start;
pub(crate) mod stop;
