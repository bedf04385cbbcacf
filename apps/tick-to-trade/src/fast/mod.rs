//! FAST 1.1 ("FIX Adapted for STreaming") as the derivatives market of the Moscow Exchange (FORTS)
//! sent it, and the recording.
//!
//! [`Templates`] compiles the exchange's template file; [`Decoder`] decodes one datagram into a
//! [`Message`] that the caller reuses. [`MoexFeed`] loads the recorded channels and splits them
//! into datagrams. [`FortsBooks`] turns decoded messages into books and knows which of them may be
//! trusted after a loss.
//!
//! The decoder is our own because it is on the path of every tick: it allocates nothing, and
//! corrupt bytes end in a [`DecodeError`] whatever they are. The tests hold it against the crate
//! `fastlib`, field by field.

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
