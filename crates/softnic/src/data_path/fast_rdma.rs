//! The fast path of RDMA WRITEs and READs: what those of a list have in common is looked at once a
//! run.
//!
//! What it guarantees: the same as `one_sided`, which sees whatever is special: more than one
//! piece, immediate data, a memory window's key, what takes long, anything that isn't granted. It
//! checks the same before a byte is touched.
//!
//! A run looks up the peer, what it lets in and the two keys once, and then checks bounds and
//! copies. So little happens between two copies, and no locked instruction (unless a completion was
//! asked for), that it is carried out while the stores of the first are on their way: a list of 4
//! KiB costs what the copies cost.

use crate::copy::copy;
use crate::data_path::errors::Errors;
use crate::data_path::execute;
use crate::data_path::poster::Poster;
use crate::data_path::sge_list::LONG_BYTES;
use crate::key_table::{self, RegionKey};
use crate::objects::qp::Qp;
use crate::objects::qp_table::Transport;
use crate::queues::wr::SendWr;
use rdma_sys::*;
use std::sync::atomic::Ordering;

/// Work requests after which it is looked again whether the peer and the queue pair are as they
/// were.
const RUN: u64 = 32;

/// Carries out WRITEs, or READs, from `first` on until something else comes, and gives the rest;
/// `None` if the first is none that it can. Otherwise like
/// [`crate::data_path::fast_send_inline::post`].
#[inline(never)]
pub(crate) fn post<'a>(poster: Poster<'_>, first: SendWr<'a>, errors: &mut Errors) -> Option<Option<SendWr<'a>>> {
    let mut run = Run::new(poster, first.opcode)?;
    let (room, before) = poster.sq.room(poster.cap.max_send_wr);
    let (mut position, limit) = (before, before + room.min(RUN));
    let mut next = Some(first);
    while position < limit
        && let Some(wr) = next
    {
        let Some(piece) = run.check(wr) else { break };
        // SAFETY: both ranges were granted by their keys inside the guard that we are in, or the
        // one is inline.
        unsafe { copy(piece.to, piece.from, piece.bytes) };
        (position, next) = (position + 1, wr.next());
        if execute::is_signaled(&poster, wr) {
            execute::complete(&poster, wr, position - 1, piece.bytes as u64, errors);
            if !poster.sq.is_open() {
                // Its completion was lost.
                break;
            }
        }
    }
    poster.sq.advance(position);
    (position > before).then_some(next)
}

/// What the work requests of a run have in common, looked up.
struct Run {
    opcode: u32,
    inline_bytes: usize,
    local: RegionKey,
    remote: RegionKey,
}

/// One copy, checked: the keys grant both ends for as long as the guard is held, or one end is
/// inline.
struct Piece {
    to: *mut u8,
    from: *const u8,
    bytes: usize,
}

impl Run {
    /// `None` if the peer isn't there, or doesn't let it in.
    #[inline(always)]
    fn new(poster: Poster<'_>, opcode: u32) -> Option<Run> {
        let (qp, peer): (&Qp, &Qp) = (&poster, poster.established_peer()?);
        let is_read = opcode == ibv_wr_opcode::IBV_WR_RDMA_READ;
        let (local, remote) =
            if is_read { (key_table::LOCAL_WRITE, key_table::REMOTE_READ) } else { (0, key_table::REMOTE_WRITE) };
        // Relaxed, all: set before the peer accepted, or changed by the control path only.
        let has_reads = qp.transport == Transport::Rc
            && qp.sq.max_rd_atomic.load(Ordering::Relaxed) > 0
            && peer.inbound.max_dest_rd_atomic.load(Ordering::Relaxed) > 0;
        if peer.inbound.access.load(Ordering::Relaxed) & remote == 0
            || (is_read && !has_reads)
            || qp.cap.max_send_sge == 0
        {
            return None;
        }
        Some(Run {
            opcode,
            inline_bytes: if is_read { 0 } else { qp.cap.max_inline_data as usize },
            local: RegionKey::new(qp.pd, local),
            remote: RegionKey::new(peer.pd, remote),
        })
    }

    /// The copy that a work request of one piece asks for, if everything about it is in order.
    #[inline(always)]
    fn check(&mut self, wr: SendWr<'_>) -> Option<Piece> {
        if wr.opcode != self.opcode {
            return None;
        }
        let sge = wr.only_sge()?;
        // A length of 0 means 2^31 (`ibv_post_send(3)`).
        if sge.length.wrapping_sub(1) >= LONG_BYTES as u32 - 1 {
            return None;
        }
        let bytes = sge.length as usize;
        let local = if !wr.is_inline() {
            self.local.check(sge.lkey, sge.addr, bytes as u64).ok()?
        } else if bytes <= self.inline_bytes {
            sge.addr as *mut u8
        } else {
            return None;
        };
        let rdma = wr.rdma();
        let remote = self.remote.check(rdma.rkey, rdma.remote_addr, bytes as u64).ok()?;
        let (to, from) = if self.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ { (local, remote) } else { (remote, local) };
        Some(Piece { to, from: from.cast_const(), bytes })
    }
}
