//! One-sided and special work requests, for those who need more than packets: RDMA WRITE and READ,
//! atomics, invalidation.
//!
//! A typed handle ([`RcQp`], [`UcQp`], [`UdQp`]) has only what its transport carries (table in
//! ibv_post_send(3)), so that a READ on UC, an atomic on UD or a fence on either does not compile.
//! The memory that a work request uses moves into the QP with it and comes back from
//! [`QueuePair::op_done`]; no one can read, write or free it meanwhile. It is one packet, one
//! slice, or a list of them ([`SgList`](crate::expert::SgList)): a message gathered from several
//! places, or what a READ brings scattered over them, without a copy.

use verbline_mem::{Batch, Packet};

use super::{QpError, QueuePair};
use crate::memory::mr::Access;
use crate::memory::peer::{PeerSlice, Remote};
use crate::memory::window::MemoryWindow;
use crate::signature::{KeyConfig, SignatureKey};
use crate::transport::Transport;
use crate::wr::buffer::{Addressed, Buffer, Given, Refused};
use crate::wr::connected::{OnRc, OnUc, OnUd};
use crate::wr::operation::{Atomic, Transfer};
use crate::wr::post::{PostStop, SendOptions, SendOutcome};
use crate::wr::send::{Direction, Op, RefusedKey};
use crate::wr::wr_queue::WorkList;

