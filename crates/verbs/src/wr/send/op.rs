//! Work requests of the SQ that are not packets of a batch: one-sided, special, binds of memory
//! windows, and the marker of a drain.
//!
//! Each is posted by itself, written whole, and always signaled; its slot keeps the memory that it
//! uses until its completion.

use rdma_sys::{bind_mw_t, ibv_mw_bind, ibv_send_wr, ibv_sge};

use super::{INLINE, Kept, SIGNALED, SendQueue, flags};
use crate::memory::mr::Access;
use crate::memory::peer::PeerSlice;
use crate::memory::window::{MemoryWindow, WindowKind, bind_info};
use crate::wr::buffer::{Buffer, Given, NO_BYTES, Refused};
use crate::wr::operation::{Atomic, Transfer};
use crate::wr::post::{PostStop, SendOptions};
use crate::wr::post_verb::PostSend;
use crate::wr::request::Request;
use crate::wr::wr_list::{Entry, WrList};
use crate::wr_id::{self, WrKind};

/// What a work request that is posted by itself does, its memory aside.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    Transfer(Transfer),
    Atomic(Atomic),
    /// Takes no memory.
    LocalInvalidate {
        rkey: u32,
    },
}

impl SendQueue {
    /// Posts one work request that is not a packet of a batch; its completion comes always.
    ///
    /// # Safety
    /// `post` is for the live QP whose send queue this is.
    pub(crate) unsafe fn post_op(
        &mut self,
        post: PostSend,
        op: Op,
        given: Given,
        options: &SendOptions,
    ) -> Result<(), Refused> {
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        match unsafe { self.try_post_op(post, op, &given, options) } {
            Ok(slot) => {
                self.keep_op(slot, Kept::Memory(given.into_buffer()));
                Ok(())
            }
            Err(reason) => Err(Refused { buffer: given.into_buffer(), reason }),
        }
    }

    pub(super) fn keep_op(&mut self, slot: usize, kept: Kept) {
        self.ops[slot] = Some(kept);
        self.ops_kept += 1;
    }

    /// Binds a window. The slot keeps the window, what it is bound to from now on, and what it was
    /// bound to before.
    ///
    /// # Safety
    /// `post` is for the live QP whose send queue this is.
    pub(crate) unsafe fn bind_window(
        &mut self,
        post: PostSend,
        window: &mut MemoryWindow,
        slice: PeerSlice,
        access: Access,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let (buffer, inner) = (Buffer::Peer(slice.clone()), window.inner.clone());
        if inner.pd.id != self.pd_id {
            let reason = PostStop::NotRegistered { packet_pd: inner.pd.id, qp_pd: self.pd_id };
            return Err(Refused { buffer, reason });
        }
        let info = bind_info(&slice, access);
        let replaces = window.settle();
        let rkey = window.next_rkey();
        let bind = bind_mw_t { mw: inner.as_ptr(), rkey, bind_info: info };
        // SAFETY: `post` is for the live QP of this queue; window and memory go into the slot
        // below.
        let posted = unsafe { self.try_bind(post, window.kind(), bind, &options, &buffer) };
        match posted {
            Ok(slot) => {
                let bind = window.posted(slice, replaces);
                self.keep_op(slot, Kept::Bind(bind, buffer));
                Ok(())
            }
            Err(reason) => Err(Refused { buffer, reason }),
        }
    }

    /// Type 1 windows have a verb of their own, which posts the work request itself.
    ///
    /// # Safety
    /// The contract of [`SendQueue::try_post_op`]; window and region are alive.
    unsafe fn try_bind(
        &mut self,
        post: PostSend,
        kind: WindowKind,
        bind: bind_mw_t,
        options: &SendOptions,
        buffer: &Buffer,
    ) -> Result<usize, PostStop> {
        self.reserve_one()?;
        self.check_pd(buffer)?;
        let slot = self.packets.slot(self.sequence.next());
        let send_flags = SIGNALED | flags(options);
        match kind {
            WindowKind::Type2 => {
                // SAFETY: `post` is for the live QP of this queue; window and region are alive.
                unsafe { self.post_special(post, WrKind::Op, Request::Bind(bind), send_flags, Parts::One(NO_BYTES))? };
            }
            WindowKind::Type1 => {
                let wr_id = self.sequence.next() | wr_id::kind_bits(WrKind::Op);
                let mut asked = ibv_mw_bind { wr_id, send_flags, bind_info: bind.bind_info };
                // SAFETY: QP, window and region are alive and of one PD.
                let ret = unsafe { rdma_sys::ibv_bind_mw(post.qp, bind.mw, &raw mut asked) };
                if ret != 0 {
                    return Err(PostStop::of_device(ret));
                }
                self.until_signal = self.signal_every;
                self.advance(1);
            }
        }
        Ok(slot)
    }

