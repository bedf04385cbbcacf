//! Blocks that the device checks while an operation moves them, and responses that wait for the
//! result.
//!
//! A port's `signature_keys` is the number of keys of each of its queue pairs. A stage that answers
//! a read of protected blocks hands over three operations at once:
//!
//! - [`sign`](crate::Operation::sign) lets a key stand for the blocks where they lie in a region,
//!   each with its protection information behind it;
//! - a [`write`](crate::Operation::write) of the key's data ([`KeyPart`]) moves them to the peer,
//!   checked and stripped on the way;
//! - [`respond`](crate::Operation::respond) is the good response.
//!
//! All three are posted as one list, and the stage waits for nothing between them.
//!
//! If a block is bad, the device stops the queue pair before the response. The engine gets
//! IBV_EVENT_SQ_DRAINED, polls the completion queue until it is empty, checks every key of the
//! queue pair, cancels the responses that wait for bad blocks, and lets the queue pair go on
//! (`operations/queue.rs`). The response then comes back to its stage with
//! [`BadBlock`](crate::OperationError::BadBlock) and its packet, and the stage sends another. Other
//! connections notice nothing.
//!
//! Guarantee: a response that waits for a bad block never reaches the peer, even if it was not
//! posted yet when the block was found. Therefore a key is signed anew only after its response has
//! come back; earlier signing is refused.
//!
//! A device without signature offload gives its ports no keys
//! ([`signature_keys`](crate::Outputs::signature_keys)).

pub use verbline_verbs::rdma::{KeptKey, KeyPart};
pub use verbline_verbs::signature::{
    BadBlock, BlockSignature, BlockSize, Domain, Escape, Mask, Part, Seed, T10Dif, T10Guard,
};
