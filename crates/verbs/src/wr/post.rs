//! Outcomes of posting: how much of a batch was taken, and why it stopped.

use verbline_mem::Packet;
use verbline_softnic::qp_table::{State as QpState, Transport};

use crate::errno::Errno;
use crate::signature::{BadBlock, NotBuilt};
use crate::wr::connected::{Carrier, OnRc};

/// The destination of a UD send: an entry of the QP's destination table
/// ([`crate::QueuePair::add_destination`]). The default is entry 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DestinationId(pub(crate) u16);

/// Options of a work request on a transport ([`OnRc`], [`OnUc`](crate::rdma::OnUc),
/// [`OnUd`](crate::rdma::OnUd)) or on any of them ([`OnAny`](crate::rdma::OnAny)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SendOptions<T: Carrier = OnRc> {
    /// Immediate data, host order; the receiver finds it in the completion.
    pub imm: Option<u32>,
    /// Wake a receiver that armed its CQ for solicited completions only.
    pub solicited: bool,
    /// Start only when every earlier READ and atomic of this QP is done: a `bool` on RC.
    pub fence: T::Fence,
    /// Request a completion, whatever the QP's `signal_every_wr`.
    pub signaled: bool,
    /// The destination (UD).
    pub destination: DestinationId,
    /// Keep the packet in the queue until its completion returns it: it does not go inline, however
    /// short it is.
    pub comes_back: bool,
}

impl<T: Carrier> SendOptions<T> {
    /// The same options on RC, which has all of them.
    #[inline]
    pub(crate) fn on_rc(self) -> SendOptions {
        let SendOptions { imm, solicited, fence, signaled, destination, comes_back } = self;
        SendOptions { imm, solicited, fence: fence.into(), signaled, destination, comes_back }
    }
}

/// The outcome of posting a batch to the SQ.
#[must_use = "packets that were not posted are still in the batch"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SendOutcome {
    /// Packets taken from the front of the batch.
    pub posted: usize,
    /// The packets among them that went inline and are already back in their pool.
    pub inlined: usize,
    /// Why the rest stayed in the batch; `None` if all were posted.
    pub stop: Option<PostStop>,
}

/// The outcome of posting a batch to an RQ.
#[must_use = "packets that were not posted are still in the batch"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecvOutcome {
    /// Packets taken from the front of the batch.
    pub posted: usize,
    /// Why the rest stayed in the batch; `None` if all were posted.
    pub stop: Option<PostStop>,
}

/// A lone packet that was not posted.
#[derive(Debug)]
pub struct Unposted {
    /// The packet; `None` if the device's refusal leaves open whether it took the packet.
    pub packet: Option<Packet>,
    /// The reason.
    pub stop: PostStop,
}

