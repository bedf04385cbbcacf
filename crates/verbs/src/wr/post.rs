//! Outcomes of posting: how much of a batch was taken, and what stopped it.

use verbline_mem::Packet;
use verbline_softnic::qp_table::State as QpState;

use crate::errno::Errno;
use crate::signature::{BadBlock, NotBuilt};
use crate::transport::Transport;
use crate::wr::connected::{Carrier, OnRc};

/// Where a UD send goes: an entry of the QP's destination table
/// ([`crate::QueuePair::add_destination`]). The default is entry 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct DestinationId(pub(crate) u16);

/// What a work request asks for, on a transport ([`OnRc`], [`OnUc`](crate::rdma::OnUc),
/// [`OnUd`](crate::rdma::OnUd)) or on any of them ([`OnAny`](crate::rdma::OnAny)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SendOptions<T: Carrier = OnRc> {
    /// Immediate data, host order; the receiver finds it in the completion.
    pub imm: Option<u32>,
    /// Wake a receiver that armed its CQ for solicited completions only.
    pub solicited: bool,
    /// Start only when every earlier READ and atomic of this QP is done: a `bool` on RC.
    pub fence: T::Fence,
    /// Ask for a completion, whatever the QP's `signal_every_wr` says.
    pub signaled: bool,
    /// Where to (UD).
    pub destination: DestinationId,
    /// The packet stays with the queue until it completes, which gives it back: it does not go
    /// inline, however short it is.
    pub comes_back: bool,
}

impl<T: Carrier> SendOptions<T> {
    /// The same on RC, which has all.
    #[inline]
    pub(crate) fn on_rc(self) -> SendOptions {
        let SendOptions { imm, solicited, fence, signaled, destination, comes_back } = self;
        SendOptions { imm, solicited, fence: fence.into(), signaled, destination, comes_back }
    }
}

/// What a batch posted to the SQ came to.
#[must_use = "packets that were not posted are still in the batch"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SendOutcome {
    /// Packets taken from the front of the batch.
    pub posted: usize,
    /// Of these, packets that went inline and are back in their pool already.
    pub inlined: usize,
    /// Why the rest stayed in the batch; `None` when nothing stayed.
    pub stop: Option<PostStop>,
}

/// What a batch posted to an RQ came to.
#[must_use = "packets that were not posted are still in the batch"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecvOutcome {
    /// Packets taken from the front of the batch.
    pub posted: usize,
    /// Why the rest stayed in the batch; `None` when nothing stayed.
    pub stop: Option<PostStop>,
}

/// A lone packet that was not posted.
#[derive(Debug)]
pub struct Unposted {
    /// The packet; `None` when the device refused it in such a way that it may have it all the
    /// same.
    pub packet: Option<Packet>,
    /// Why.
    pub stop: PostStop,
}

/// Why a packet was not posted. It and all behind it stayed in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostStop {
    /// The queue is full: backpressure, not an error. Completions make room.
    #[error("the queue is full; poll its CQ and post the rest again")]
    Full,
    /// The QP is not in a state to post in.
    #[error("the QP is in {0}, where nothing can be posted to this queue; bring it to RTS (INIT for receives) first")]
    NotReady(QpState),
    /// The packet's pool is not registered where the QP can reach it. What goes inline is copied
    /// and needs no registration.
    #[error("{}", not_registered(*packet_pd, *qp_pd))]
    NotRegistered {
        /// The PD of the packet's pool; 0 when the pool is registered nowhere.
        packet_pd: u64,
        /// The QP's PD.
        qp_pd: u64,
    },
    /// Longer than one message can be.
    #[error(
        "the packet is {len_bytes} bytes and one message of this QP is at most {max_bytes} (on UD, the port's MTU)"
    )]
    TooLong {
        /// The packet's length.
        len_bytes: usize,
        /// The most that fits.
        max_bytes: u32,
    },
    /// A UD send to an entry that the destination table does not have.
    #[error("the QP has no destination {0}; set one with set_destination or add_destination")]
    NoDestination(u16),
    /// Something that this transport does not have.
    #[error("{0} has no {1}")]
    NotOn(Transport, &'static str),
    /// A scatter/gather list of more parts with bytes than the queue's work requests have entries.
    #[error(
        "the scatter/gather list has {sges} parts with bytes and a work request here takes {max_sge}: as many as the \
         QP's max_send_sge, for receives its max_recv_sge or the SRQ's max_sge"
    )]
    TooManySges {
        /// Parts with bytes.
        sges: usize,
        /// The queue's limit.
        max_sge: u32,
    },
    /// A packet posted for receiving where receives are lists, or a list where they are packets.
    #[error("{}", other_receives(*lists))]
    OtherReceives {
        /// Whether the queue's receives are lists.
        lists: bool,
    },
    /// Longer than can go inline.
    #[error("{len_bytes} bytes cannot go inline: this QP takes {max_bytes}")]
    NotInline {
        /// The length asked.
        len_bytes: usize,
        /// The QP's limit.
        max_bytes: u32,
    },
    /// An atomic works on eight bytes.
    #[error("an atomic takes a result buffer of exactly 8 bytes, not {0}")]
    NotEightBytes(usize),
    /// A signature key that can't be configured so.
    #[error("the signature key can't be configured so: {0}")]
    NotKey(&'static str),
    /// A region or a window that the QP does not keep as the operation has it.
    #[error("the operation names memory that the QP does not keep so: {0}")]
    NotKept(&'static str),
    /// The response waits for blocks of which one is bad.
    #[error("the response is not sent: {0}")]
    BadBlock(BadBlock),
    /// The QP takes its receives from an SRQ.
    #[error("the QP takes its receives from an SRQ; post them there")]
    UsesSrq,
    /// The device refused this work request.
    #[error("the device refused the work request: {0}")]
    Device(Errno),
}

/// The key of the packet's pool, if that is registered on this PD.
pub(crate) fn registered_lkey(packet: &Packet, pd_id: u64) -> Result<u32, PostStop> {
    match packet.pd_id() {
        packet_pd if packet_pd != pd_id => Err(PostStop::NotRegistered { packet_pd, qp_pd: pd_id }),
        _ => Ok(packet.lkey()),
    }
}

/// The key of the packets that were posted last. They are of one pool most of the time, so it is
/// looked up when the pool changes; a pool has one key, and its number is never another's.
#[derive(Clone, Copy)]
pub(crate) struct PoolKey {
    pd_id: u64,
    /// Which pool the key is of; 0 at first.
    pool: u64,
    lkey: u32,
}

impl PoolKey {
    /// For packets whose pools are to be registered on this PD.
    pub(crate) fn new(pd_id: u64) -> PoolKey {
        PoolKey { pd_id, pool: 0, lkey: 0 }
    }

    /// The packet's key, if it is registered where it must be.
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
    /// What a verb's answer means: a device that is out of slots says ENOMEM (ibv_post_send(3)).
    pub(crate) fn of_device(ret: i32) -> PostStop {
        match Errno::of_return(ret) {
            Some(errno) if errno.raw() == libc::ENOMEM => PostStop::Full,
            Some(errno) => PostStop::Device(errno),
            None => PostStop::Full,
        }
    }

    /// Why a signature key can't be configured so.
    pub(crate) fn of_key(reason: NotBuilt) -> PostStop {
        match reason {
            NotBuilt::OtherPd { layout_pd, key_pd } => PostStop::NotRegistered { packet_pd: layout_pd, qp_pd: key_pd },
            NotBuilt::Because(says) => PostStop::NotKey(says),
        }
    }

    /// Whether posting again later can succeed without anything being changed.
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
