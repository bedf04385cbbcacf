//! The data path: posting, carrying out, completing and polling work requests.
//!
//! - Posting: `post_send` tries `fast_send_inline`, `fast_send_copy` and `fast_rdma`, which check
//!   the common properties of a run's messages once; `post_recv`.
//! - One work request of any kind: `execute`, by `message`, `one_sided`, `datagram` or `bind`;
//!   waiting work requests: `progress`.
//! - Keys that stand for others, and block signatures: `signature`.
//! - Queue pairs whose peer is in another process: `carrier`. Paths that fail: `migration`.
//! - Completing and polling: `completion`, `poll`.
//! - Failing: `errors` notes it at once, `flush` does the rest after the guard was left.

pub(crate) mod arrival;
pub(crate) mod bind;
pub(crate) mod carrier;
pub(crate) mod completion;
pub(crate) mod datagram;
pub(crate) mod errors;
pub(crate) mod execute;
pub(crate) mod fast_rdma;
pub(crate) mod fast_send_copy;
pub(crate) mod fast_send_inline;
pub(crate) mod flush;
pub(crate) mod message;
pub(crate) mod migration;
pub(crate) mod one_sided;
pub(crate) mod orphan_completions;
pub(crate) mod payload;
pub(crate) mod poll;
pub(crate) mod post_recv;
pub(crate) mod post_send;
pub(crate) mod poster;
pub(crate) mod progress;
pub(crate) mod psn;
pub(crate) mod qp_access;
pub(crate) mod sge_list;
pub(crate) mod signature;
