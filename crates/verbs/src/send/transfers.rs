//! One-sided work requests that go to the device as a list, signaled as sends are: every `signal_every_wr`-th.
//!
//! The last work request of a list keeps the region of all of them, since whatever completes it, completes those before. So a
//! list is of one region: where that changes, another begins.

use std::iter::Peekable;

use rdma_sys::{ibv_qp, ibv_sge, ibv_wr_opcode, rdma_t};

use super::{List, SendQueue, flags};
use crate::one_sided::{Buffer, Kept};
use crate::peer::{PeerSlice, Remote};
use crate::post::{PostStop, SendOptions, SendOutcome};
use crate::qp_attr::Transport;
use crate::wr_id::{self, WrKind};

/// What a list does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Write,
    Read,
}

impl SendQueue {
    /// Posts transfers in order until the queue is full, or one is refused.
    ///
    /// # Safety
    /// `qp` is the live QP whose send queue this is.
    #[inline]
    pub(crate) unsafe fn post_transfers<'a>(
        &mut self,
        qp: *mut ibv_qp,
        direction: Direction,
        options: &SendOptions,
        transfers: impl Iterator<Item = (&'a PeerSlice, Remote)>,
    ) -> SendOutcome {
        let mut transfers = transfers.peekable();
        let mut outcome = SendOutcome::default();
        while let Some(&(first, _)) = transfers.peek() {
            outcome.stop = self.check_region(first, options);
            if outcome.stop.is_some() {
                break;
            }
            let room = self.sequence.reserve(self.room());
            if room == 0 {
                outcome.stop = Some(PostStop::Full);
                break;
            }
            let (list, last, stop) = self.format_transfers(first, room, direction, options, &mut transfers);
            // SAFETY: the caller's word; the region is kept below for as long as the device may use it.
            let (taken, refusal) = unsafe { self.post_list(qp, list) };
            if taken > 0 {
                // Of the same region as all of the list, whichever of it was the last to be taken.
                let buffer = Buffer::Peer(last.clone());
                self.keep_op(
                    self.packets.slot(self.head.wrapping_add(taken - 1).into()),
                    Kept { buffer, _window: None },
                );
                self.advance(taken);
            }
            outcome.posted += taken as usize;
            outcome.stop = refusal.or(stop);
            if outcome.stop.is_some() {
                break;
            }
        }
        outcome
    }

    /// Writes work requests for the transfers of `first`'s region, up to `room`. Gives them, the last of their slices, and what
    /// is wrong with the transfer behind them.
    #[inline]
    fn format_transfers<'a>(
        &mut self,
        first: &'a PeerSlice,
        room: u32,
        direction: Direction,
        options: &SendOptions,
        transfers: &mut Peekable<impl Iterator<Item = (&'a PeerSlice, Remote)>>,
    ) -> (List, &'a PeerSlice, Option<PostStop>) {
        let wr_id = wr_id::pack(self.tag, WrKind::Op, self.sequence.peek(0));
        let opcode = match direction {
            Direction::Write => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            Direction::Read => ibv_wr_opcode::IBV_WR_RDMA_READ,
        };
        // Copies, since the compiler can't know that work requests are not part of the queue.
        let (flags, lkey) = (flags(options, false), first.lkey());
        let (max_bytes, signal_every) = (self.max_message_bytes, self.signal_every);
        let mut list = List { len: 0, inlined: 0, unsignaled: self.unsignaled };
        let mut last = first;
        for entry in &mut self.list.entries()[..room as usize] {
            let Some((slice, remote)) = transfers.next_if(|(slice, _)| slice.is_of_region_of(first)) else { break };
            let length = slice.len();
            if length > max_bytes {
                return (list, last, Some(PostStop::TooLong { len_bytes: length as usize, max_bytes }));
            }
            // An SGE of length 0 means 2^31 bytes; a transfer of no bytes has no SGE.
            entry.sge = ibv_sge { addr: slice.addr(), length, lkey };
            entry.wr.num_sge = (length > 0).into();
            entry.wr.wr_id = wr_id + u64::from(list.len);
            entry.wr.opcode = opcode;
            entry.wr.send_flags = flags | list.signal(options.signaled, signal_every);
            entry.wr.wr.rdma = rdma_t { remote_addr: remote.addr, rkey: remote.rkey };
            list.len += 1;
            last = slice;
        }
        (list, last, None)
    }

    fn check_region(&self, slice: &PeerSlice, options: &SendOptions) -> Option<PostStop> {
        if slice.pd_id() != self.pd_id {
            return Some(PostStop::NotRegistered { packet_pd: slice.pd_id(), qp_pd: self.pd_id });
        }
        (options.fence && self.transport != Transport::Rc).then_some(PostStop::NotOn(self.transport, "fence"))
    }
}
