//! One-sided and special work requests, for those who need more than packets: RDMA WRITE and READ,
//! atomics, invalidation.
//!
//! A typed handle ([`RcQp`], [`UcQp`], [`UdQp`]) has only what its transport carries (table in
//! ibv_post_send(3)), so that a READ on UC or an atomic on UD does not compile. The memory that a
//! work request uses moves into the QP with it and comes back from [`QueuePair::op_done`]; no one
//! can read, write or free it meanwhile. It is one packet, one slice, or a list of them
//! ([`SgList`](crate::expert::SgList)): a message gathered from several places, or what a READ
//! brings scattered over them, without a copy.

use rdma_sys::{atomic_t, bind_mw_t, ibv_mw, ibv_mw_bind_info, ibv_send_wr, ibv_wr_opcode, rdma_t};

use crate::memory::mr::Access;
use crate::memory::peer::{PeerSlice, Remote};
use crate::memory::window::{MemoryWindow, PostedBind};
use crate::qp::QueuePair;
use crate::signature::{KeyConfig, RefusedKey, SignatureKey};
use crate::wr::buffer::{Buffer, Refused};
use crate::wr::post::{SendOptions, SendOutcome};
use crate::wr::send::Direction;

/// What a slot of the SQ keeps for a work request that is not a packet of a batch.
pub(crate) struct Kept {
    /// Goes back to the user.
    pub(crate) buffer: Buffer,
    /// For a bind: the window, and what it was bound to before.
    pub(crate) bind: Option<PostedBind>,
}

/// What an [`Op`] does.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Send {
        invalidate: Option<u32>,
    },
    Write {
        to: Remote,
    },
    Read {
        from: Remote,
    },
    CompareSwap {
        at: Remote,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        at: Remote,
        add: u64,
    },
    LocalInvalidate {
        rkey: u32,
    },
    /// Of a type 2 window. The memory to bind to is the work request's buffer, but no bytes move.
    BindWindow {
        window: *mut ibv_mw,
        rkey: u32,
        info: ibv_mw_bind_info,
    },
}

/// A work request, without its memory.
pub(crate) struct Op {
    pub(crate) verb: Verb,
    pub(crate) options: SendOptions,
    pub(crate) inline: bool,
}

impl Op {
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self.verb, Verb::CompareSwap { .. } | Verb::FetchAdd { .. })
    }

    /// Whether the buffer's bytes are read or written.
    pub(crate) fn moves_bytes(&self) -> bool {
        !matches!(self.verb, Verb::BindWindow { .. } | Verb::LocalInvalidate { .. })
    }

    /// Fills in opcode, immediate data and the remote side.
    pub(crate) fn write(&self, wr: &mut ibv_send_wr) {
        // Written though most opcodes don't read it: the place is used again, and rxe refuses a
        // bind that finds the key of an invalidation there.
        wr.imm_data_invalidated_rkey_union.imm_data = self.options.imm.unwrap_or(0).to_be();
        let with_imm = self.options.imm.is_some();
        wr.opcode = match self.verb {
            Verb::Send { invalidate: None } if with_imm => ibv_wr_opcode::IBV_WR_SEND_WITH_IMM,
            Verb::Send { invalidate: None } => ibv_wr_opcode::IBV_WR_SEND,
            Verb::Send { invalidate: Some(rkey) } => {
                wr.imm_data_invalidated_rkey_union.invalidated_rkey = rkey;
                ibv_wr_opcode::IBV_WR_SEND_WITH_INV
            }
            Verb::Write { to } => {
                wr.wr.rdma = rdma_t { remote_addr: to.addr, rkey: to.rkey };
                match with_imm {
                    true => ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
                    false => ibv_wr_opcode::IBV_WR_RDMA_WRITE,
                }
            }
            Verb::Read { from } => {
                wr.wr.rdma = rdma_t { remote_addr: from.addr, rkey: from.rkey };
                ibv_wr_opcode::IBV_WR_RDMA_READ
            }
            Verb::CompareSwap { at, compare, swap } => {
                wr.wr.atomic = atomic_t { remote_addr: at.addr, compare_add: compare, swap, rkey: at.rkey };
                ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
            }
            Verb::FetchAdd { at, add } => {
                wr.wr.atomic = atomic_t { remote_addr: at.addr, compare_add: add, swap: 0, rkey: at.rkey };
                ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD
            }
            Verb::LocalInvalidate { rkey } => {
                wr.imm_data_invalidated_rkey_union.invalidated_rkey = rkey;
                ibv_wr_opcode::IBV_WR_LOCAL_INV
            }
            Verb::BindWindow { window, rkey, info } => {
                wr.bind_mw_tso_union.bind_mw = bind_mw_t { mw: window, rkey, bind_info: info };
                ibv_wr_opcode::IBV_WR_BIND_MW
            }
        };
    }
}

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

