//! Work requests posted by themselves: one-sided, special, binds of memory windows, configurations
//! of signature keys, and the marker of a drain.
//!
//! Each is written whole, and always signaled; its slot keeps its memory until its completion.

use rdma_sys::ibv_sge;

use super::{INLINE, Kept, SIGNALED, SendQueue, flags};
use crate::wr::buffer::{Buffer, Given, NO_BYTES};
use crate::wr::operation::Transfer;
use crate::wr::post::{PostStop, SendOptions};
use crate::wr::post_verb::PostSend;
use crate::wr::request::Request;
use crate::wr::wr_list::{WrEntry, WrList};
use crate::wr_id::{self, WrKind};

impl SendQueue {
    /// Posts one work request; its completion always comes. Returns its slot.
    ///
    /// # Safety
    /// `post` is for the live QP of this send queue, and on success the caller puts the memory of
    /// the work request into the slot ([`SendQueue::keep_op`]).
    pub(crate) unsafe fn post_op(
        &mut self,
        post: PostSend,
        request: Request,
        given: &Given,
        options: &SendOptions,
    ) -> Result<usize, PostStop> {
        if self.reserve(1) == 0 {
            return Err(PostStop::Full);
        }
        self.check_op(&request, given)?;
        let request = self.addressed(request, options)?;
        let slot = self.packets.slot(self.sequence.next());
        let parts = match given {
            // The memory of a bind is in the bind's own fields.
            Given::Used(_) if matches!(request, Request::Bind(_)) => Parts::One(NO_BYTES),
            Given::Used(Buffer::List(list)) | Given::Copied(Buffer::List(list)) => {
                let count = list.write_sges(&mut self.sges);
                Parts::Several(self.sges.as_mut_ptr(), count)
            }
            Given::Used(buffer) | Given::Copied(buffer) => Parts::One(buffer.sge()),
            Given::Words(words) => Parts::One(*words),
        };
        let send_flags = SIGNALED | flags(options) | if matches!(given, Given::Used(_)) { 0 } else { INLINE };
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        unsafe { self.post_special(post, WrKind::Op, request, send_flags, parts) }.map(|()| slot)
    }

    pub(crate) fn keep_op(&mut self, slot: usize, kept: Kept) {
        self.ops[slot] = Some(kept);
        self.ops_kept += 1;
    }

    /// Adds the destination to a datagram.
    fn addressed(&self, request: Request, options: &SendOptions) -> Result<Request, PostStop> {
        match (request, self.destination(options.destination)?) {
            (request, None) => Ok(request),
            (Request::Transfer(Transfer::Send), Some(to)) => Ok(Request::Datagram { imm: None, to }),
            (Request::Transfer(Transfer::SendWithImm { imm }), Some(to)) => {
                Ok(Request::Datagram { imm: Some(imm), to })
            }
            (_, Some(_)) => Err(PostStop::NotOn(self.transport, "work requests but sends")),
        }
    }

    /// Posts an empty, signaled send behind everything, even a full queue: on a QP in ERR its flush
    /// completion covers all posted work requests. False if it could not be posted.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`].
    pub(crate) unsafe fn post_marker(&mut self, post: PostSend) -> bool {
        let request = self.addressed(Request::Transfer(Transfer::Send), &SendOptions::default());
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        request.is_ok_and(|request| unsafe { self.post_behind_all(post, request) }.is_ok())
    }

    /// Posts a signaled work request without bytes behind everything, even a full queue. Returns
    /// the number that its completion carries.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`]; what the request names stays until it completes.
    pub(crate) unsafe fn post_behind_all(&mut self, post: PostSend, request: Request) -> Result<u64, PostStop> {
        // There are more slots than the depth.
        if self.outstanding >= self.packets.len() || self.sequence.reserve(1) == 0 {
            return Err(PostStop::Full);
        }
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        unsafe { self.post_special(post, WrKind::Send, request, SIGNALED, Parts::One(NO_BYTES)) }?;
        Ok(self.taken(1))
    }

    /// Posts one signaled work request, with a reserved number. If the device refuses it, it is not
    /// in the queue.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`]; the memory of the parts stays until the work
    /// request completes, and inline memory is readable at the addresses of the parts.
    unsafe fn post_special(
        &mut self,
        post: PostSend,
        kind: WrKind,
        request: Request,
        send_flags: u32,
        parts: Parts,
    ) -> Result<(), PostStop> {
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::written_of_thread() };
        let WrEntry { wr, sge } = list.lone();
        let num_sge = match parts {
            Parts::One(part) => {
                *sge = part;
                wr.sg_list = &raw mut *sge;
                (part.length > 0).into()
            }
            Parts::Several(first, count) => {
                wr.sg_list = first;
                count
            }
        };
        request.write(send_flags, num_sge, wr);
        wr.wr_id = self.sequence.next() | wr_id::kind_bits(kind);
        // SAFETY: `post` is for the live QP of this queue, and `wr` is the whole list.
        let refusal = list.post_lone(|wr, bad| unsafe { post.call(wr, bad) });
        if let Some((0, ret)) = refusal {
            return Err(PostStop::of_device(ret));
        }
        self.until_signal = self.signal_every;
        self.advance(1);
        Ok(())
    }

    fn check_op(&self, request: &Request, given: &Given) -> Result<(), PostStop> {
        let Some(buffer) = given.buffer() else { return self.check_configures() };
        let len_bytes = buffer.len_bytes();
        let is_message = !matches!(request, Request::Bind(_));
        if is_message && len_bytes > self.max_message_bytes as usize {
            return Err(PostStop::TooLong { len_bytes, max_bytes: self.max_message_bytes });
        }
        if matches!(given, Given::Copied(_)) && len_bytes > self.inline_bytes as usize {
            return Err(PostStop::NotInline { len_bytes, max_bytes: self.inline_bytes });
        }
        if matches!(request, Request::Atomic(_)) && len_bytes != 8 {
            return Err(PostStop::NotEightBytes(len_bytes));
        }
        let sges = buffer.sges();
        if sges > self.max_sge as usize {
            return Err(PostStop::TooManySges { sges, max_sge: self.max_sge() });
        }
        // No key is checked of data that the CPU copies, nor of a message without bytes, which has
        // no SGE (ibv_post_send(3)). A bind of no bytes names its region.
        let has_key = matches!(given, Given::Used(_)) && (len_bytes > 0 || !is_message);
        match buffer.foreign_pd(self.pd_id).filter(|_| has_key) {
            Some(packet_pd) => Err(PostStop::NotRegistered { packet_pd, qp_pd: self.pd_id }),
            None => Ok(()),
        }
    }
}

/// The bytes of a work request that is posted by itself.
enum Parts {
    /// One part, or none if it is empty.
    One(ibv_sge),
    /// Several parts: the address of their list, and their number.
    Several(*mut ibv_sge, usize),
}
