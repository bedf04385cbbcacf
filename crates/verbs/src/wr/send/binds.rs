//! Binds of windows that a QP keeps, in lists.

use crate::memory::peer::PeerSlice;
use crate::memory::window::{MemoryWindow, PostedBind, WindowKind};
use crate::wr::operation::{KeptMemory, KeptWindow, Local, Operation, Part};
use crate::wr::post::PostStop;
use crate::wr::works::Work;

pub(super) fn is_bind(work: &Work) -> bool {
    matches!(work, Work::Operation { operation: Operation::Bind { .. }, .. })
}

/// What a bind that was posted leaves in its slot.
pub(super) fn bound(operation: Operation, local: &Local, kept: &mut KeptMemory) -> Option<PostedBind> {
    let (Operation::Bind { window, .. }, Local::Part(part)) = (operation, local) else { return None };
    let (slice, window) = bind_ends(*part, window, kept).ok()?;
    let replaces = window.settle();
    Some(window.posted(slice, replaces))
}

/// The memory and the window of a bind.
pub(super) fn bind_ends(
    part: Part,
    window: KeptWindow,
    kept: &mut KeptMemory,
) -> Result<(PeerSlice, &mut MemoryWindow), PostStop> {
    let region = kept.regions.get(usize::from(part.region.0)).ok_or(PostStop::NotKept("there is none"))?;
    let slice = region.slice(part.offset as usize, part.len).ok_or(PostStop::NotKept("the part leaves its region"))?;
    let window = kept.windows.get_mut(usize::from(window.0)).ok_or(PostStop::NotKept("there is no such window"))?;
    match window.kind() {
        WindowKind::Type2 => Ok((slice, window)),
        WindowKind::Type1 => Err(PostStop::NotKept("windows in lists are of type 2")),
    }
}
