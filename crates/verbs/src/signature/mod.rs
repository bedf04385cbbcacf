//! Signature offload: the device generates, checks and strips the protection information of storage
//! blocks while data moves, after the pages of mlx5dv (`mlx5dv_wr_mkey_configure(3)` and its
//! neighbours).
//!
//! A [`SignatureKey`] stands for a [`KeyLayout`]: parts of regions, as one range that starts at 0.
//! A work request configures it ([`RcQp::configure_key`](crate::rdma::RcQp::configure_key)): its
//! rights, its layout, and its [`BlockSignature`], the protection information of blocks in memory
//! and on the wire. Data that moves through the key, by a work request of ours
//! ([`SignatureKey::range`]) or by a peer's ([`SignatureKey::remote`]), is then converted to the
//! other side's form. A bad block does not fail the transfer: [`SignatureKey::check`] reports it,
//! once the completion queue was polled.
//!
//! On a QP for pipelining ([`QpSignature::Pipelined`]) the good response is posted together with
//! the data, with a fence. If a check fails, the QP stops in SQD before the response:
//!
//! 1. [`AsyncEventKind::SqDrained`](crate::event::AsyncEventKind::SqDrained) reports the stop.
//! 2. Poll the completion queue until a poll finds nothing.
//! 3. Check the key of every open transaction: several may be bad. For each bad one, cancel its
//!    response ([`cancel_posted_sends`](crate::QueuePair::cancel_posted_sends)), and post another,
//!    which may wait in SQD. The key must be configured again.
//! 4. [`QueuePair::resume`](crate::QueuePair::resume).
//!
//! A fault that waits to be reported takes one entry of the completion queue: make the queue longer
//! by the number of keys that may be in use at once. The example `signature_pipelining` shows all
//! of this as a program.
//!
//! The software RNIC has all of this. mlx5 cards that report it (mlx5dv_query_device) are driven by
//! libmlx5 of rdma-core 36 or later, which is opened when a kernel device is first asked for
//! signatures. **That part has not run on a card**, since its authors have none: it compiles, its
//! declarations are checked against mlx5dv.h, its symbols against the library, and its calls of the
//! library are recorded and compared. Every other device reports that it lacks signatures
//! ([`SignatureOffload`](crate::attr::Capability::SignatureOffload)), and a card may lack the
//! pipelining alone ([`SignaturePipelining`](crate::attr::Capability::SignaturePipelining)).
//!
//! Differences on a card:
//!
//! - A configuration takes up to three slots of its send queue, which is created three times as
//!   long for that. Where the device's limit forbids that, the queue may be full before
//!   [`tx_depth_wr`](crate::QpSpec::tx_depth_wr) work requests are posted.
//! - After a configuration that the device refused, the key's signature is unknown: the next one
//!   must set a signature, or remove it.
//! - An empty layout is refused, and so is a [`Strip`] longer than 65,535 bytes including its
//!   skipped bytes.
//! - After an invalidation a key needs its rights, its layout and its signature set again.
//! - [`KeySpec::remote_invalidate`] needs rdma-core 43 or later.
//! - libmlx5 takes no lock between polling and checking: check a key on the thread that polls the
//!   completion queue, or while no thread does. A check during a poll may report a fault in part.
//! - A fault whose key is gone before it is polled makes that poll fail
//!   ([`poll_errors`](crate::CompletionQueue::poll_errors)): before dropping a key that peers could
//!   reach, poll until nothing is found.

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
