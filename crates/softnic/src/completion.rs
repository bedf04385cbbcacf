//! A completion as it lies in the ring: three header words, then what the kind of completion adds.
//!
//! What it guarantees: what [`push`] wrote is what [`Header::read`] gives. For a receive, `word` is the index of the
//! receive work request (its `wr_id` stays in the receiver's own memory); for a send it is the `wr_id`, and the first word
//! behind the header says how far the send queue is free once this is polled. A small message has a [`SmallHeader`], and its
//! bytes behind it.

use crate::async_event::Kind;
use crate::cq::Cq;
use crate::protocol::ring::{Claim, Overrun, Slot};
use rdma_sys::*;

/// Words of a slot's body that the header takes.
pub(crate) const HEADER_WORDS: usize = 3;
/// `opcode` of receives is at least this: `IBV_WC_RECV`.
pub(crate) const RECV: u32 = ibv_wc_opcode::IBV_WC_RECV;
pub(crate) const RECV_RDMA_WITH_IMM: u32 = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
pub(crate) const SUCCESS: u32 = ibv_wc_status::IBV_WC_SUCCESS;

/// See the [module](self). `flags` are `ibv_wc_flags`; all but `word`, `imm` and `byte_len` fit into their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    pub(crate) word: u64,
    pub(crate) qpn: u32,
    pub(crate) status: u32,
    pub(crate) byte_len: u32,
    /// Immediate data in network order, or the invalidated R_Key.
    pub(crate) imm: u32,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
}

impl Header {
    #[inline(always)]
    fn words(&self) -> [u64; HEADER_WORDS] {
        let Header { word, qpn, status, byte_len, imm, opcode, flags } = *self;
        debug_assert!(qpn < 1 << 24 && status < 256 && opcode < 256 && flags < 256);
        [
            word,
            u64::from(qpn | status << 24) | u64::from(byte_len) << 32,
            u64::from(imm) | u64::from(opcode | flags << 8) << 32,
        ]
    }

    /// Writes the header into a claimed slot.
    #[inline(always)]
    pub(crate) fn write(&self, slot: &Slot) {
        let words = self.words();
        // SAFETY: the slot is claimed by this producer and not published: nobody else touches its body.
        slot.body_mut(|body| unsafe { body.cast::<[u64; HEADER_WORDS]>().write(words) });
    }

    /// Reads the header of a completion that the consumer has and didn't yet give back.
    #[inline(always)]
    pub(crate) fn read(slot: &Slot) -> Header {
        // SAFETY: published and not taken: the body is the consumer's.
        let [word, second, third] = slot.body(|body| unsafe { body.cast::<[u64; HEADER_WORDS]>().read() });
        let bytes = (third >> 32) as u32;
        Header {
            word,
            qpn: second as u32 & 0xff_ffff,
            status: second as u32 >> 24,
            byte_len: (second >> 32) as u32,
            imm: third as u32,
            opcode: bytes & 0xff,
            flags: bytes >> 8 & 0xff,
        }
    }
}

/// The header of a small message, whose payload follows it in the slots: the same words, with less in them. It has no
/// status but success, and its length is the payload's.
///
/// ```text
/// word   0  how many messages of the other direction the sender has polled
///        1  QPN (24 bits), 0 (8), low half of the receive's index
///        2  immediate data; opcode (8), flags (8), payload bytes (8), 0
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallHeader([u64; HEADER_WORDS]);

impl SmallHeader {
    /// `qpn` is the receiver's, `bytes` is 1 to 255.
    #[inline(always)]
    pub(crate) fn new(acked: u64, qpn: u32, index: u64, imm: u32, flags: u32, bytes: usize) -> SmallHeader {
        let kind = RECV | flags << 8 | (bytes as u32) << 16;
        SmallHeader([acked, u64::from(qpn) | index << 32, u64::from(imm) | u64::from(kind) << 32])
    }

    /// Writes it into a slot that is claimed, or free.
    #[inline(always)]
    pub(crate) fn write(&self, slot: &Slot) {
        // SAFETY: the slot is this producer's and not published: nobody else touches its body.
        slot.body_mut(|body| unsafe { body.cast::<[u64; HEADER_WORDS]>().write(self.0) });
    }

