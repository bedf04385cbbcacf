//! The transport's state machines. A [`QueuePair`] consists of a requester, which sends requests
//! and completes them by the peer's answers, and a responder, which carries out the peer's
//! requests.

mod asking;
mod changes;
mod configuration;
mod counters;
mod datagrams;
mod inbox;
mod keep_alive;
mod outgoing;
mod probe;
mod queue_pair;
mod read_replies;
mod receive_queue;
mod receiving;
mod refusal;
mod repair;
mod requester;
mod responder;
mod responses;
mod retransmit;
mod send_queue;
mod transmitting;
mod unreliable;
mod window;

pub use changes::Changes;
pub use configuration::{
    Capacity, Mtu, Peer, Receives, Receiving, Retries, Rights, Sending, Serving, ack_timeout_ns, rnr_timer_ns,
};
pub use counters::{Counters, Discard, Incidents};
pub use queue_pair::{OpenError, PeerFault, QueuePair};
pub use receive_queue::ReceiveQueue;
pub use receiving::{Arrival, Icrc, Incoming};
pub use transmitting::Transmit;
