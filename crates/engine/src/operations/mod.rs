//! Operations of stages: what a stage asks for, the memory that it is about, and the queue of one
//! port's, between the stages and the queue pair.

pub(crate) mod lanes;
pub(crate) mod operation;
pub(crate) mod queue;
pub(crate) mod region;
pub(crate) mod returning;
pub(crate) mod send_with;
pub mod signature;
