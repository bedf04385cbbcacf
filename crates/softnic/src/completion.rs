//! A completion as it lies in the ring: three header words, then what the kind of completion adds.
//!
//! What it guarantees: what [`push`] wrote is what [`Header::read`] gives. For a receive, `word` is the index of the
//! receive work request (its `wr_id` stays in the receiver's own memory) and the payload may follow; for a send it is
//! the `wr_id`, and the first payload word says how far the send queue is free once this is polled.

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
    /// Bytes of payload in the slots.
    pub(crate) payload: u32,
}

impl Header {
    #[inline(always)]
    fn words(&self) -> [u64; HEADER_WORDS] {
        let Header { word, qpn, status, byte_len, imm, opcode, flags, payload } = *self;
        debug_assert!(qpn < 1 << 24 && status < 256 && opcode < 256 && flags < 256 && payload < 256);
        [
            word,
            u64::from(qpn | status << 24) | u64::from(byte_len) << 32,
            u64::from(imm) | u64::from(opcode | flags << 8 | payload << 16) << 32,
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
            payload: bytes >> 16 & 0xff,
        }
    }
}

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
