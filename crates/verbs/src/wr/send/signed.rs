//! Listed work requests that use the signature keys that a QP keeps: configuring, moving data
//! through them, and responses that wait for what moved.

use rdma_sys::{ibv_send_wr, ibv_sge};

use super::{FENCE, INLINE, SendQueue};
use crate::signature::KeptSignatureKey;
use crate::wr::operation::{KeptKey, KeptMemory, KeyPart, Operation};
use crate::wr::post::PostStop;
use crate::wr::wr_id::{self, WrKind};

const NO_KEY: PostStop = PostStop::NotKept("there is no such signature key");

impl SendQueue {
    /// A configuration, whose `sge` is the part that the key is to stand for, or a response.
    #[cold]
    pub(super) fn format_signed(
        &self,
        operation: Operation,
        kept: &mut KeptMemory,
        wr: &mut ibv_send_wr,
        sge: &mut ibv_sge,
    ) -> Result<(), PostStop> {
        match operation {
            Operation::Sign { key, blocks } => {
                self.check_configures()?;
                let key = key_of(kept, key)?;
                if key.response().is_some_and(|number| self.is_outstanding(number)) {
                    return Err(PostStop::NotKey("the response that waits for its blocks has not completed"));
                }
                *sge = key.list(*sge, &blocks)?;
                wr.send_flags |= INLINE;
            }
            Operation::Respond { key, .. } => {
                if let Some(bad) = key_of(kept, key)?.bad() {
                    return Err(PostStop::BadBlock(bad));
                }
                wr.send_flags |= FENCE;
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn part_of_key(&self, part: KeyPart, kept: &mut KeptMemory) -> Result<ibv_sge, PostStop> {
        if part.len > self.max_message_bytes {
            return Err(PostStop::TooLong { len_bytes: part.len as usize, max_bytes: self.max_message_bytes });
        }
        Ok(key_of(kept, part.key)?.sge(part.offset, part.len))
    }

    /// Whether work requests here may configure keys.
    pub(super) fn check_configures(&self) -> Result<(), PostStop> {
        let says = "the QP was made without QpSpec::signature";
        if self.configures_keys { Ok(()) } else { Err(PostStop::NotKey(says)) }
    }

    /// Whether the work request of a list that has this number is not known to be done.
    fn is_outstanding(&self, number: u64) -> bool {
        self.sequence.age(number ^ wr_id::kind_bits(WrKind::Op), self.outstanding).is_some()
    }
}

/// A configuration or a response was posted at this position.
#[cold]
pub(super) fn note_posted(operation: Operation, position: u64, kept: &mut KeptMemory) {
    match operation {
        Operation::Sign { key, .. } => {
            if let Ok(key) = key_of(kept, key) {
                key.configured();
            }
        }
        Operation::Respond { key, .. } => {
            if let Ok(key) = key_of(kept, key) {
                key.responded(position | wr_id::kind_bits(WrKind::Op));
            }
        }
        _ => {}
    }
}

fn key_of(kept: &mut KeptMemory, key: KeptKey) -> Result<&mut KeptSignatureKey, PostStop> {
    kept.keys.get_mut(usize::from(key.0)).ok_or(NO_KEY)
}
