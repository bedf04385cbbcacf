//! Listed work requests that name windows and signature keys of a QP: binds, configurations, data
//! that moves through keys, and responses that wait for that data.

use rdma_sys::{bind_mw_t, ibv_sge};

use super::SendQueue;
use crate::memory::mr::Access;
use crate::memory::peer::PeerSlice;
use crate::memory::window::{MemoryWindow, PostedBind, WindowKind, bind_info};
use crate::signature::{BlockSignature, KeptSignatureKey, UNANSWERED};
use crate::wr::connected::Connected;
use crate::wr::kept::{KeptKey, KeptMemory, KeptWindow};
use crate::wr::local::{KeyPart, Part};
use crate::wr::operation::Operation;
use crate::wr::post::PostStop;
use crate::wr::wr_queue::Work;
use crate::wr_id::{self, WrKind};

const NO_KEY: PostStop = PostStop::NotKept("there is no such signature key");

impl SendQueue {
    /// The inline words that configure a key to stand for this part.
    pub(super) fn configuration(
        &self,
        key: KeptKey,
        part: ibv_sge,
        blocks: &BlockSignature,
        kept: &mut KeptMemory,
    ) -> Result<ibv_sge, PostStop> {
        self.check_configures()?;
        let key = key_of(kept, key)?;
        if key.response().is_some_and(|number| self.is_outstanding(number)) {
            return Err(PostStop::NotKey(UNANSWERED));
        }
        key.list(part, blocks).map_err(PostStop::of_key)
    }

    pub(super) fn part_of_key(&self, part: KeyPart, kept: &mut KeptMemory) -> Result<ibv_sge, PostStop> {
        if part.len > self.max_message_bytes {
            return Err(PostStop::TooLong { len_bytes: part.len as usize, max_bytes: self.max_message_bytes });
        }
        Ok(key_of(kept, part.key)?.sge(part.offset, part.len))
    }

    /// Fails unless work requests here may configure keys.
    pub(super) fn check_configures(&self) -> Result<(), PostStop> {
        let says = "the QP was made without QpSpec::signature";
        if self.configures_keys { Ok(()) } else { Err(PostStop::NotKey(says)) }
    }

    /// Whether the listed work request of this number is not known to be done.
    fn is_outstanding(&self, number: u64) -> bool {
        self.sequence.age(number ^ wr_id::kind_bits(WrKind::Op), self.outstanding).is_some()
    }
}

/// Fails if a block that a response waits for is known to be bad.
pub(super) fn check_blocks(key: KeptKey, kept: &mut KeptMemory) -> Result<(), PostStop> {
    key_of(kept, key)?.bad().map_or(Ok(()), |bad| Err(PostStop::BadBlock(bad)))
}

/// Records that a response that waits for a key's blocks is in the list being written.
pub(super) fn note_listed(key: KeptKey, kept: &mut KeptMemory) {
    if let Ok(key) = key_of(kept, key) {
        key.answer();
    }
}

/// Records that a key's configuration was posted.
#[cold]
pub(super) fn note_configured(key: KeptKey, kept: &mut KeptMemory) {
    if let Ok(key) = key_of(kept, key) {
        key.configured();
    }
}

/// Records that a response that waits for a key's blocks was posted at this position.
#[cold]
pub(super) fn note_responded(key: KeptKey, position: u64, kept: &mut KeptMemory) {
    if let Ok(key) = key_of(kept, key) {
        key.responded(position | wr_id::kind_bits(WrKind::Op));
    }
}

fn key_of(kept: &mut KeptMemory, key: KeptKey) -> Result<&mut KeptSignatureKey, PostStop> {
    kept.keys.get_mut(usize::from(key.0)).ok_or(NO_KEY)
}

pub(super) fn is_bind<T: Connected>(work: &Work<T>) -> bool {
    matches!(work, Work::Operation { operation: Operation::Bind { .. }, .. })
}

/// The description of a bind for the device.
pub(super) fn bind_of(
    window: KeptWindow,
    part: Part,
    access: Access,
    kept: &mut KeptMemory,
) -> Result<bind_mw_t, PostStop> {
    let (slice, window) = bind_ends(part, window, kept)?;
    window.settle();
    let (mw, rkey) = (window.inner.as_ptr(), window.next_rkey());
    Ok(bind_mw_t { mw, rkey, bind_info: bind_info(&slice, access) })
}

/// Records a posted bind; returns the value for its slot.
pub(super) fn bound(window: KeptWindow, part: Part, kept: &mut KeptMemory) -> Option<PostedBind> {
    let (slice, window) = bind_ends(part, window, kept).ok()?;
    let replaces = window.settle();
    Some(window.posted(slice, replaces))
}

/// The memory and the window of a bind.
fn bind_ends(
    part: Part,
    window: KeptWindow,
    kept: &mut KeptMemory,
) -> Result<(PeerSlice, &mut MemoryWindow), PostStop> {
    let region = kept.region(part.region).ok_or(PostStop::NotKept("there is none"))?;
    let slice = region.slice_of(part.span).ok_or(PostStop::NotKept("the part leaves its region"))?;
    let window = kept.windows.get_mut(usize::from(window.0)).ok_or(PostStop::NotKept("there is no such window"))?;
    match window.kind() {
        WindowKind::Type2 => Ok((slice, window)),
        WindowKind::Type1 => Err(PostStop::NotKept("windows in lists are of type 2")),
    }
}
