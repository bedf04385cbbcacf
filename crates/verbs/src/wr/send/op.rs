//! Work requests of the SQ that are not packets of a batch: one-sided, special, binds of memory
//! windows, and the marker of a drain.
//!
//! Each is posted by itself and always signaled; its slot keeps the memory that it uses until its
//! completion.

use rdma_sys::{bind_mw_t, ibv_mw_bind, ibv_send_wr, ibv_sge, ibv_wr_opcode};

use super::{INLINE, Kept, SIGNALED, SendQueue, flags};
use crate::memory::mr::Access;
use crate::memory::peer::PeerSlice;
use crate::memory::window::{MemoryWindow, WindowKind, bind_info};
use crate::qp::endpoint::Transport;
use crate::wr::buffer::{Buffer, Refused};
use crate::wr::operation::Op;
use crate::wr::post::{DestinationId, PostStop, SendOptions};
use crate::wr::post_verb::PostSend;
use crate::wr::wr_id::{self, WrKind};
use crate::wr::wr_list::{Entry, WrList};

impl SendQueue {
    /// Posts one work request that is not a packet of a batch; its completion comes always.
    ///
    /// # Safety
    /// `post` is for the live QP whose send queue this is.
    pub(crate) unsafe fn post_op(&mut self, post: PostSend, op: &Op, buffer: Buffer) -> Result<(), Refused> {
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        match unsafe { self.try_post_op(post, op, &buffer) } {
            Ok(slot) => {
                self.keep_op(slot, Kept { buffer, bind: None });
                Ok(())
            }
            Err(reason) => Err(Refused { buffer, reason }),
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
                self.keep_op(slot, Kept { buffer, bind: Some(bind) });
                Ok(())
            }
            Err(reason) => Err(Refused { buffer, reason }),
        }
    }

    /// Type 1 windows have a verb of their own, which posts the work request itself.
    ///
    /// # Safety
    /// As [`SendQueue::try_post_op`]; window and region are alive.
    unsafe fn try_bind(
        &mut self,
        post: PostSend,
        kind: WindowKind,
        bind: bind_mw_t,
        options: &SendOptions,
        buffer: &Buffer,
    ) -> Result<usize, PostStop> {
        self.reserve_one()?;
        self.check_fence(options)?;
        self.check_pd(buffer)?;
        let slot = self.packets.slot(self.sequence.next());
        let send_flags = SIGNALED | flags(options);
        match kind {
            WindowKind::Type2 => {
                let write = |wr: &mut ibv_send_wr, _: &mut ibv_sge| {
                    (wr.send_flags, wr.num_sge, wr.opcode) = (send_flags, 0, ibv_wr_opcode::IBV_WR_BIND_MW);
                    // See `Operation::write`.
                    wr.imm_data_invalidated_rkey_union.imm_data = 0;
                    wr.bind_mw_tso_union.bind_mw = bind;
                };
                // SAFETY: `post` is for the live QP of this queue; window and region are alive.
                unsafe { self.post_special(post, WrKind::Op, write)? };
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
    /// As [`SendQueue::post_op`], and on success the caller puts the buffer into the slot.
    pub(super) unsafe fn try_post_op(&mut self, post: PostSend, op: &Op, buffer: &Buffer) -> Result<usize, PostStop> {
        self.reserve_one()?;
        self.check_op(op, buffer)?;
        let destination = self.destination(op.options.destination)?;
        let slot = self.packets.slot(self.sequence.next());
        let list = match buffer {
            Buffer::List(list) => Some((list.write_sges(&mut self.sges), self.sges.as_mut_ptr())),
            _ => None,
        };
        let write = |wr: &mut ibv_send_wr, sge: &mut ibv_sge| {
            wr.send_flags = SIGNALED | flags(&op.options) | if op.inline { INLINE } else { 0 };
            wr.num_sge = (op.operation.moves_bytes() && buffer.len_bytes() > 0).into();
            *sge = buffer.sge();
            if let Some((sges, first)) = list {
                // No more than `max_send_sge`.
                (wr.num_sge, wr.sg_list) = (sges as i32, first);
            }
            op.operation.write(op.options.imm, wr);
            if let Some(to) = destination {
                wr.wr.ud = to;
            }
        };
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        unsafe { self.post_special(post, WrKind::Op, write) }.map(|()| slot)
    }

    /// Posts an empty, signaled send behind everything, even a full queue: on a QP in ERR its flush
    /// completion covers all that was posted. False when it could not be posted.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`].
    pub(crate) unsafe fn post_marker(&mut self, post: PostSend) -> bool {
        let destination = self.destination(DestinationId::default());
        let (true, Ok(destination)) = (self.outstanding < self.packets.len(), destination) else { return false };
        if self.sequence.reserve(1) == 0 {
            return false;
        }
        let write = |wr: &mut ibv_send_wr, _: &mut ibv_sge| {
            wr.send_flags = SIGNALED;
            wr.num_sge = 0;
            if let Some(to) = destination {
                wr.wr.ud = to;
            }
        };
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        unsafe { self.post_special(post, WrKind::Send, write) }.is_ok()
    }

    /// Posts one signaled work request; `write` writes all but its number, and calls nothing. There
    /// is a number for it. What the device refused is not in the queue.
    ///
    /// # Safety
    /// As [`SendQueue::post_one`]; the memory of the work request stays until it completes.
    pub(super) unsafe fn post_special(
        &mut self,
        post: PostSend,
        kind: WrKind,
        write: impl FnOnce(&mut ibv_send_wr, &mut ibv_sge),
    ) -> Result<(), PostStop> {
        // SAFETY: from here to the end nothing but the device is called.
        let mut list = unsafe { WrList::<ibv_send_wr>::of_thread() };
        let Entry { wr, sge } = list.lone();
        write(wr, sge);
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

    fn check_op(&self, op: &Op, buffer: &Buffer) -> Result<(), PostStop> {
        let len_bytes = if op.operation.moves_bytes() { buffer.len_bytes() } else { 0 };
        if len_bytes > self.max_message_bytes as usize {
            return Err(PostStop::TooLong { len_bytes, max_bytes: self.max_message_bytes });
        }
        if op.inline && len_bytes > self.inline_bytes as usize {
            return Err(PostStop::NotInline { len_bytes, max_bytes: self.inline_bytes });
        }
        if op.operation.is_atomic() && len_bytes != 8 {
            return Err(PostStop::NotEightBytes(len_bytes));
        }
        let sges = if op.operation.moves_bytes() { buffer.sges() } else { 0 };
        if sges > self.sges.len() {
            return Err(PostStop::TooManySges { sges, max_sge: self.max_sge() });
        }
        self.check_fence(&op.options)?;
        self.check_pd(buffer)
    }

    /// Room and a number for one work request.
    pub(super) fn reserve_one(&mut self) -> Result<(), PostStop> {
        if self.reserve(1) == 0 { Err(PostStop::Full) } else { Ok(()) }
    }

    pub(super) fn check_fence(&self, options: &SendOptions) -> Result<(), PostStop> {
        if options.fence && self.transport != Transport::Rc {
            return Err(PostStop::NotOn(self.transport, "fence"));
        }
        Ok(())
    }

    fn check_pd(&self, buffer: &Buffer) -> Result<(), PostStop> {
        match buffer.foreign_pd(self.pd_id) {
            Some(packet_pd) => Err(PostStop::NotRegistered { packet_pd, qp_pd: self.pd_id }),
            None => Ok(()),
        }
    }
}