/// An RC QP: everything.
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
    /// WRITE, READ, atomics and the rest of RC; refused on a QP of another transport.
    #[inline]
    pub fn rc(&mut self) -> Result<RcQp<'_>, QpError> {
        self.check_transport(Transport::Rc)?;
        Ok(RcQp { qp: self })
    }

    /// WRITEs and what else UC carries; refused on a QP of another transport.
    #[inline]
    pub fn uc(&mut self) -> Result<UcQp<'_>, QpError> {
        self.check_transport(Transport::Uc)?;
        Ok(UcQp { qp: self })
    }

    /// Sends of any memory by UD; refused on a QP of another transport.
    pub fn ud(&mut self) -> Result<UdQp<'_>, QpError> {
        self.check_transport(Transport::Ud)?;
        Ok(UdQp { qp: self })
    }

    fn post_op(&mut self, op: Op, given: Given, options: &SendOptions) -> Result<(), Refused> {
        if !self.may_send() {
            return Err(Refused { buffer: given.into_buffer(), reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let posted = unsafe { self.send.post_op(self.post_send, op, given, options) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }

    #[inline]
    fn post_transfers<'a>(
        &mut self,
        direction: Direction,
        options: &SendOptions,
        transfers: impl Iterator<Item = (&'a PeerSlice, Remote)>,
    ) -> SendOutcome {
        if !self.may_send() {
            return SendOutcome { stop: Some(PostStop::NotReady(self.state)), ..SendOutcome::default() };
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let outcome = unsafe { self.send.post_transfers(self.post_send, direction, options, transfers) };
        self.count_refusal(outcome.stop);
        outcome
    }

    fn bind_window(
        &mut self,
        window: &mut MemoryWindow,
        slice: PeerSlice,
        access: Access,
        options: SendOptions,
    ) -> Result<(), Refused> {
        if !self.may_send() {
            return Err(Refused { buffer: slice.into(), reason: PostStop::NotReady(self.state) });
        }
        // SAFETY: the QP is live until drop, and `send` is its send queue.
        let posted = unsafe { self.send.bind_window(self.post_send, window, slice, access, options) };
        posted.inspect_err(|refused| self.count_refusal(Some(refused.reason)))
    }
}

macro_rules! sends {
    ($handle:ident, $on:ident, $memory:ident) => {
        impl $handle<'_> {
            /// Sends the bytes, a list's one part after the other, as one message; `options.imm`
            /// makes it a SEND with immediate data.
            pub fn send(&mut self, local: impl Into<$memory>, options: SendOptions<$on>) -> Result<(), Refused> {
                self.transfer(Transfer::send(options.imm), Given::used(local.into().into()), options)
            }

            /// As `send`, with the bytes copied during the call.
            pub fn send_inline(
                &mut self,
                local: impl Into<Addressed>,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.transfer(Transfer::send(options.imm), Given::copied(local.into()), options)
            }

            fn transfer(&mut self, transfer: Transfer, given: Given, options: SendOptions<$on>) -> Result<(), Refused> {
                self.qp.post_op(Op::Transfer(transfer), given, &options.on_rc())
            }
        }
    };
}

macro_rules! writes {
    ($handle:ident, $on:ident) => {
        impl $handle<'_> {
            /// Posts from the front of the list, in order, as linked lists, until the queue is full
            /// or one is refused: that one is at the front then. What was posted has moved into the
            /// QP, or back to its pool when it was a send that went inline.
            ///
            /// The last of each call completes, and every `signal_every_wr`-th; all of these
            /// completions are [`QueuePair::works_done`]'s.
            #[inline]
            pub fn post_works(&mut self, works: &mut WorkList<$on>) -> SendOutcome {
                self.qp.post_list(works)
            }

            /// RDMA WRITE of the buffer's bytes, a list's one part after the other, to the peer's
            /// memory. With `options.imm` it also takes one of the peer's receives, which completes
            /// with the immediate data and no bytes.
            pub fn write(
                &mut self,
                local: impl Into<Buffer>,
                to: Remote,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.transfer(Transfer::write(to, options.imm), Given::used(local.into()), options)
            }

            /// As `write`, with the bytes copied during the call.
            pub fn write_inline(
                &mut self,
                local: impl Into<Addressed>,
                to: Remote,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.transfer(Transfer::write(to, options.imm), Given::copied(local.into()), options)
            }

            /// RDMA WRITEs of the slices' bytes, as one list. As with sends, every
            /// `signal_every_wr`-th completes, or all with `options.signaled`; a completion stands
            /// for all before it. `options.imm` is not sent.
            ///
            /// What was not posted is `transfers` without its first `posted`. The regions stay
            /// registered until the work requests are done.
            #[inline]
            pub fn write_list<'a>(
                &mut self,
                transfers: impl IntoIterator<Item = (&'a PeerSlice, Remote)>,
                options: SendOptions<$on>,
            ) -> SendOutcome {
                self.qp.post_transfers(Direction::Write, &options.on_rc(), transfers.into_iter())
            }

            /// A send that also invalidates an R_Key of the receiver; its completion names the key.
            /// `options.imm` is not sent: both use the same field.
            pub fn send_with_invalidate(
                &mut self,
                local: impl Into<Buffer>,
                rkey: u32,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.transfer(Transfer::SendWithInvalidate { rkey }, Given::used(local.into()), options)
            }

            /// Invalidates an R_Key of this side.
            pub fn local_invalidate(&mut self, rkey: u32, options: SendOptions<$on>) -> Result<(), Refused> {
                self.qp.post_op(Op::LocalInvalidate { rkey }, Given::used(Buffer::Empty), &options.on_rc())
            }

            /// Binds a window to a part of a region that was registered with [`Access::MW_BIND`]; a
            /// part of no bytes binds one of type 1 to nothing (type 2: invalidate it).
            /// [`MemoryWindow::remote`] is what peers may use once the completion has come. A
            /// window whose bind failed is as it was before, and can be bound again.
            pub fn bind_window(
                &mut self,
                window: &mut MemoryWindow,
                slice: PeerSlice,
                access: Access,
                options: SendOptions<$on>,
            ) -> Result<(), Refused> {
                self.qp.bind_window(window, slice, access, options.on_rc())
            }
        }
    };
}

sends!(RcQp, OnRc, Buffer);
sends!(UcQp, OnUc, Buffer);
// Signature keys are for connections.
sends!(UdQp, OnUd, Addressed);
writes!(RcQp, OnRc);
writes!(UcQp, OnUc);

impl RcQp<'_> {
    /// As [`QueuePair::post_send_with`], with options that have a fence.
    #[inline]
    pub fn post_send_with(
        &mut self,
        batch: &mut Batch,
        options: impl FnMut(usize, &Packet) -> SendOptions,
    ) -> SendOutcome {
        self.qp.post_send_as(batch, options)
    }

    /// Configures a signature key (`mlx5dv_wr_mkey_configure(3)`), on a QP made for it
    /// ([`QpSpec::signature`](crate::QpSpec::signature)): from the next work request on it is what
    /// the configuration says. Regions of the layout are kept registered until another layout is
    /// known to have taken its place, the key was invalidated, or is gone. A layout that was
    /// replaced comes back with the completion, to be used again
    /// ([`OpDone::Layout`](crate::rdma::OpDone::Layout)).
    pub fn configure_key(
        &mut self,
        key: &mut SignatureKey,
        config: KeyConfig,
        options: SendOptions,
    ) -> Result<(), RefusedKey> {
        self.qp.configure_key(key, config, options)
    }

    /// Invalidates a signature key of this side: it stands for nothing until it is configured.
    pub fn invalidate_key(&mut self, key: &SignatureKey, options: SendOptions) -> Result<(), Refused> {
        self.qp.invalidate_key(key, options)
    }

    /// RDMA READ of the peer's memory into the buffer: as many bytes as it is long. A list is
    /// filled one part after the other.
    pub fn read(&mut self, local: impl Into<Buffer>, from: Remote, options: SendOptions) -> Result<(), Refused> {
        self.transfer(Transfer::Read { from, on: OnRc }, Given::used(local.into()), options)
    }

    /// RDMA READs into the slices, as one list: completions and what is left as with
    /// [`RcQp::write_list`].
    #[inline]
    pub fn read_list<'a>(
        &mut self,
        transfers: impl IntoIterator<Item = (&'a PeerSlice, Remote)>,
        options: SendOptions,
    ) -> SendOutcome {
        self.qp.post_transfers(Direction::Read, &options, transfers.into_iter())
    }

    /// Puts `swap` at the peer's eight bytes if `compare` is there. What was there comes back in
    /// the buffer of eight bytes, in this machine's byte order. The address must be a multiple of
    /// 8.
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

    /// Adds to the peer's eight bytes, wrapping. What was there comes back as from
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
        self.qp.post_op(Op::Atomic(atomic), Given::used(into.into()), options)
    }
}
