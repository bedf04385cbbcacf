//! Signature offload: the device makes, checks and takes away the protection information of storage
//! blocks while data moves, after the pages of mlx5dv (`mlx5dv_wr_mkey_configure(3)` and its
//! neighbours).
//!
//! A [`SignatureKey`] stands for a [`KeyLayout`]: parts of regions, as one range that starts at 0.
//! A work request configures it ([`RcQp::configure_key`](crate::rdma::RcQp::configure_key)): its
//! rights, its layout, and its [`BlockSignature`], which says what blocks carry in memory and on
//! the wire. What moves through the key by a work request of ours ([`SignatureKey::range`]) or by
//! a peer's ([`SignatureKey::remote`]) then becomes what the other side is to have. What is wrong
//! with a block doesn't fail the transfer: [`SignatureKey::check`] tells, once the completion
//! queue was polled.
//!
//! On a QP for pipelining ([`QpSignature::Pipelined`]) the good response is posted together with
//! the data, with a fence. If a check fails, the QP stops in SQD before the response:
//!
//! 1. [`AsyncEventKind::SqDrained`](crate::event::AsyncEventKind::SqDrained) says so.
//! 2. Poll the completion queue until it gives nothing once.
//! 3. Check the key of every open transaction: several may be bad. For each that is, cancel its
//!    response ([`cancel_posted_sends`](crate::QueuePair::cancel_posted_sends)), and post another,
//!    which may wait in SQD. The key must be configured again.
//! 4. [`QueuePair::resume`](crate::QueuePair::resume).
//!
//! A fault that waits to be told takes one place in the completion queue: make that longer by the
//! keys that may be in use at once. The example `signature_pipelining` is the whole of it as a
//! program.
//!
//! The software RNIC has all of this. mlx5 cards that report it (mlx5dv_query_device) are driven by
//! libmlx5 of rdma-core 36 or later, which is opened when a kernel device is first asked for
//! signatures. **That part has not run on a card**, since nobody who wrote it has one: it compiles,
//! its declarations are checked against mlx5dv.h, its symbols against the library, and what it asks
//! of the library is recorded and compared. Every other device says that it lacks signatures
//! ([`SignatureOffload`](crate::attr::Capability::SignatureOffload)), and a card may lack the
//! pipelining alone ([`SignaturePipelining`](crate::attr::Capability::SignaturePipelining)).
//!
//! What differs on a card:
//!
//! - A configuration takes up to three slots of its send queue, which is made three times as long
//!   for it. Where the device's limit forbids that, the queue may be full before
//!   [`tx_depth_wr`](crate::QpSpec::tx_depth_wr) work requests are posted.
//! - After a configuration that the device refused, what it keeps of the signature is not known:
//!   the next one must say what blocks carry, or that they carry nothing.
//! - A layout of no bytes is refused, and a [`Strip`] that is longer than 65,535 bytes with what is
//!   skipped behind it.
//! - After an invalidation a key has to be told its rights, its layout and its signature.
//! - [`KeySpec::remote_invalidate`] needs rdma-core 43 or later.
//! - libmlx5 takes no lock between polling and checking: check a key on the thread that polls the
//!   completion queue, or while nobody does. A check at the same time may tell a fault in part.
//! - A fault whose key is gone before it is polled makes that poll fail
//!   ([`poll_errors`](crate::CompletionQueue::poll_errors)): before a key is dropped that peers
//!   could reach, poll until there is nothing.

mod builder;
mod configuring;
mod kept;
mod key;
mod layout;

pub use crate::block_signature::{
    BlockSignature, BlockSize, CopyMaskError, Crc, CrcKind, Domain, Escape, Mask, Seed, T10Dif, T10Guard,
};
pub use configuring::KeyConfig;
pub use key::{BadBlock, BlockFault, KeyRange, KeySpec, Part, QpSignature, SignatureError, SignatureKey};
pub use layout::{KeyLayout, Strip};

pub use crate::wr::buffer::RefusedKey;
pub use crate::wr_id::WrNumber;

pub(crate) use configuring::{NotBuilt, PostedConfiguration};
pub(crate) use kept::{KeptSignatureKey, LISTED, UNANSWERED};