impl<'q> RcQp<'q> {
    pub(crate) fn new(qp: &'q mut QueuePair) -> RcQp<'q> {
        RcQp { qp }
    }
}

impl<'q> UcQp<'q> {
    pub(crate) fn new(qp: &'q mut QueuePair) -> UcQp<'q> {
        UcQp { qp }
    }
}

impl<'q> UdQp<'q> {
    pub(crate) fn new(qp: &'q mut QueuePair) -> UdQp<'q> {
        UdQp { qp }
    }
}

macro_rules! sends {
    ($handle:ident) => {
        impl $handle<'_> {
            /// Sends the buffer's bytes, a list's one part after the other, as one message;
            /// `options.imm` makes it a SEND with immediate data.
            pub fn send(&mut self, local: impl Into<Buffer>, options: SendOptions) -> Result<(), Refused> {
                self.post(Verb::Send { invalidate: None }, local, options, false)
            }

            /// As `send`, with the bytes copied during the call.
            pub fn send_inline(&mut self, local: impl Into<Buffer>, options: SendOptions) -> Result<(), Refused> {
                self.post(Verb::Send { invalidate: None }, local, options, true)
            }

            fn post(
                &mut self,
                verb: Verb,
                local: impl Into<Buffer>,
                options: SendOptions,
                inline: bool,
            ) -> Result<(), Refused> {
                self.qp.post_op(&Op { verb, options, inline }, local.into())
            }
        }
    };
}

macro_rules! writes {
    ($handle:ident) => {
        impl $handle<'_> {
            /// RDMA WRITE of the buffer's bytes, a list's one part after the other, to the peer's
            /// memory. With `options.imm` it also takes one of the peer's receives, which completes
            /// with the immediate data and no bytes.
            pub fn write(&mut self, local: impl Into<Buffer>, to: Remote, options: SendOptions) -> Result<(), Refused> {
                self.post(Verb::Write { to }, local, options, false)
            }

            /// As `write`, with the bytes copied during the call.
            pub fn write_inline(
                &mut self,
                local: impl Into<Buffer>,
                to: Remote,
                options: SendOptions,
            ) -> Result<(), Refused> {
                self.post(Verb::Write { to }, local, options, true)
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
                options: SendOptions,
            ) -> SendOutcome {
                self.qp.post_transfers(Direction::Write, &options, transfers.into_iter())
            }

            /// A send that also invalidates an R_Key of the receiver; its completion names the key.
            /// `options.imm` is not sent: both use the same field.
            pub fn send_with_invalidate(
                &mut self,
                local: impl Into<Buffer>,
                rkey: u32,
                options: SendOptions,
            ) -> Result<(), Refused> {
                let options = SendOptions { imm: None, ..options };
                self.post(Verb::Send { invalidate: Some(rkey) }, local, options, false)
            }

            /// Invalidates an R_Key of this side.
            pub fn local_invalidate(&mut self, rkey: u32, options: SendOptions) -> Result<(), Refused> {
                let options = SendOptions { imm: None, ..options };
                self.post(Verb::LocalInvalidate { rkey }, Buffer::Empty, options, false)
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
                options: SendOptions,
            ) -> Result<(), Refused> {
                self.qp.bind_window(window, slice, access, options)
            }
        }
    };
}

sends!(RcQp);
sends!(UcQp);
sends!(UdQp);
writes!(RcQp);
writes!(UcQp);

impl RcQp<'_> {
    /// Configures a signature key (`mlx5dv_wr_mkey_configure(3)`), on a QP made for it
    /// ([`QpSpec::signature`](crate::QpSpec::signature)): from the next work request on it is what
    /// the configuration says. Regions of the layout are kept registered until another layout is
    /// known to have taken its place, the key was invalidated, or is gone. A layout that was
    /// replaced comes back with the completion ([`Buffer::Layout`]), to be used again.
    pub fn configure_key(
        &mut self,
        key: &mut SignatureKey,
        config: KeyConfig,
        options: SendOptions,
    ) -> Result<(), RefusedKey> {
        self.qp.configure_key(key, config, SendOptions { imm: None, ..options })
    }

    /// Invalidates a signature key of this side: it stands for nothing until it is configured.
    pub fn invalidate_key(&mut self, key: &SignatureKey, options: SendOptions) -> Result<(), Refused> {
        self.qp.invalidate_key(key, options)
    }

    /// RDMA READ of the peer's memory into the buffer: as many bytes as it is long. A list is
    /// filled one part after the other.
    pub fn read(&mut self, local: impl Into<Buffer>, from: Remote, options: SendOptions) -> Result<(), Refused> {
        self.post(Verb::Read { from }, local, SendOptions { imm: None, ..options }, false)
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
        local: impl Into<Buffer>,
        at: Remote,
        compare: u64,
        swap: u64,
        options: SendOptions,
    ) -> Result<(), Refused> {
        self.post(Verb::CompareSwap { at, compare, swap }, local, SendOptions { imm: None, ..options }, false)
    }

    /// Adds to the peer's eight bytes, wrapping. What was there comes back as from
    /// [`RcQp::compare_swap`].
    pub fn fetch_add(
        &mut self,
        local: impl Into<Buffer>,
        at: Remote,
        add: u64,
        options: SendOptions,
    ) -> Result<(), Refused> {
        self.post(Verb::FetchAdd { at, add }, local, SendOptions { imm: None, ..options }, false)
    }
}
