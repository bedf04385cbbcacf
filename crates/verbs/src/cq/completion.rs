//! Completions polled from a CQ: the work request, how it ended, and the data that came with it.
//!
//! Every field is read as its plain integer: a status or an opcode that verbs.h does not name is
//! kept as its number.

mod status;

use std::fmt;

use rdma_sys::{ibv_wc, ibv_wc_flags, ibv_wc_opcode};

pub use status::{Status, WcOpcode};

use crate::wr_id::{self, WrKind, WrNumber};

/// One completion. The device's own record, read through methods; it can be polled only, not made
/// or copied.
#[repr(transparent)]
pub struct Completion {
    raw: ibv_wc,
}

impl Completion {
    /// The tag of its QP or SRQ: [`crate::QpSpec::tag`].
    #[inline]
    pub fn tag(&self) -> u16 {
        wr_id::tag(self.raw.wr_id)
    }

    /// The kind of work request. It decides which call takes the completion:
    /// [`crate::QueuePair::send_done`], [`crate::QueuePair::recv_done`],
    /// [`crate::QueuePair::op_done`] or the SRQ's.
    #[inline]
    pub fn kind(&self) -> WrKind {
        wr_id::kind(self.raw.wr_id)
    }

    /// How the work request ended. With any status other than success, only the QP and the request
    /// are known.
    #[inline]
    pub fn status(&self) -> Status {
        Status::from_raw(self.raw.status)
    }

    /// Whether the work request succeeded. If not, only tag, kind, status, QP number and vendor
    /// error are valid.
    #[inline]
    pub fn is_ok(&self) -> bool {
        self.status().is_success()
    }

    /// The completed operation. Undefined for a failed one (ibv_poll_cq(3)).
    #[inline]
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode::from_raw(self.raw.opcode)
    }

    /// Bytes received, including the 40 of the GRH on UD; bytes transferred by a READ or an atomic.
    /// 0 for other operations.
    #[inline]
    pub fn byte_len(&self) -> u32 {
        if self.is_ok() { self.raw.byte_len } else { 0 }
    }

    /// Whether a receive put its bytes into the posted buffer. An RDMA WRITE with immediate puts
    /// them elsewhere.
    #[inline]
    pub(crate) fn filled_its_buffer(&self) -> bool {
        self.is_ok() && self.raw.opcode != ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM
    }

    /// Whether a receive succeeded and put its bytes into the posted buffer.
    #[inline]
    pub(crate) fn brought_a_message(&self) -> bool {
        // One load and one compare: the fields are neighbours.
        const RECEIVED: u64 = (ibv_wc_opcode::IBV_WC_RECV as u64) << 32;
        u64::from(self.raw.status) | u64::from(self.raw.opcode) << 32 == RECEIVED
    }

    /// The length field, valid when [`Completion::brought_a_message`].
    #[inline]
    pub(crate) fn raw_len(&self) -> usize {
        self.raw.byte_len as usize
    }

    /// The immediate data that came with it, in host order.
    #[inline]
    pub fn imm(&self) -> Option<u32> {
        self.has(ibv_wc_flags::IBV_WC_WITH_IMM).then(|| u32::from_be(self.imm_or_rkey()))
    }

    /// Our key that a SEND with invalidate invalidated.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.has(ibv_wc_flags::IBV_WC_WITH_INV).then(|| self.imm_or_rkey())
    }

    /// Whether the first 40 bytes of the receive buffer hold a GRH.
    #[inline]
    pub fn has_grh(&self) -> bool {
        self.has(ibv_wc_flags::IBV_WC_GRH)
    }

    /// The number of the local QP that the work request was posted on.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.raw.qp_num
    }

    /// The sender's QP number (UD receives).
    #[inline]
    pub fn src_qp(&self) -> u32 {
        self.raw.src_qp
    }

    /// The sender's LID (UD receives on InfiniBand).
    #[inline]
    pub fn slid(&self) -> u16 {
        self.raw.slid
    }

    /// The service level of the datagram (UD receives).
    #[inline]
    pub fn service_level(&self) -> u8 {
        self.raw.sl
    }

    /// The vendor's own error code, for its support.
    #[inline]
    pub fn vendor_error(&self) -> u32 {
        self.raw.vendor_err
    }

    /// The number that the work request was posted with.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.raw.wr_id
    }

    /// The work request's number, as returned by [`crate::QueuePair::last_posted`].
    #[inline]
    pub fn number(&self) -> WrNumber {
        WrNumber::of(self.raw.wr_id)
    }

    #[inline]
    fn has(&self, flag: ibv_wc_flags) -> bool {
        self.is_ok() && self.raw.wc_flags & flag.0 != 0
    }

    #[inline]
    fn imm_or_rkey(&self) -> u32 {
        // SAFETY: both members are a u32 at offset 0; the memory was zeroed before the first poll,
        // so it is initialised.
        unsafe { self.raw.imm_data_invalidated_rkey_union.imm_data }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Completion");
        debug.field("tag", &self.tag()).field("kind", &self.kind()).field("status", &self.status());
        debug.field("qp_num", &self.qp_num());
        if self.is_ok() {
            debug.field("opcode", &self.opcode()).field("byte_len", &self.byte_len()).field("imm", &self.imm());
        } else {
            debug.field("vendor_error", &self.vendor_error());
        }
        debug.finish_non_exhaustive()
    }
}

