//! The layout of a completion in the ring: three header words, then words of its kind; a small
//! message has two header words.
//!
//! Guarantees: [`Header::read`] returns what [`push`] wrote. For a receive, `word` is the index of
//! the receive work request (its `wr_id` stays in the receiver's own memory); for a send it is the
//! `wr_id`, and the first word behind the header tells up to which position the send queue is free
//! once this is polled. A small message has a [`SmallHeader`], and its bytes behind it.

use crate::events::async_event::Kind;
use crate::objects::cq::Cq;
use crate::objects::device;
use rdma_sys::*;
use verbline_sync::ring::{Claim, FIRST_PAYLOAD_BYTES, Overrun, PAYLOAD_BYTES_MAX, Slot};

/// Words of a slot's body that the header occupies.
pub(crate) const HEADER_WORDS: usize = 3;
/// `opcode` of a receive that a queue pair left behind: `word` is its `wr_id`. It is returned
/// although the queue pair is gone.
pub(crate) const LEFT: u32 = 255;
/// `opcode` of an internal entry, never returned: a check of the key of number `word` failed.
pub(crate) const KEY_FAULT: u32 = 254;
/// `opcode` of a work request that configured a key: `IBV_WC_DRIVER1`, a number that no send has.
/// The owner follows the header.
pub(crate) const CONFIGURED: u32 = 253;
/// No queue pair's tag goes with the number 0, the one of [`KEY_FAULT`] and [`CONFIGURED`].
pub(crate) const NO_TAG: u32 = 0;
/// Receives have this `opcode` or a greater one: `IBV_WC_RECV`.
pub(crate) const RECV: u32 = ibv_wc_opcode::IBV_WC_RECV;
pub(crate) const RECV_RDMA_WITH_IMM: u32 = ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
pub(crate) const SUCCESS: u32 = ibv_wc_status::IBV_WC_SUCCESS;

/// See the [module](self). `flags` are `ibv_wc_flags`; all but `word`, `imm` and `byte_len` fit
/// into their bytes.
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
        debug_assert!(qpn < 1 << 24 && status < 128 && opcode < 256 && flags < 256);
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
        // SAFETY: the slot is claimed by this producer and not published: nobody else touches its
        // body.
        slot.body_mut(|body| unsafe { body.cast::<[u64; HEADER_WORDS]>().write(words) });
    }

    /// The words of its `ibv_wc`; the source is a datagram's.
    #[inline(always)]
    pub(crate) fn wc_words(&self, wr_id: u64, src_qp: u32, slid: u16) -> [u64; 6] {
        [
            wr_id,
            u64::from(self.status) | u64::from(self.opcode) << 32,
            u64::from(self.byte_len) << 32,
            u64::from(self.imm) | u64::from(self.qpn) << 32,
            u64::from(src_qp) | u64::from(self.flags) << 32,
            u64::from(slid) << 16,
        ]
    }

    /// Reads the header of a completion that the consumer holds and has not yet returned to the
    /// ring.
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

/// The header of a small message, whose payload follows it in the slots. It has no status but
/// success, and its length is the payload's.
///
/// ```text
/// word 0  receive's index (low 16 bits), has immediate data (1), messages of the other direction that the sender
///         has polled (47)
///      1  QPN (24 bits), payload bytes (7), 1 where other completions have 0 (1), immediate data (32)
/// ```
///
/// 47 bits of a count that starts at 0 last for a month at 50 M/s; then it equals no count of
/// messages sent, and a sender compares these (`Sq::all_polled`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallHeader([u64; SMALL_HEADER_WORDS]);

/// Words of a slot's body that a [`SmallHeader`] occupies.
pub(crate) const SMALL_HEADER_WORDS: usize = 2;
/// In word 0.
const HAS_IMM: u64 = 1 << 16;
const ACKED_SHIFT: u32 = 17;
/// In word 1.
const IS_SMALL: u64 = 1 << 31;
const BYTES_SHIFT: u32 = 24;
const BYTES_MASK: u64 = 0x7f;
const QPN_MASK: u64 = 0xff_ffff;

const _: () = assert!(PAYLOAD_BYTES_MAX as u64 <= BYTES_MASK && FIRST_PAYLOAD_BYTES + 8 * SMALL_HEADER_WORDS == 56);
/// `IBV_WC_WITH_IMM` at its place in an `ibv_wc`.
const WITH_IMM_WORD: u64 = (ibv_wc_flags::IBV_WC_WITH_IMM.0 as u64) << 32;
const _: () = assert!(FIRST_PAYLOAD_BYTES == HALF_PAYLOAD_BYTES + 8);
// Each of the receives that are posted at a time has an index of its own.
const _: () = assert!(device::QP_WR_MAX <= 1 << 16);

/// Bytes of a payload in the second half of its slot's line: no store straddles the halves.
pub(crate) const HALF_PAYLOAD_BYTES: usize = 32;

/// The payload's places in the first slot: the word behind the header, and the half line behind
/// that. A payload begins in the half line. If it is longer than that, the word has the last 8 of
/// its bytes in this slot, some of which the half line may have as well.
#[inline(always)]
pub(crate) fn payload_of(body: *mut [u64; 7]) -> [*mut u8; 2] {
    let word = body.cast::<u64>().wrapping_add(SMALL_HEADER_WORDS);
    [word.cast(), word.wrapping_add(1).cast()]
}

