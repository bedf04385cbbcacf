//! Books that stay right: gaps are closed by retransmission, and what cannot be closed is rebuilt
//! from snapshots.
//!
//! A sequence number that neither channel brought may be of any instrument, so no book is right
//! beyond it. [`Follower`] keeps the books: it holds what comes behind a gap, has the missing
//! messages sent again, and goes on in order. Where that takes too long, or the gap is too large,
//! it fetches a snapshot of each instrument, with the sequence number from which the stream goes
//! on. [`Services`] is the exchange's half: it keeps the last messages, and makes snapshots.
//!
//! Both services speak MoldUDP64: a client sends request packets, and each is answered by one
//! downstream packet, or not at all. The client asks again for what did not come. A snapshot is a
//! session of its own, as Nasdaq's GLIMPSE is one: the messages of one book, numbered from 1.
//!
//! **Bounds.** Everything is allocated at start. The client holds a fixed number of messages, has a
//! fixed number of requests under way, and asks a fixed number of times, each time after a pause
//! twice as long. The server answers one request with one packet, and remembers no client.

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
