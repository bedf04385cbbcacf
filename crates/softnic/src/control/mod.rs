//! Verbs that change a queue pair as a whole. They need the data path to flush it, to stop it, or
//! to start a peer.

pub(crate) mod create;
pub(crate) mod membership;
pub(crate) mod modify;
