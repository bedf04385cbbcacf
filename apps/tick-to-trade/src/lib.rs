//! Tick-to-trade: the domain logic, free of the engine, and the stages that put it into a plan.
//!
//! Every module but [`stages`] takes bytes and plain values and returns plain values. After
//! construction nothing here allocates, blocks or reads a clock: time comes in as nanoseconds.
//! Input from a wire never panics; what is wrong with it is a typed error.
//!
//! | module | what |
//! | --- | --- |
//! | [`itch`] | TotalView-ITCH 5.0: zero-copy views, and the encoder behind the generator |
//! | [`mold`] | MoldUDP64 frames around ITCH messages |
//! | [`generator`] | a seeded ITCH feed over a book that it keeps itself |
//! | [`book`] | full-depth books by order, and N-level books by price |
//! | [`framing`] | what a datagram says of itself, and whether that can be |
//! | [`arbitration`] | channels A and B into one ordered stream, gaps named |
//! | [`fast`] | FAST 1.1 and the recorded MOEX FORTS feed |
//! | [`recovery`] | gaps closed by retransmission, books rebuilt from snapshots; both halves |
//! | [`risk`] | trigger, pre-trade limits, the preformatted order |
//! | [`stages`] | the exchange's and the trader's stages |
//! | [`report`] | what a run shows |
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
