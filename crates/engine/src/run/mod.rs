//! A run from its owner's side: started, watched, waited for and stopped.

mod attachment;
pub(crate) mod capture;
pub(crate) mod change;
pub(crate) mod observed;
pub(crate) mod observer;
pub(crate) mod pause;
#[cfg(test)]
mod random_steps;
pub(crate) mod runtime;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod thread_registration;
pub(crate) mod trace;