    /// The header of a completion, if it is that of a small message, and the QPN of any.
    #[inline(always)]
    pub(crate) fn read(slot: &Slot) -> (Option<SmallHeader>, u32) {
        // SAFETY: published and not taken: the body is the consumer's.
        let words = slot.body(|body| unsafe { body.cast::<[u64; HEADER_WORDS]>().read() });
        ((words[2] >> 48 != 0).then_some(SmallHeader(words)), words[1] as u32 & 0xff_ffff)
    }

    /// Messages of the other direction that its sender has polled.
    #[inline(always)]
    pub(crate) fn acked(&self) -> u64 {
        self.0[0]
    }

    /// The low half of the receive's index.
    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        (self.0[1] >> 32) as u32
    }

    /// Bytes of payload.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        (self.0[2] >> 48) as usize
    }

    /// The `ibv_wc` of it, in words.
    #[inline(always)]
    pub(crate) fn wc_words(&self, wr_id: u64, status: u32) -> [u64; 6] {
        let SmallHeader([_, second, third]) = *self;
        let flags = third >> 40 & 0xff;
        [
            wr_id,
            u64::from(status) | u64::from(RECV) << 32,
            (third >> 48) << 32,
            // The QPN is 24 bits and what is above it 0.
            third & 0xffff_ffff | second << 32,
            flags << 32,
            0,
        ]
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(cfg!(target_endian = "little"), "wc_words puts the field at the lower address into the lower half");
    assert!(size_of::<ibv_wc>() == 48 && offset_of!(ibv_wc, wr_id) == 0);
    assert!(offset_of!(ibv_wc, status) == 8 && offset_of!(ibv_wc, opcode) == 12);
    assert!(offset_of!(ibv_wc, vendor_err) == 16 && offset_of!(ibv_wc, byte_len) == 20);
    assert!(offset_of!(ibv_wc, imm_data_invalidated_rkey_union) == 24 && offset_of!(ibv_wc, qp_num) == 28);
    assert!(offset_of!(ibv_wc, src_qp) == 32 && offset_of!(ibv_wc, wc_flags) == 36);
    assert!(offset_of!(ibv_wc, pkey_index) == 40);
};

/// Words after the header: what a kind of completion adds.
pub(crate) type Extra = [u64; 2];

/// Writes `extra` behind the header of a claimed slot.
#[inline(always)]
pub(crate) fn write_extra(slot: &Slot, extra: Extra) {
    // SAFETY: as in `Header::write`; five of seven words.
    slot.body_mut(|body| unsafe { body.cast::<u64>().add(HEADER_WORDS).cast::<Extra>().write(extra) });
}

/// Reads what [`write_extra`] wrote.
#[inline(always)]
pub(crate) fn read_extra(slot: &Slot) -> Extra {
    // SAFETY: as in `Header::read`.
    slot.body(|body| unsafe { body.cast::<u64>().add(HEADER_WORDS).cast::<Extra>().read() })
}

/// Adds one completion of one slot. `strong`: solicited, or an error. On an overrun the completion is lost, the queue
/// is marked, and its event is raised.
#[inline]
pub(crate) fn push(cq: &Cq, tag: u32, header: &Header, extra: Extra, strong: bool) -> Result<(), Overrun> {
    let claim = claim(cq, 1)?;
    let slot = claim.slot(claim.first);
    header.write(slot);
    write_extra(slot, extra);
    claim.publish(claim.first, tag, false);
    notify(cq, strong);
    Ok(())
}

/// Claims slots, or marks the queue as overrun.
#[inline(always)]
pub(crate) fn claim(cq: &Cq, slots: u64) -> Result<Claim, Overrun> {
    cq.ring.claim(slots).inspect_err(|_| overrun(cq))
}

/// After publishing: notifies if the queue is armed for it.
#[inline(always)]
pub(crate) fn notify(cq: &Cq, strong: bool) {
    if cq.ring.fire(strong) {
        cq.notify();
    }
}

#[cold]
fn overrun(cq: &Cq) {
    if cq.ring.mark_overrun() {
        cq.context().events.raise_cq(cq, Kind::CqErr);
    }
}