    /// # Safety
    /// The contract of [`SendQueue::post_op`], and on success the caller puts the memory into the
    /// slot.
    pub(super) unsafe fn try_post_op(
        &mut self,
        post: PostSend,
        op: Op,
        given: &Given,
        options: &SendOptions,
    ) -> Result<usize, PostStop> {
        self.reserve_one()?;
        self.check_op(op, given)?;
        let request = self.request(op, options)?;
        let slot = self.packets.slot(self.sequence.next());
        let parts = match given.buffer() {
            Buffer::List(list) => {
                let count = list.write_sges(&mut self.sges);
                Parts::Several(self.sges.as_mut_ptr(), count)
            }
            other => Parts::One(other.sge()),
        };
        let send_flags = SIGNALED | flags(options) | if given.is_inline() { INLINE } else { 0 };
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        unsafe { self.post_special(post, WrKind::Op, request, send_flags, parts) }.map(|()| slot)
    }

    /// What is asked for, with all that the transport needs for it.
    fn request(&self, op: Op, options: &SendOptions) -> Result<Request, PostStop> {
        match (op, self.destination(options.destination)?) {
            (Op::LocalInvalidate { rkey }, None) => Ok(Request::LocalInvalidate { rkey }),
            (Op::Transfer(transfer), None) => Ok(Request::Transfer(transfer)),
            (Op::Atomic(atomic), None) => Ok(Request::Atomic(atomic)),
            (Op::Transfer(Transfer::Send), Some(to)) => Ok(Request::Datagram { imm: None, to }),
            (Op::Transfer(Transfer::SendWithImm { imm }), Some(to)) => Ok(Request::Datagram { imm: Some(imm), to }),
            (_, Some(_)) => Err(PostStop::NotOn(self.transport, "work requests but sends")),
        }
    }

    /// Posts an empty, signaled send behind everything, even a full queue: on a QP in ERR its flush
    /// completion covers all that was posted. False when it could not be posted.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`].
    pub(crate) unsafe fn post_marker(&mut self, post: PostSend) -> bool {
        let request = self.request(Op::Transfer(Transfer::Send), &SendOptions::default());
        let (true, Ok(request)) = (self.outstanding < self.packets.len(), request) else { return false };
        if self.sequence.reserve(1) == 0 {
            return false;
        }
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        unsafe { self.post_special(post, WrKind::Send, request, SIGNALED, Parts::One(NO_BYTES)) }.is_ok()
    }

    /// Posts one signaled work request, for which there is a number. What the device refused is not
    /// in the queue.
    ///
    /// # Safety
    /// The contract of [`SendQueue::post_one`]; the memory of the parts stays until the work
    /// request completes, and that of an inline one has the addresses that the parts say.
    pub(super) unsafe fn post_special(
        &mut self,
        post: PostSend,
        kind: WrKind,
        request: Request,
        send_flags: u32,
        parts: Parts,
    ) -> Result<(), PostStop> {
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::<ibv_send_wr>::of_thread() };
        let Entry { wr, sge } = list.lone();
        let num_sge = match parts {
            Parts::One(part) => {
                *sge = part;
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
        list.altered(0);
        if let Some((0, ret)) = refusal {
            return Err(PostStop::of_device(ret));
        }
        self.until_signal = self.signal_every;
        self.advance(1);
        Ok(())
    }

    fn check_op(&self, op: Op, given: &Given) -> Result<(), PostStop> {
        let (buffer, len_bytes) = (given.buffer(), given.buffer().len_bytes());
        if len_bytes > self.max_message_bytes as usize {
            return Err(PostStop::TooLong { len_bytes, max_bytes: self.max_message_bytes });
        }
        if given.is_inline() && len_bytes > self.inline_bytes as usize {
            return Err(PostStop::NotInline { len_bytes, max_bytes: self.inline_bytes });
        }
        if matches!(op, Op::Atomic(_)) && len_bytes != 8 {
            return Err(PostStop::NotEightBytes(len_bytes));
        }
        let sges = buffer.sges();
        if sges > self.sges.len() {
            return Err(PostStop::TooManySges { sges, max_sge: self.max_sge() });
        }
        self.check_pd(buffer)
    }

    /// Room and a number for one work request.
    pub(super) fn reserve_one(&mut self) -> Result<(), PostStop> {
        if self.reserve(1) == 0 { Err(PostStop::Full) } else { Ok(()) }
    }

    fn check_pd(&self, buffer: &Buffer) -> Result<(), PostStop> {
        match buffer.foreign_pd(self.pd_id) {
            Some(packet_pd) => Err(PostStop::NotRegistered { packet_pd, qp_pd: self.pd_id }),
            None => Ok(()),
        }
    }
}

/// Where the bytes of a work request are that is posted by itself.
pub(super) enum Parts {
    /// In one part, or nowhere if that has no bytes.
    One(ibv_sge),
    /// In several parts: where they are listed, and their number.
    Several(*mut ibv_sge, usize),
}
