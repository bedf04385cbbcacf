//! Tick-to-trade: the domain logic, independent of the engine, and the stages that a plan wires.
//!
//! Every module but [`stages`] takes bytes and plain values and returns plain values. After
//! construction nothing here allocates, blocks or reads a clock: the caller passes the time in
//! nanoseconds. Input from a wire never panics; invalid input is a typed error.
//!
//! | module | contents |
//! | --- | --- |
//! | [`itch`] | TotalView-ITCH 5.0: zero-copy views, and the encoder behind the generator |
//! | [`mold`] | MoldUDP64 frames around ITCH messages |
//! | [`generator`] | a seeded ITCH feed over a book of its own |
//! | [`book`] | full-depth books by order, and N-level books by price |
//! | [`framing`] | a datagram's sequence number and message count, checked |
//! | [`arbitration`] | channels A and B into one ordered stream, gaps named |
//! | [`fast`] | FAST 1.1 and the recorded MOEX FORTS feed |
//! | [`recovery`] | gaps closed by retransmission, books rebuilt from snapshots; client and server
//! |
//! | [`risk`] | trigger, pre-trade limits, the preformatted order |
//! | [`stages`] | the exchange's and the trader's stages |
//! | [`report`] | a run's report |
#![forbid(unsafe_code)]

mod app;
pub mod arbitration;
pub mod book;
pub mod fast;
pub mod framing;
pub mod generator;
pub mod itch;
pub mod mold;
pub mod recovery;
pub mod report;
pub mod risk;
pub mod stages;

pub use app::TickToTrade;
