//! Blocks that the device checks while an operation moves them, and responses that wait for that.
//!
//! A port with `signature_keys` has so many keys a queue pair. A stage that answers a read of
//! protected blocks hands over three operations at once:
//! [`Operation::sign`] lets a key stand for the blocks where they lie in a region, with what lies
//! behind each; an [`Operation::write`] of the key's [`Blocks`] moves them to the peer, checked and
//! stripped on the way; [`Operation::respond`] is the good response. All three are posted as one
//! list, and the stage waits for nothing between them.
//!
//! If a block is bad, the device stops the queue pair in front of the response. The engine hears of
//! it (IBV_EVENT_SQ_DRAINED), polls the completion queue until it is empty, looks at every key of
//! the queue pair, cancels the responses that wait for bad blocks, and lets the queue pair go on
//! (`lcore/operation_queue/stops.rs`). The response then comes back to its stage with
//! [`OperationError::BadBlock`](crate::OperationError::BadBlock) and its packet, and the stage sends
//! another. Other connections notice nothing.
//!
//! Guarantee: a response that waits for a bad block never reaches the peer, also when it was not
//! posted yet as the block was found. For that, a key is signed anew only when its response has
//! come back; earlier it is refused.
//!
//! A device without signature offload gives its ports no keys ([`Outputs::signature_keys`]).

pub use verbline_verbs::signature::{
    BadBlock, BlockSignature, BlockSize, Domain, Escape, Mask, Part, Seed, T10Dif, T10Guard,
};

use crate::api::operations::{Memory, Operation, Verb};
use crate::api::outputs::{OutId, Outputs};
use crate::api::region::Range;

/// A signature key of a port, by its number from 0: a queue pair has as many as the plan's
/// `signature_keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SignatureKey(pub u16);

/// The blocks that a key stands for, from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// The key.
    pub key: SignatureKey,
    /// Bytes of their data, without what lies behind each: whole blocks.
    pub data_bytes: u32,
}

impl Operation {
    /// Lets a key stand for a part of a region, whose blocks carry this, until it is signed anew.
    pub fn sign(key: SignatureKey, part: Range, blocks: BlockSignature) -> Operation {
        Operation::new(Verb::Sign { key, blocks }, part.into())
    }

    /// SEND of these bytes once every block is good that moved through the key since it was signed;
    /// else it comes back as [`OperationError::BadBlock`](crate::OperationError::BadBlock). It may
    /// take back a key of the receiver, as [`Operation::send_with_invalidate`].
    pub fn respond(key: SignatureKey, bytes: impl Into<Memory>, invalidate: Option<u32>) -> Operation {
        Operation::new(Verb::Respond { key, invalidate }, bytes.into())
    }
}

impl Outputs<'_> {
    /// How many signature keys each queue pair of the port has that the output leads to: as many as
    /// the plan's `signature_keys`, or 0 where the device has no signature offload.
    pub fn signature_keys(&mut self, out: OutId) -> usize {
        self.operation_queue(out).map_or(0, |(queue, _)| queue.keys.len())
    }
}
