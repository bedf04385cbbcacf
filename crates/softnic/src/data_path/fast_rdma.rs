//! The fast path of RDMA WRITEs and READs: checks the common properties of a list's work requests
//! once per run.
//!
//! Guarantees: the same as `one_sided`, with the same checks before a byte is touched. It leaves
//! all special cases to that: more than one piece, immediate data, a memory window's key, long
//! copies, anything that isn't granted.
//!
//! A run looks up the peer, its access flags and the two keys once, and then checks bounds and
//! copies. The work between two copies is small, without a locked instruction (unless a completion
//! is due), so the CPU does it while the stores of the first are in flight: a list of 4 KiB costs
//! no more than its copies.

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

/// Work requests after which the peer and the queue pair are checked again.
const RUN: u64 = 32;

/// Carries out WRITEs, or READs, from `first` on until another kind follows, and returns the rest;
/// `None` if it can't take even the first. Otherwise like
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
        // source is inline.
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

/// The common properties of a run's work requests, looked up.
struct Run {
    opcode: u32,
    inline_bytes: usize,
    local: RegionKey,
    remote: RegionKey,
}

/// One checked copy: the keys grant both ends while the guard is held, or one end is inline.
struct Piece {
    to: *mut u8,
    from: *const u8,
    bytes: usize,
}

impl Run {
    /// `None` if the peer isn't there, or doesn't let the operation in.
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

    /// The copy for a work request of one piece, if all its checks pass.
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
