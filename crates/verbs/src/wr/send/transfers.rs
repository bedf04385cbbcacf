//! One-sided work requests that go to the device as a list, signaled as sends are: every
//! `signal_every_wr`-th.
//!
//! The last work request of a list keeps the region of all of them, since whatever completes it,
//! completes those before. So a list is of one region: where that changes, another begins.

use std::iter::Peekable;

use rdma_sys::{ibv_send_wr, ibv_sge, ibv_wr_opcode, rdma_t};

use super::batch::Formatted;
use super::{Kept, SendQueue, flags};
use crate::memory::peer::{PeerSlice, Remote};
use crate::wr::buffer::Buffer;
use crate::wr::post::{PostStop, SendOptions, SendOutcome};
use crate::wr::post_verb::PostSend;
use crate::wr::request::rdma;
use crate::wr::wr_list::{LONGEST, WrList};
use crate::wr_id::{self, WrKind};

/// What a list does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Write,
    Read,
}

/// Where to, or from, and which bytes.
type Part = (ibv_sge, rdma_t);

impl SendQueue {
    /// Posts transfers in order until the queue is full, or one is refused.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`].
    #[inline]
    pub(crate) unsafe fn post_transfers<'a>(
        &mut self,
        post: PostSend,
        direction: Direction,
        options: &SendOptions,
        transfers: impl Iterator<Item = (&'a PeerSlice, Remote)>,
    ) -> SendOutcome {
        let mut transfers = transfers.peekable();
        let mut outcome = SendOutcome::default();
        let nothing = (ibv_sge { addr: 0, length: 0, lkey: 0 }, rdma_t { remote_addr: 0, rkey: 0 });
        let mut parts = [nothing; LONGEST];
        while let Some(&(first, _)) = transfers.peek() {
            outcome.stop = self.check_transfer(first);
            if outcome.stop.is_some() {
                break;
            }
            let room = self.reserve(LONGEST);
            if room == 0 {
                outcome.stop = Some(PostStop::Full);
                break;
            }
            // Before the list is taken, since the iterator of the transfers may post to another
            // queue.
            let (count, last) = take_region(first, self.max_message_bytes, &mut parts[..room], &mut transfers);
            // SAFETY: the caller's word; the region is kept below for as long as the device may use
            // it.
            let (taken, ret) = unsafe { self.post_parts(post, direction, options, &parts[..count]) };
            if taken > 0 {
                // Of the same region as all of the list, whichever of it was the last to be taken.
                let buffer = Buffer::Peer(last.clone());
                let position = self.sequence.next() + u64::from(taken - 1);
                self.keep_op(self.packets.slot(position), Kept::Memory(buffer));
                self.advance(taken);
            }
            outcome.posted += taken as usize;
            if ret != 0 {
                outcome.stop = Some(PostStop::of_device(ret));
                break;
            }
        }
        outcome
    }

    /// Posts the parts, of which there is one at least. Gives how many were taken, and the verb's
    /// answer.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`]; the parts' memory stays until they complete.
    unsafe fn post_parts(
        &mut self,
        post: PostSend,
        direction: Direction,
        options: &SendOptions,
        parts: &[Part],
    ) -> (u32, i32) {
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::<ibv_send_wr>::of_thread() };
        let first = self.sequence.next() | wr_id::kind_bits(WrKind::Op);
        let opcode = match direction {
            Direction::Write => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            Direction::Read => ibv_wr_opcode::IBV_WR_RDMA_READ,
        };
        // Copies, since the compiler can't know that work requests are not part of the queue.
        let (flags, signal_every) = (flags(options), self.signal_every);
        let mut formatted = Formatted::new(self.until_signal);
        for (&(sge, rdma), entry) in parts.iter().zip(list.entries()) {
            entry.sge = sge;
            // An SGE of length 0 means 2^31 bytes; a transfer of no bytes has no SGE.
            entry.wr.num_sge = (sge.length > 0).into();
            entry.wr.wr_id = first + u64::from(formatted.len);
            entry.wr.opcode = opcode;
            entry.wr.send_flags = flags | formatted.signal(options.signaled, signal_every);
            entry.wr.wr.rdma = rdma;
            formatted.len += 1;
        }
        // SAFETY: `post` is for the live QP of this queue, and the list has as many entries.
        let (taken, ret) = list.post(formatted.len, |wr, bad| unsafe { post.call(wr, bad) });
        self.count_signals(ret, formatted.until_signal, &list.entries()[..taken as usize]);
        list.altered(parts.len());
        (taken, ret)
    }

    fn check_transfer(&self, slice: &PeerSlice) -> Option<PostStop> {
        let (len_bytes, max_bytes) = (slice.len() as usize, self.max_message_bytes);
        if slice.pd_id() != self.pd_id {
            return Some(PostStop::NotRegistered { packet_pd: slice.pd_id(), qp_pd: self.pd_id });
        }
        (len_bytes > max_bytes as usize).then_some(PostStop::TooLong { len_bytes, max_bytes })
    }
}

/// Takes the transfers at the front that are of `first`'s region and not too long, as many as there
/// are parts. Gives how many, and the last of their slices.
#[inline]
fn take_region<'a>(
    first: &'a PeerSlice,
    max_bytes: u32,
    parts: &mut [Part],
    transfers: &mut Peekable<impl Iterator<Item = (&'a PeerSlice, Remote)>>,
) -> (usize, &'a PeerSlice) {
    let (mut count, mut last, lkey) = (0, first, first.lkey());
    for (sge, there) in parts {
        let fits = |slice: &PeerSlice| slice.is_of_region_of(first) && slice.len() <= max_bytes;
        let Some((slice, remote)) = transfers.next_if(|(slice, _)| fits(slice)) else { break };
        *sge = ibv_sge { addr: slice.addr(), length: slice.len(), lkey };
        *there = rdma(remote);
        (count, last) = (count + 1, slice);
    }
    (count, last)
}
