//! Many queue pairs as one: dispatches datagrams to them, lets them send in turn, and knows the
//! next deadline.

mod queue_pairs;
mod received;

pub use queue_pairs::{ByNumber, CreateError, Engine, NumberHasher};
pub use received::{Datagram, Management, Received};
