//! Operations of stages: the requests, their memory, and each port's queue between the stages and
//! the queue pair.

pub(crate) mod declined;
pub(crate) mod lanes;
pub(crate) mod operation;
pub(crate) mod queue;
pub(crate) mod region;
pub(crate) mod send_with;
pub mod signature;
