//! One-sided and special work requests, beyond packets: RDMA WRITE and READ, atomics, invalidation.
//!
//! A typed handle ([`RcQp`], [`UcQp`], [`UdQp`]) has only the operations of its transport (table in
//! ibv_post_send(3)), so that a READ on UC, an atomic on UD or a fence on either does not compile.
//! The memory that a work request uses moves into the QP with it and comes back from
//! [`QueuePair::op_done`]; no one can read, write or free it meanwhile. It is one packet, one
//! slice, or a list of them ([`SgList`](crate::expert::SgList)): a message gathered from several
//! places, or a READ's data scattered over them, without a copy.

use std::ffi::c_int;

use rdma_sys::{bind_mw_t, ibv_bind_mw, ibv_mw_bind, ibv_qp, ibv_send_wr};
use verbline_mem::{Batch, Packet};
use verbline_softnic::qp_table::Transport;

use super::{QpError, QueuePair};
use crate::memory::mr::Access;
use crate::memory::peer::{PeerSlice, Remote};
use crate::memory::window::{MemoryWindow, WindowKind, bind_info};
use crate::signature::{KeyConfig, PostedConfiguration, SignatureKey};
use crate::wr::buffer::{Addressed, Buffer, Given, Refused, RefusedKey};
use crate::wr::connected::{OnRc, OnUc, OnUd};
use crate::wr::operation::{Atomic, Transfer};
use crate::wr::post::{PostStop, SendOptions, SendOutcome};
use crate::wr::post_verb::PostSend;
use crate::wr::request::Request;
use crate::wr::send::Kept;
use crate::wr::wr_queue::WorkList;

/// An RC QP: all operations.
#[derive(Debug)]
pub struct RcQp<'q> {
    qp: &'q mut QueuePair,
}

/// A UC QP: sends and WRITEs.
#[derive(Debug)]
pub struct UcQp<'q> {
    qp: &'q mut QueuePair,
}

/// A UD QP: sends.
#[derive(Debug)]
pub struct UdQp<'q> {
    qp: &'q mut QueuePair,
}

