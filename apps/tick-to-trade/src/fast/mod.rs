//! FAST 1.1 ("FIX Adapted for STreaming") as sent by the derivatives market of the Moscow Exchange
//! (FORTS), and the recording of its feed.
//!
//! [`Templates`] compiles the exchange's template file; [`Decoder`] decodes one datagram into a
//! [`Message`] that the caller reuses. [`MoexFeed`] loads the recorded channels and splits them
//! into datagrams. [`FortsBooks`] builds books from decoded messages and knows which of them can be
//! trusted after a loss.
//!
//! The decoder is our own because it is on the path of every tick: it allocates nothing, and any
//! corrupt bytes end in a [`DecodeError`]. The tests compare it with the crate `fastlib`, field by
//! field.

mod books;
mod decode;
mod error;
mod message;
mod recording;
mod template;
mod wire;

pub use books::{
    BooksError, BooksSpec, EntryOutcome, FORTS_DEPTH, FortsBook, FortsBooks, FortsCounts, SnapshotOutcome, Trust,
};
pub use decode::Decoder;
pub use error::{Cause, DecodeError};
pub use message::{Action, Decimal, ENTRIES_MAX, Entry, EntryType, Message, MessageKind};
pub use recording::{Datagram, Instrument, MoexError, MoexFeed, Recording};
pub use template::{TemplateError, Templates};