/// Why a packet was not posted. It and all packets behind it stayed in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostStop {
    /// The queue is full: backpressure, not an error. Completions free slots.
    #[error("the queue is full; poll its CQ and post the rest again")]
    Full,
    /// The QP's state does not permit posting.
    #[error("the QP is in {0}, where nothing can be posted to this queue; bring it to RTS (INIT for receives) first")]
    NotReady(QpState),
    /// The packet's pool is not registered where the QP can reach it. Inline data, which is copied,
    /// and a packet without bytes need no registration.
    #[error("{}", not_registered(*packet_pd, *qp_pd))]
    NotRegistered {
        /// The PD of the packet's pool; 0 when the pool is registered nowhere.
        packet_pd: u64,
        /// The QP's PD.
        qp_pd: u64,
    },
    /// The data exceeds the longest message.
    #[error(
        "the packet is {len_bytes} bytes and one message of this QP is at most {max_bytes} (on UD, the port's MTU)"
    )]
    TooLong {
        /// The packet's length.
        len_bytes: usize,
        /// The longest message.
        max_bytes: u32,
    },
    /// A UD send to an entry that the destination table does not have.
    #[error("the QP has no destination {0}; set one with set_destination or add_destination")]
    NoDestination(u16),
    /// The transport does not support this.
    #[error("{0} has no {1}")]
    NotOn(Transport, &'static str),
    /// A scatter/gather list has more non-empty parts than the queue's work requests have entries.
    #[error(
        "the scatter/gather list has {sges} parts with bytes and a work request here takes {max_sge}: as many as the \
         QP's max_send_sge, for receives its max_recv_sge or the SRQ's max_sge"
    )]
    TooManySges {
        /// The list's non-empty parts.
        sges: usize,
        /// The queue's limit.
        max_sge: u32,
    },
    /// A packet posted for receiving although receives are lists, or a list although they are
    /// packets.
    #[error("{}", other_receives(*lists))]
    OtherReceives {
        /// Whether the queue's receives are lists.
        lists: bool,
    },
    /// The data is too long to go inline.
    #[error("{len_bytes} bytes cannot go inline: this QP takes {max_bytes}")]
    NotInline {
        /// The data's length.
        len_bytes: usize,
        /// The QP's limit.
        max_bytes: u32,
    },
    /// An atomic works on eight bytes.
    #[error("an atomic takes a result buffer of exactly 8 bytes, not {0}")]
    NotEightBytes(usize),
    /// The signature key cannot be configured in this way.
    #[error("the signature key can't be configured so: {0}")]
    NotKey(&'static str),
    /// The operation names a region or a window that the QP does not keep, or uses it wrongly.
    #[error("the operation names memory that the QP does not keep so: {0}")]
    NotKept(&'static str),
    /// One of the blocks that the response waits for is bad.
    #[error("the response is not sent: {0}")]
    BadBlock(BadBlock),
    /// The QP takes its receives from an SRQ.
    #[error("the QP takes its receives from an SRQ; post them there")]
    UsesSrq,
    /// The device refused this work request.
    #[error("the device refused the work request: {0}")]
    Device(Errno),
}

/// The key of the packet's pool, if the pool is registered on this PD.
pub(crate) fn registered_lkey(packet: &Packet, pd_id: u64) -> Result<u32, PostStop> {
    match packet.pd_id() {
        packet_pd if packet_pd != pd_id => Err(PostStop::NotRegistered { packet_pd, qp_pd: pd_id }),
        _ => Ok(packet.lkey()),
    }
}

/// The cached key of the last packets' pool. Consecutive packets are mostly of one pool, so the key
/// is looked up when the pool changes; a pool has one key, and its number is never another pool's.
#[derive(Clone, Copy)]
pub(crate) struct PoolKey {
    pd_id: u64,
    /// The pool's number; 0 at first.
    pool: u64,
    lkey: u32,
}

impl PoolKey {
    /// A cache for packets whose pools are registered on this PD.
    pub(crate) fn new(pd_id: u64) -> PoolKey {
        PoolKey { pd_id, pool: 0, lkey: 0 }
    }

    /// The packet's key, if its pool is registered on the PD.
    #[inline]
    pub(crate) fn lkey(&mut self, packet: &Packet) -> Result<u32, PostStop> {
        if packet.pool_id() == self.pool { Ok(self.lkey) } else { self.look_up(packet) }
    }

    #[cold]
    fn look_up(&mut self, packet: &Packet) -> Result<u32, PostStop> {
        self.lkey = registered_lkey(packet, self.pd_id)?;
        self.pool = packet.pool_id();
        Ok(self.lkey)
    }
}

fn not_registered(packet_pd: u64, qp_pd: u64) -> String {
    match packet_pd {
        0 => format!("the packet's pool is not registered; call register_pool of PD {qp_pd} with it"),
        other => format!("the packet's pool is registered on PD {other}, the QP is on PD {qp_pd}"),
    }
}

fn other_receives(lists: bool) -> &'static str {
    match lists {
        true => {
            "receives here are scatter/gather lists (the QP's max_recv_sge or the SRQ's max_sge is above 1): \
             post_recv_scatter posts them"
        }
        false => {
            "receives here are packets; a max_recv_sge of the QP, or a max_sge of the SRQ, above 1 makes them \
             scatter/gather lists"
        }
    }
}

impl PostStop {
    /// Converts a verb's result: a device that is out of slots returns ENOMEM (ibv_post_send(3)).
    pub(crate) fn of_device(ret: i32) -> PostStop {
        match Errno::of_return(ret) {
            Some(errno) if errno.raw() == libc::ENOMEM => PostStop::Full,
            Some(errno) => PostStop::Device(errno),
            None => PostStop::Full,
        }
    }

    /// Converts the reason why a signature key cannot be configured.
    pub(crate) fn of_key(reason: NotBuilt) -> PostStop {
        match reason {
            NotBuilt::OtherPd { layout_pd, key_pd } => PostStop::NotRegistered { packet_pd: layout_pd, qp_pd: key_pd },
            NotBuilt::Because(says) => PostStop::NotKey(says),
        }
    }

    /// Whether posting again later can succeed without any other change.
    pub fn is_backpressure(&self) -> bool {
        matches!(self, PostStop::Full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do() {
        assert_eq!(
            PostStop::NotRegistered { packet_pd: 0, qp_pd: 7 }.to_string(),
            "the packet's pool is not registered; call register_pool of PD 7 with it"
        );
        assert_eq!(PostStop::NotOn(Transport::Ud, "RDMA READ").to_string(), "UD has no RDMA READ");
        assert!(PostStop::of_device(libc::ENOMEM).is_backpressure());
        assert!(!PostStop::of_device(libc::EINVAL).is_backpressure());
    }
}