impl QueuePair {
    /// The handle for WRITE, READ, atomics and the rest of RC; refused on a QP of another
    /// transport.
    #[inline]
    pub fn rc(&mut self) -> Result<RcQp<'_>, QpError> {
        self.check_transport(Transport::Rc)?;
        Ok(RcQp { qp: self })
    }

    /// The handle for WRITEs and the rest of UC; refused on a QP of another transport.
    #[inline]
    pub fn uc(&mut self) -> Result<UcQp<'_>, QpError> {
        self.check_transport(Transport::Uc)?;
        Ok(UcQp { qp: self })
    }

    /// The handle for UD sends of any memory; refused on a QP of another transport.
    pub fn ud(&mut self) -> Result<UdQp<'_>, QpError> {
        self.check_transport(Transport::Ud)?;
        Ok(UdQp { qp: self })
    }

    fn post_op(
        &mut self,
        request: Request,
        given: Given,
        options: &SendOptions,
        kept: impl FnOnce(Buffer) -> Kept,
    ) -> Result<(), Refused> {
        self.post_op_by(self.post_send, request, given, options, kept)
    }

    /// Posts one work request by a given function of the device; its slot keeps the result of
    /// `kept` for its memory.
    fn post_op_by(
        &mut self,
        post: PostSend,
        request: Request,
        given: Given,
        options: &SendOptions,
        kept: impl FnOnce(Buffer) -> Kept,
    ) -> Result<(), Refused> {
        if !self.may_send() {
            return Err(Refused { buffer: given.into_buffer(), reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, `send` is its send queue, and `post` posts to it. The
        // memory it uses goes into the slot.
        match unsafe { self.send.post_op(post, request, &given, options) } {
            Ok(slot) => {
                self.send.keep_op(slot, kept(given.into_buffer()));
                Ok(())
            }
            Err(reason) => {
                self.count_refusal(Some(reason));
                Err(Refused { buffer: given.into_buffer(), reason })
            }
        }
    }

    /// Whether a work request that uses an object of this PD can be posted.
    fn may_use(&self, pd_id: u64) -> Result<(), PostStop> {
        match self.send.pd_id {
            _ if !self.may_send() => Err(PostStop::NotReady(self.state)),
            qp_pd if qp_pd != pd_id => Err(PostStop::NotRegistered { packet_pd: pd_id, qp_pd }),
            _ => Ok(()),
        }
    }

    /// Binds a window. The slot keeps the window, and its memory both before and after the bind.
    fn bind_window(
        &mut self,
        window: &mut MemoryWindow,
        slice: PeerSlice,
        access: Access,
        options: &SendOptions,
    ) -> Result<(), Refused> {
        if let Err(reason) = self.may_use(window.inner.pd.id) {
            return Err(Refused { buffer: slice.into(), reason });
        }
        let replaces = window.settle();
        let (mw, rkey) = (window.inner.as_ptr(), window.next_rkey());
        let bind = Request::Bind(bind_mw_t { mw, rkey, bind_info: bind_info(&slice, access) });
        let post = match window.kind() {
            WindowKind::Type1 => PostSend::by(self.raw.as_ptr(), bind_type_1),
            WindowKind::Type2 => self.post_send,
        };
        let posted = slice.clone();
        let kept = |buffer| Kept::Bind(window.posted(posted, replaces), buffer);
        self.post_op_by(post, bind, Given::Used(slice.into()), options, kept)
    }

    /// Configures a key. The slot keeps it until the completion.
    fn configure_key(
        &mut self,
        key: &mut SignatureKey,
        config: KeyConfig,
        options: &SendOptions,
    ) -> Result<(), RefusedKey> {
        if let Err(reason) = self.may_use(key.inner.pd.id) {
            return Err(RefusedKey { config, reason });
        }
        let words = match key.build(&config) {
            Ok(words) => Given::Words(words),
            Err(reason) => return Err(RefusedKey { config, reason: PostStop::of_key(reason) }),
        };
        let mut config = Some(config);
        let kept = |_| Kept::Configuration(key.posted(config.take().unwrap_or_default()));
        self.post_op(Request::Configure, words, options, kept).map_err(|refused| {
            key.refused();
            RefusedKey { config: config.take().unwrap_or_default(), reason: refused.reason }
        })
    }
}

/// Posts a bind of a type 1 window, through its own verb, which writes the work request itself.
///
/// # Safety
/// That of `ibv_post_send` for one work request that binds a window; QP and region are alive and of
/// one PD.
pub(crate) unsafe extern "C" fn bind_type_1(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: by the contract above, `wr` is a work request that binds.
    let (wr_id, send_flags, bind) = unsafe { ((*wr).wr_id, (*wr).send_flags, (*wr).bind_mw_tso_union.bind_mw) };
    let mut asked = ibv_mw_bind { wr_id, send_flags, bind_info: bind.bind_info };
    // SAFETY: QP, window and region are alive and of one PD.
    let ret = unsafe { ibv_bind_mw(qp, bind.mw, &raw mut asked) };
    if ret != 0 {
        // SAFETY: by the contract of `ibv_post_send`, `bad` may be written.
        unsafe { *bad = wr };
    }
    ret
}

macro_rules! sends {
    ($handle:ident, $on:ident, $memory:ident) => {
        impl $handle<'_> {
            /// Sends the bytes as one message, a list's parts in order; `options.imm` makes it a
            /// SEND with immediate data.
            pub fn send(&mut self, local: impl Into<$memory>, options: SendOptions<$on>) -> Result<(), Refused> {
                self.transfer(Transfer::send(options.imm), Given::Used(local.into().into()), options)
            }

            /// Like `send`, with the bytes copied during the call.
            pub fn send_inline(
                &mut self,
                local: impl Into<Addressed>,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.transfer(Transfer::send(options.imm), Given::copied(local.into()), options)
            }

            fn transfer(&mut self, transfer: Transfer, given: Given, options: SendOptions<$on>) -> Result<(), Refused> {
                self.qp.post_op(Request::Transfer(transfer), given, &options.on_rc(), Kept::Memory)
            }
        }
    };
}

macro_rules! writes {
    ($handle:ident, $on:ident) => {
        impl $handle<'_> {
            /// Like [`QueuePair::post_works`], for a list that has only operations of this
            /// transport.
            #[inline]
            pub fn post_works(&mut self, works: &mut WorkList<$on>) -> SendOutcome {
                self.qp.post_list(works)
            }

            /// RDMA WRITE of the buffer's bytes, a list's parts in order, to the peer's memory.
            /// With `options.imm` it also takes one of the peer's receives, which completes with
            /// the immediate data and no bytes.
            pub fn write(
                &mut self,
                local: impl Into<Buffer>,
                to: Remote,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.transfer(Transfer::write(to, options.imm), Given::Used(local.into()), options)
            }

            /// Like `write`, with the bytes copied during the call.
            pub fn write_inline(
                &mut self,
                local: impl Into<Addressed>,
                to: Remote,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.transfer(Transfer::write(to, options.imm), Given::copied(local.into()), options)
            }

            /// A send that also invalidates an R_Key of the receiver, whose completion names the
            /// key. `options.imm` is not sent: both use the same field.
            pub fn send_with_invalidate(
                &mut self,
                local: impl Into<Buffer>,
                rkey: u32,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.transfer(Transfer::SendWithInvalidate { rkey }, Given::Used(local.into()), options)
            }

            /// Invalidates an R_Key of this side.
            pub fn local_invalidate(&mut self, rkey: u32, options: SendOptions<$on>) -> Result<(), Refused> {
                let request = Request::LocalInvalidate { rkey };
                self.qp.post_op(request, Given::Used(Buffer::Empty), &options.on_rc(), Kept::Memory)
            }

            /// Binds a window to a part of a region that was registered with [`Access::MW_BIND`];
            /// an empty part unbinds a window of type 1 (type 2: invalidate it). Once the
            /// completion has come, peers may use [`MemoryWindow::remote`]. A failed bind leaves
            /// the window as it was; it can be bound again.
            pub fn bind_window(
                &mut self,
                window: &mut MemoryWindow,
                slice: PeerSlice,
                access: Access,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.qp.bind_window(window, slice, access, &options.on_rc())
            }
        }
    };
}