impl SmallHeader {
    /// `qpn` is the receiver's, `bytes` is 1 to [`PAYLOAD_BYTES_MAX`].
    #[inline(always)]
    pub(crate) fn new(acked: u64, qpn: u32, index: u64, imm: Option<u32>, bytes: usize) -> SmallHeader {
        let has_imm = if imm.is_some() { HAS_IMM } else { 0 };
        SmallHeader([
            index & 0xffff | has_imm | acked << ACKED_SHIFT,
            u64::from(qpn) | (bytes as u64) << BYTES_SHIFT | IS_SMALL | u64::from(imm.unwrap_or(0)) << 32,
        ])
    }

    /// Writes it into a slot that is claimed, or free.
    #[inline(always)]
    pub(crate) fn write(&self, slot: &Slot) {
        // SAFETY: the slot is this producer's and not published: nobody else touches its body.
        slot.body_mut(|body| unsafe { body.cast::<[u64; SMALL_HEADER_WORDS]>().write(self.0) });
    }

    /// The header of a completion, if it is that of a small message, and the QPN of any.
    #[inline(always)]
    pub(crate) fn read(slot: &Slot) -> (Option<SmallHeader>, u32) {
        // SAFETY: published and not taken: the body is the consumer's.
        let words = slot.body(|body| unsafe { body.cast::<[u64; SMALL_HEADER_WORDS]>().read() });
        ((words[1] & IS_SMALL != 0).then_some(SmallHeader(words)), (words[1] & QPN_MASK) as u32)
    }

    /// The header of a completion if it is that of a small message to this queue pair.
    #[inline(always)]
    pub(crate) fn read_to(slot: &Slot, qpn: u32) -> Option<SmallHeader> {
        // SAFETY: the slot's body has room for these words, and every bit pattern is valid for
        // them.
        let words = slot.body(|body| unsafe { body.cast::<[u64; SMALL_HEADER_WORDS]>().read() });
        let wanted = qpn | IS_SMALL as u32;
        (words[1] as u32 & (QPN_MASK | IS_SMALL) as u32 == wanted).then_some(SmallHeader(words))
    }

    /// Messages of the other direction that its sender has polled.
    #[inline(always)]
    pub(crate) fn acked(&self) -> u64 {
        self.0[0] >> ACKED_SHIFT
    }

    /// The low bits of the receive's index.
    #[inline(always)]
    pub(crate) fn index(&self) -> u16 {
        self.0[0] as u16
    }

    /// Bytes of payload.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        (self.0[1] >> BYTES_SHIFT & BYTES_MASK) as usize
    }

    /// The words of its `ibv_wc`.
    #[inline(always)]
    pub(crate) fn wc_words(&self, wr_id: u64, status: u32) -> [u64; 6] {
        let SmallHeader([first, second]) = *self;
        [
            wr_id,
            u64::from(status) | u64::from(RECV) << 32,
            second << (32 - BYTES_SHIFT) & BYTES_MASK << 32,
            second.rotate_left(32) & (QPN_MASK << 32 | 0xffff_ffff),
            (first & HAS_IMM) * (WITH_IMM_WORD / HAS_IMM),
            0,
        ]
    }
}

// `struct ibv_wc`: callers pass arrays of it, so it can neither grow nor change.
const _: () = {
    use std::mem::offset_of;
    assert!(cfg!(target_endian = "little"), "wc_words puts the field at the lower address into the lower half");
    assert!(size_of::<ibv_wc>() == 48 && offset_of!(ibv_wc, wr_id) == 0);
    assert!(offset_of!(ibv_wc, status) == 8 && offset_of!(ibv_wc, opcode) == 12);
    assert!(offset_of!(ibv_wc, vendor_err) == 16 && offset_of!(ibv_wc, byte_len) == 20);
    assert!(offset_of!(ibv_wc, imm_data_invalidated_rkey_union) == 24 && offset_of!(ibv_wc, qp_num) == 28);
    assert!(offset_of!(ibv_wc, src_qp) == 32 && offset_of!(ibv_wc, wc_flags) == 36);
    assert!(offset_of!(ibv_wc, pkey_index) == 40 && offset_of!(ibv_wc, slid) == 42);
};

/// Words after the header, which depend on the kind of completion.
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

/// Adds one completion of one slot. `strong`: solicited, or an error. On an overrun the completion
/// is lost, the queue is marked, and its event is raised.
#[inline]
pub(crate) fn push(cq: &Cq, tag: u32, header: &Header, extra: Extra, strong: bool) -> Result<(), Overrun> {
    let claim = claim(cq, 1)?;
    let slot = claim.slot(claim.first);
    header.write(slot);
    write_extra(slot, extra);
    // SAFETY: the one slot of the claim, written above.
    unsafe { claim.publish(claim.first, tag, false) };
    notify(cq, strong);
    Ok(())
}

/// Claims slots, or marks the queue as overrun.
#[inline(always)]
pub(crate) fn claim(cq: &Cq, slots: u32) -> Result<Claim<'_>, Overrun> {
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
pub(crate) fn overrun(cq: &Cq) {
    if cq.ring.mark_overrun() {
        cq.context().events.raise(cq, Kind::CqErr);
    }
}
