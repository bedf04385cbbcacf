//! Keeps books right: gaps are closed by retransmission; books with gaps that cannot be closed are
//! rebuilt from snapshots.
//!
//! A sequence number missing on both channels may be of any instrument, so no book is right beyond
//! it. [`Follower`] keeps the books: it holds the messages behind a gap, has the missing ones sent
//! again, and goes on in order. If that takes too long, or the gap is too large, it fetches a
//! snapshot of each instrument, with the sequence number from which the stream goes on.
//! [`Services`] is the exchange's half: it keeps the last messages, and makes snapshots.
//!
//! Both services speak MoldUDP64: a client sends request packets, and the server answers each with
//! one downstream packet, or not at all. The client repeats unanswered requests. A snapshot is a
//! session of its own, like Nasdaq's GLIMPSE: the messages of one book, numbered from 1.
//!
//! **Bounds.** Everything is allocated at start. The client holds a fixed number of messages, has a
//! fixed number of requests in flight, and sends each a fixed number of times, with doubling
//! pauses. The server answers one request with one packet, and keeps no state of clients.

mod asks;
mod counts;
mod fetch;
mod follower;
mod request;
mod ring;
mod server;
mod snapshot;
mod standing;

pub use counts::FollowerCounts;
pub use follower::{Follower, FollowerSpec, Service, Told};
pub use request::{REQUEST_LEN_BYTES, Request, RequestError};
pub use ring::MessageRing;
pub use server::{Answered, Services, ServicesCounts, ServicesSpec};
pub use snapshot::{END_LEN_BYTES, SnapshotName, end_of_snapshot, read_end};
