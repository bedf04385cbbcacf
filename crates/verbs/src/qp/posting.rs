//! Posting of packets: batches, lone packets, and lists to receive into.

use verbline_mem::{Batch, Packet};

use super::QueuePair;
use crate::qp::attr::QpState;
use crate::wr::buffer::{Buffer, Refused};
use crate::wr::connected::{Carrier, OnAny};
use crate::wr::post::{PostStop, RecvOutcome, SendOptions, SendOutcome, Unposted};
use crate::wr::sg_list::SgList;

/// No options: for packets sent without any.
const NO_OPTIONS: Option<fn(usize, &Packet) -> SendOptions> = None;

impl QueuePair {
    /// Posts packets from the front of the batch, in order, as one list; more than 64 as several
    /// lists. Posted packets have moved into the QP, or back to their pool if they went inline; the
    /// rest stays in the batch.
    #[inline(always)]
    pub fn post_send(&mut self, batch: &mut Batch) -> SendOutcome {
        match batch.as_slice() {
            [packet] if self.send.takes_one(packet) => {
                // A batch of one has a last packet.
                let Some(packet) = batch.pop() else { return SendOutcome::default() };
                // SAFETY: the QP is live until drop, `send` is its send queue, and takes it.
                match unsafe { self.send.post_one(self.post_send, packet) } {
                    Ok(()) => SendOutcome { posted: 1, inlined: 1, stop: None },
                    Err(unposted) => self.refused_only(batch, unposted),
                }
            }
            _ => self.post_send_list(batch),
        }
    }

    /// Handles a refusal. The packet came from the batch, so there is space for it.
    #[cold]
    fn refused_only(&mut self, batch: &mut Batch, unposted: Unposted) -> SendOutcome {
        let Unposted { packet, stop } = self.refused(unposted);
        let taken = 1 - batch.push_iter(packet);
        SendOutcome { posted: taken, inlined: taken, stop: Some(stop) }
    }

    /// Posts one packet. It has moved into the QP, or back to its pool if it went inline; if
    /// refused, it comes back.
    #[inline(always)]
    pub fn post_send_one(&mut self, packet: Packet) -> Result<(), Unposted> {
        if self.send.takes_one(&packet) {
            // SAFETY: the QP is live until drop, `send` is its send queue, and takes it.
            unsafe { self.send.post_one(self.post_send, packet) }.map_err(|unposted| self.refused(unposted))
        } else {
            self.post_single(packet, |qp, batch| qp.post_send_any(batch, NO_OPTIONS).stop)
        }
    }

    #[cold]
    fn refused(&mut self, unposted: Unposted) -> Unposted {
        self.count_refusal(Some(unposted.stop));
        unposted
    }

    /// Posts a packet through the batch path.
    #[inline(never)]
    fn post_single(
        &mut self,
        packet: Packet,
        post: impl FnOnce(&mut QueuePair, &mut Batch) -> Option<PostStop>,
    ) -> Result<(), Unposted> {
        let mut single = std::mem::replace(&mut self.single, Batch::with_capacity(0));
        // The batch is empty, with space for one.
        single.push_iter([packet]);
        let stop = post(self, &mut single);
        let packet = single.pop();
        self.single = single;
        stop.map_or(Ok(()), |stop| Err(Unposted { packet, stop }))
    }

    #[inline(never)]
    fn post_send_list(&mut self, batch: &mut Batch) -> SendOutcome {
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        match unsafe { self.send.post_all(self.post_send, batch) } {
            Some((taken, ret)) => {
                let stop = self.stop_of(ret);
                SendOutcome { posted: taken as usize, inlined: taken as usize, stop }
            }
            None => self.post_send_any(batch, NO_OPTIONS),
        }
    }