/// Space for the completions of one poll. Allocated once, reused for every poll.
pub struct Completions {
    entries: Box<[Completion]>,
    len: usize,
}

impl Completions {
    /// The largest capacity: 3 MiB of completions.
    pub const MOST: usize = 1 << 16;

    /// Allocates space for `capacity` completions: at least 1, at most [`Completions::MOST`].
    pub fn with_capacity(capacity: usize) -> Completions {
        let capacity = capacity.clamp(1, Completions::MOST);
        // SAFETY: ibv_wc is integers only, for which all zeros is a value.
        let empty = || Completion { raw: unsafe { std::mem::zeroed() } };
        Completions { entries: std::iter::repeat_with(empty).take(capacity).collect(), len: 0 }
    }

    /// The completions of the last poll, oldest first.
    #[inline]
    pub fn as_slice(&self) -> &[Completion] {
        // SAFETY: the callers of `set_len` keep the length within the entries.
        unsafe { self.entries.get_unchecked(..self.len) }
    }

    /// The completions of the last poll, oldest first.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Completion> {
        self.as_slice().iter()
    }

    /// The number of completions of the last poll.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the last poll found no completions.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The largest number of completions of one poll.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Drops the completions of the last poll.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The buffer for a poll to write to, and its length.
    #[inline]
    pub(crate) fn as_raw(&mut self) -> (*mut ibv_wc, i32) {
        // `Completion` is a transparent ibv_wc. The capacity was clamped to i32.
        (self.entries.as_mut_ptr().cast(), self.entries.len() as i32)
    }

    /// # Safety
    /// `len` is at most the capacity.
    #[inline]
    pub(crate) unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.entries.len());
        self.len = len;
    }
}

impl<'a> IntoIterator for &'a Completions {
    type Item = &'a Completion;
    type IntoIter = std::slice::Iter<'a, Completion>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

/// A completion that matches no outstanding work request of the queue. It was counted; nothing else
/// happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "stale completion: wr_id {wr_id:#018x} (tag {}, {:?}) is not outstanding on this queue; it was handed in before, \
     out of order, or to the wrong queue",
    wr_id::tag(*.wr_id),
    wr_id::kind(*.wr_id)
)]
pub struct Stale {
    /// The completion's `wr_id`.
    pub wr_id: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_room_is_made_than_a_poll_can_use() {
        assert_eq!([0, 1, 7, usize::MAX].map(|asked| Completions::with_capacity(asked).capacity()), [1, 1, 7, 1 << 16]);
    }

    #[test]
    fn fields_of_a_failed_completion_mean_nothing() {
        let mut completions = Completions::with_capacity(1);
        let (raw, _) = completions.as_raw();
        // SAFETY: `raw` points at the one entry of `completions`.
        unsafe {
            (*raw).status = 5;
            (*raw).byte_len = 77;
            (*raw).wc_flags = u32::MAX;
        }
        // SAFETY: the capacity is one entry.
        unsafe { completions.set_len(1) };
        assert_eq!(completions.len(), 1);
        let completion = &completions.as_slice()[0];
        assert_eq!((completion.byte_len(), completion.imm(), completion.has_grh()), (0, None, false));
    }
}
