//! Signature offload: indirect keys, block signatures, and the pipelining of responses.
mod arrivals;
mod keys;
mod pipelining;
pub(crate) mod rig;
mod transfers;
mod waiting;