    #[inline]
    pub(super) fn post_send_any<T: Carrier>(
        &mut self,
        batch: &mut Batch,
        options: Option<impl FnMut(usize, &Packet) -> SendOptions<T>>,
    ) -> SendOutcome {
        if !self.may_send() {
            return SendOutcome { stop: Some(PostStop::NotReady(self.state)), ..SendOutcome::default() };
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let outcome = unsafe { self.send.post_batch(self.post_send, batch, options) };
        self.count_refusal(outcome.stop);
        outcome
    }

    /// Like [`QueuePair::post_send`], with options per packet. The function is called with the
    /// packet's index in the batch and the packet, before the list is posted, and so twice for some
    /// packets when the device refuses some. For options with a fence, see
    /// [`RcQp::post_send_with`](crate::rdma::RcQp::post_send_with).
    #[inline]
    pub fn post_send_with(
        &mut self,
        batch: &mut Batch,
        options: impl FnMut(usize, &Packet) -> SendOptions<OnAny>,
    ) -> SendOutcome {
        self.post_send_any(batch, Some(options))
    }

    /// Posts packets from the front of the batch for receiving. Each is emptied first: the device
    /// overwrites its contents.
    #[inline(always)]
    pub fn post_recv(&mut self, batch: &mut Batch) -> RecvOutcome {
        let verb = self.post_recv;
        // A QP on an SRQ has a receive queue of depth 0, in which nothing fits.
        match batch.as_slice() {
            [packet] if self.recv.takes_one(packet) => {
                // SAFETY: the QP is live until drop, `recv` is its receive queue, and takes it.
                let outcome = unsafe { self.recv.post_only(batch, |wr, bad| verb.call(wr, bad)) };
                self.count_refusal(outcome.stop);
                outcome
            }
            _ => self.post_recv_list(batch),
        }
    }

    /// Posts one packet for receiving. It is emptied first: the device overwrites its contents.
    #[inline(always)]
    pub fn post_recv_one(&mut self, packet: Packet) -> Result<(), Unposted> {
        if self.recv.takes_one(&packet) {
            let verb = self.post_recv;
            // SAFETY: the QP is live until drop, `recv` is its receive queue, and takes it.
            let posted = unsafe { self.recv.post_one(packet, |wr, bad| verb.call(wr, bad)) };
            posted.map_err(|unposted| self.refused(unposted))
        } else {
            self.post_single(packet, |qp, batch| qp.post_recv_any(batch).stop)
        }
    }

    #[inline(never)]
    fn post_recv_list(&mut self, batch: &mut Batch) -> RecvOutcome {
        let verb = self.post_recv;
        // SAFETY: the QP is live until drop, and `recv` is its receive queue.
        match unsafe { self.recv.post_all(batch, |wr, bad| verb.call(wr, bad)) } {
            Some((taken, ret)) => RecvOutcome { posted: taken as usize, stop: self.stop_of(ret) },
            None => self.post_recv_any(batch),
        }
    }

    #[inline(never)]
    fn post_recv_any(&mut self, batch: &mut Batch) -> RecvOutcome {
        if self.state == QpState::Reset {
            return RecvOutcome { posted: 0, stop: Some(PostStop::NotReady(self.state)) };
        }
        if self.keep.srq.is_some() {
            return RecvOutcome { posted: 0, stop: Some(PostStop::UsesSrq) };
        }
        if self.recv_scatter.is_some() {
            return RecvOutcome { posted: 0, stop: Some(PostStop::OtherReceives { lists: true }) };
        }
        let verb = self.post_recv;
        // SAFETY: the QP is live until drop, and `recv` is its receive queue.
        let outcome = unsafe { self.recv.post_batch(batch, |wr, bad| verb.call(wr, bad)) };
        self.count_refusal(outcome.stop);
        outcome
    }

    /// Posts a list for receiving, on a QP created for lists
    /// ([`QpSpec::max_recv_sge`](super::QpSpec) above 1). A message fills the parts in order, each
    /// packet up to its `len()`. On UD the first 40 bytes are the GRH's ([`crate::datagram::Grh`]).
    /// A list that is not posted comes back.
    pub fn post_recv_scatter(&mut self, list: SgList) -> Result<(), Refused> {
        let refused = |list, reason| Err(Refused { buffer: Buffer::List(list), reason });
        if self.state == QpState::Reset {
            return refused(list, PostStop::NotReady(self.state));
        }
        if self.uses_srq() {
            return refused(list, PostStop::UsesSrq);
        }
        let verb = self.post_recv;
        let Some(lists) = &mut *self.recv_scatter else {
            return refused(list, PostStop::OtherReceives { lists: false });
        };
        // SAFETY: the QP is live until drop, and `lists` is its receive queue.
        let posted = unsafe { lists.post(list, |wr, bad| verb.call(wr, bad)) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }

    /// Whether sends may be posted. A device may take and forget a send posted in RESET, INIT or
    /// RTR (ibv_post_send(3)), so it is not asked.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        !matches!(self.state, QpState::Reset | QpState::Init | QpState::Rtr)
    }

    /// Converts a verb's result to the reason why the batch stopped, and counts a refusal.
    #[inline]
    fn stop_of(&mut self, ret: i32) -> Option<PostStop> {
        if ret == 0 {
            return None;
        }
        let stop = Some(PostStop::of_device(ret));
        self.count_refusal(stop);
        stop
    }

    #[inline]
    pub(super) fn count_refusal(&mut self, stop: Option<PostStop>) {
        if matches!(stop, Some(PostStop::Device(_))) {
            self.counters.refused += 1;
        }
    }
}