sends!(RcQp, OnRc, Buffer);
sends!(UcQp, OnUc, Buffer);
// Signature keys exist for connections only.
sends!(UdQp, OnUd, Addressed);
writes!(RcQp, OnRc);
writes!(UcQp, OnUc);

impl RcQp<'_> {
    /// Like [`QueuePair::post_send_with`], with options that include a fence.
    #[inline]
    pub fn post_send_with(
        &mut self,
        batch: &mut Batch,
        options: impl FnMut(usize, &Packet) -> SendOptions,
    ) -> SendOutcome {
        self.qp.post_send_any(batch, Some(options))
    }

    /// Configures a signature key (`mlx5dv_wr_mkey_configure(3)`), on a QP created for it
    /// ([`QpSpec::signature`](crate::QpSpec::signature)). The configuration applies from the next
    /// work request on. The layout's regions are kept registered until another layout is known to
    /// have replaced it, the key was invalidated, or is gone. A replaced layout comes back with the
    /// completion, to be used again ([`OpDone::Layout`](crate::rdma::OpDone::Layout)).
    pub fn configure_key(
        &mut self,
        key: &mut SignatureKey,
        config: KeyConfig,
        options: SendOptions,
    ) -> Result<(), RefusedKey> {
        self.qp.configure_key(key, config, &options)
    }

    /// Invalidates a signature key of this side: it is unusable until it is configured.
    pub fn invalidate_key(&mut self, key: &SignatureKey, options: SendOptions) -> Result<(), Refused> {
        let kept = |_| Kept::Configuration(PostedConfiguration::of_invalidation(&key.inner));
        self.qp.post_op(Request::LocalInvalidate { rkey: key.lkey() }, Given::Used(Buffer::Empty), &options, kept)
    }

    /// RDMA READ of the peer's memory into the buffer, of the buffer's length. A list's parts are
    /// filled in order.
    pub fn read(&mut self, local: impl Into<Buffer>, from: Remote, options: SendOptions) -> Result<(), Refused> {
        self.transfer(Transfer::Read { from, on: OnRc }, Given::Used(local.into()), options)
    }

    /// Compares the peer's eight bytes with `compare` and, if equal, replaces them by `swap`. The
    /// previous value comes back in the eight-byte buffer, in this machine's byte order. The
    /// address must be a multiple of 8.
    pub fn compare_swap(
        &mut self,
        local: impl Into<Addressed>,
        at: Remote,
        compare: u64,
        swap: u64,
        options: SendOptions,
    ) -> Result<(), Refused> {
        self.atomic(Atomic::CompareSwap { at, compare, swap }, local.into(), &options)
    }

    /// Adds to the peer's eight bytes, wrapping. The previous value comes back as from
    /// [`RcQp::compare_swap`].
    pub fn fetch_add(
        &mut self,
        local: impl Into<Addressed>,
        at: Remote,
        add: u64,
        options: SendOptions,
    ) -> Result<(), Refused> {
        self.atomic(Atomic::FetchAdd { at, add }, local.into(), &options)
    }

    fn atomic(&mut self, atomic: Atomic, into: Addressed, options: &SendOptions) -> Result<(), Refused> {
        self.qp.post_op(Request::Atomic(atomic), Given::Used(into.into()), options, Kept::Memory)
    }
}
