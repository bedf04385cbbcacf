//! Many queue pairs as one: finds the one that a datagram is for, sends for all of them in turn,
//! and knows the next deadline.

mod queue_pairs;
mod received;

pub use queue_pairs::{ByNumber, CreateError, Engine, NumberHasher};
pub use received::{Datagram, Management, Received};
