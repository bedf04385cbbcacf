//! Copies a small message's bytes out of its slots.

use crate::copy::{copy_8, copy_32, copy_small};
use crate::data_path::completion::{self, HALF_PAYLOAD_BYTES};
use crate::data_path::errors::Errors;
use crate::data_path::sge_list::{Sources, Targets, move_bytes};
use crate::data_path::signature::indirect;
use crate::key_table;
use crate::objects::guards::Pinned;
use crate::objects::qp::Qp;
use crate::queues::wqe::Wqe;
use rdma_sys::ibv_wc_status;
use verbline_sync::ring::{self, CqEntry, FIRST_PAYLOAD_BYTES};

/// Places a payload whose buffers' key was denied: it may be an indirect one. Returns the receive's
/// status.
#[cold]
pub(crate) fn place_otherwise(
    entry: &CqEntry<'_>,
    len: usize,
    qp: &Qp,
    pinned: Pinned<'_>,
    wqe: Wqe<'_>,
    errors: &mut Errors,
) -> u32 {
    let mut gathered = [0u8; ring::PAYLOAD_BYTES_MAX];
    // SAFETY: into a local, as long as the longest payload.
    unsafe { payload(entry, len, gathered.as_mut_ptr()) };
    if indirect::place_small(qp, pinned, wqe, &gathered[..len]).is_ok() {
        return completion::SUCCESS;
    }
    errors.fail(qp);
    ibv_wc_status::IBV_WC_LOC_PROT_ERR
}

/// Places a payload in more than one piece.
#[cold]
pub(crate) fn place_in_pieces(
    entry: &CqEntry<'_>,
    len: usize,
    pd: u32,
    pinned: Pinned<'_>,
    wqe: Wqe<'_>,
) -> Result<(), key_table::Denied> {
    let mut gathered = [0u8; ring::PAYLOAD_BYTES_MAX];
    // SAFETY: into a local, as long as the longest payload.
    unsafe { payload(entry, len, gathered.as_mut_ptr()) };
    let (mut to, mut source) = (Targets::new(pinned), Sources::new(pinned));
    to.add_wqe(pd, wqe, 0, len as u64)?;
    source.add_own(&gathered[..len]);
    move_bytes(&to, &source, len as u64);
    Ok(())
}

/// Copies the `len` bytes of a payload to `to`.
///
/// # Safety
/// `to` is writable for `len` bytes; the entry's slots hold as many, written by
/// `Small::write_payload`.
#[inline(always)]
pub(crate) unsafe fn payload(entry: &CqEntry<'_>, len: usize, to: *mut u8) {
    let [word, half] = entry.first().body(|body| completion::payload_of(body.cast_mut()));
    // SAFETY: the bytes are there at `to`, by the contract, and in the slots, which are the
    // consumer's until they are given back.
    unsafe {
        if len > FIRST_PAYLOAD_BYTES {
            let second = entry.second().body(|body| body.cast::<u8>());
            copy_32(to, half);
            copy_8(to.add(HALF_PAYLOAD_BYTES), word);
            copy_small(to.add(FIRST_PAYLOAD_BYTES), second, len - FIRST_PAYLOAD_BYTES);
        } else if len > HALF_PAYLOAD_BYTES {
            copy_32(to, half);
            copy_8(to.add(len - 8), word);
        } else {
            copy_small(to, half, len);
        }
    }
}
