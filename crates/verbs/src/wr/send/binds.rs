//! Binds of windows that a QP keeps, in lists.

use rdma_sys::bind_mw_t;

use crate::memory::mr::Access;
use crate::memory::peer::PeerSlice;
use crate::memory::window::{MemoryWindow, PostedBind, WindowKind, bind_info};
use crate::wr::connected::Connected;
use crate::wr::operation::{KeptMemory, KeptWindow, Operation, Part};
use crate::wr::post::PostStop;
use crate::wr::wr_queue::Work;

pub(super) fn is_bind<T: Connected>(work: &Work<T>) -> bool {
    matches!(work, Work::Operation { operation: Operation::Bind { .. }, .. })
}

/// What the device is told of a bind.
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

/// What a bind that was posted leaves in its slot.
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
    let region = kept.regions.get(usize::from(part.region.0)).ok_or(PostStop::NotKept("there is none"))?;
    let slice = region.slice_of(part.span).ok_or(PostStop::NotKept("the part leaves its region"))?;
    let window = kept.windows.get_mut(usize::from(window.0)).ok_or(PostStop::NotKept("there is no such window"))?;
    match window.kind() {
        WindowKind::Type2 => Ok((slice, window)),
        WindowKind::Type1 => Err(PostStop::NotKept("windows in lists are of type 2")),
    }
}
