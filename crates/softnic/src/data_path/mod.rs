//! The data path: posting, carrying out, completing and polling work requests.
//!
//! - Posting: `post_send` tries `small`, `bulk` and `transfer`, which look once a run at what its
//!   messages have in common; `post_recv`.
//! - One work request of any kind: `execute`, by `message`, `one_sided`, `datagram` or `bind`; one
//!   that has to wait: `progress`.
//! - Keys that stand for others, and block signatures: `indirect`, between two `ends`; configured
//!   by `configure`. Stopping behind what failed a check, and cancelling: `cancel`.
//! - Completing and polling: `completion`, `poll`.
//! - Failing: `errors` notes it at once, `flush` does the rest after the guard was left.

pub(crate) mod access;
pub(crate) mod arrival;
pub(crate) mod bind;
pub(crate) mod bulk;
pub(crate) mod cancel;
pub(crate) mod completion;
pub(crate) mod configure;
pub(crate) mod datagram;
pub(crate) mod ends;
pub(crate) mod errors;
pub(crate) mod execute;
pub(crate) mod flush;
pub(crate) mod indirect;
pub(crate) mod left;
pub(crate) mod message;
pub(crate) mod one_sided;
pub(crate) mod payload;
pub(crate) mod pieces;
pub(crate) mod poll;
pub(crate) mod post_recv;
pub(crate) mod post_send;
pub(crate) mod poster;
pub(crate) mod progress;
pub(crate) mod psn;
pub(crate) mod small;
pub(crate) mod transfer;
