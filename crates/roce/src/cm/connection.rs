//! A connection of a manager, and the requests and events of programs.

use crate::cm::address::{IP_HEADER_BYTES, IpHeader, PortSpace, gid_of};
use crate::cm::bits::padded;
use crate::cm::mad::{MadError, Message};
use crate::cm::notices::Reject;
use crate::cm::reply::{REPLY_DATA_BYTES, Reply};
use crate::cm::request::{Path, Request};
use crate::cm::taken::PeerQueuePair;
use crate::transport::Mtu;
use crate::wire::{DEFAULT_PKEY, Psn, Qpn};
use std::net::IpAddr;

/// A manager's capacity and time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in all states: at most 65,536.
    pub connections: usize,
    /// Half-open connections of one address: not yet established, ending, or with numbers that
    /// rest. All of these occupy places.
    pub half_open_per_source: usize,
    /// Answers that wait to be sent to peers without a connection.
    pub answers: usize,
    /// How long to wait for an answer: 4.096 µs · 2^n.
    pub timeout: u8,
    /// How often a message is repeated.
    pub retries: u8,
    /// How long a program may take to accept, reject or establish.
    pub decide_ns: u64,
    /// How long the numbers of an ended connection rest before they are used again.
    pub time_wait_ns: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1024,
            half_open_per_source: 64,
            answers: 64,
            timeout: 16,
            retries: 15,
            decide_ns: 5_000_000_000,
            time_wait_ns: 1_000_000_000,
        }
    }
}

/// The handle of a connection, valid for its manager only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// Its number in messages.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// An event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A peer requests a connection: accept or reject it.
    Requested(ConnectionId, Request),
    /// The peer accepted our request: establish or reject the connection.
    Replied(ConnectionId, Reply),
    /// The connection can be used. The active side gets no such event.
    Established(ConnectionId),
    /// The peer rejected the connection, or its reply was rejected for it
    /// ([`STALE`](crate::cm::reason::STALE), [`UNSUPPORTED`](crate::cm::reason::UNSUPPORTED)). The
    /// connection is gone.
    Rejected(ConnectionId, Reject),
    /// The peer did not answer, or the program did not decide in time; the connection is gone.
    Unanswered(ConnectionId),
    /// The connection has ended.
    Disconnected(ConnectionId),
}

/// Why a connection is not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no room.
    #[error("all {connections} connections of the manager are in use or in time-wait")]
    Full {
        /// The capacity.
        connections: usize,
    },
    /// IPv4 on one side and IPv6 on the other.
    #[error("the two addresses are of different families")]
    Families,
}

/// The connection is gone, or its state does not allow the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection {number:#x} is gone, or in no state for this")]
pub struct NoSuchConnection {
    /// Its number.
    pub number: u32,
}

/// Why a message was discarded. Some discarded messages are answered all the same, by one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmDiscard {
    /// The bytes are no message.
    #[error(transparent)]
    Mad(#[from] MadError),
    /// The message belongs to no connection with its sender.
    #[error("the message is about no connection with its sender")]
    NoConnection,
    /// The message is a duplicate, or too late.
    #[error("the message came before, or comes too late")]
    Duplicate,
    /// The message requested a connection, and was answered by a rejection with this
    /// [reason](crate::cm::reason).
    #[error("the request was rejected with reason {0}")]
    Rejected(u16),
}

/// A request for a connection, as a program makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The address that gets the request.
    pub to: IpAddr,
    /// The request, without the numbers of the connection, which are filled in.
    pub request: Request,
}

/// The exponent of 4.096 µs · 2^n that an acknowledgement may take: 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// 10 Gbit/s; nobody reads it.
const RATE: u8 = 3;
const HOP_LIMIT: u8 = 64;

impl Connect {
    /// A request for a reliable connection to a port of `rdma_cm`, with as much of the program's
    /// data as fits.
    ///
    /// # Errors
    /// If the addresses are of different families.
    pub fn new(
        from: IpAddr,
        to: IpAddr,
        port: u16,
        qpn: Qpn,
        starting_psn: Psn,
        mtu: Mtu,
        user_data: &[u8],
    ) -> Result<Connect, Refused> {
        let header = IpHeader::new(from, 0, to).ok_or(Refused::Families)?;
        let mut data = padded(&header.to_bytes());
        let len = user_data.len().min(data.len() - IP_HEADER_BYTES);
        data[IP_HEADER_BYTES..][..len].copy_from_slice(&user_data[..len]);
        let path = Path {
            local_gid: gid_of(from),
            remote_gid: gid_of(to),
            flow_label: 0,
            rate: RATE,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            service_level: 0,
            ack_timeout: ACK_TIMEOUT,
        };
        let request = Request {
            local_id: 0,
            service: PortSpace::Reliable.service_of_port(port),
            ca_guid: 0,
            qpn,
            responder_resources: 16,
            initiator_depth: 16,
            remote_response_timeout: 0,
            service_type: PortSpace::Reliable.service_type(),
            flow_control: false,
            starting_psn,
            local_response_timeout: 0,
            retry_count: 7,
            pkey: DEFAULT_PKEY,
            mtu,
            rnr_retry: 7,
            cm_retries: 0,
            shared_receives: false,
            path,
            data,
        };
        Ok(Connect { to, request })
    }

    /// Moves the request to the port of that number in this space.
    #[must_use]
    pub fn in_space(mut self, space: PortSpace) -> Connect {
        if let Some((_, port)) = self.request.port() {
            self.request.service = space.service_of_port(port);
            self.request.service_type = space.service_type();
        }
        self
    }
}

/// The acceptance of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The reply, without the numbers of the connection, which are filled in.
    pub reply: Reply,
}

impl Accept {
    /// Makes a reply, with as much of the program's data as fits.
    pub fn new(qpn: Qpn, starting_psn: Psn, data: &[u8]) -> Accept {
        Accept {
            reply: Reply {
                local_id: 0,
                remote_id: 0,
                qpn,
                starting_psn,
                responder_resources: 16,
                initiator_depth: 16,
                ack_delay: 0,
                flow_control: false,
                rnr_retry: 7,
                shared_receives: false,
                ca_guid: 0,
                data: padded::<REPLY_DATA_BYTES>(data),
            },
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// REQ was sent.
    Requesting,
    /// REP was received, and the program is to establish or reject.
    Replied,
    /// REQ was received, and the program is to accept or reject.
    Requested,
    /// REP was sent.
    Accepting,
    Established,
    /// DREQ was sent.
    Disconnecting,
    TimeWait,
    /// Over: the place is free once its last message was sent and its events were polled.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: u32,
    pub(crate) peer: IpAddr,
    pub(crate) remote_id: u32,
    /// The peer's queue pair, and the name of its device: zeros until the peer has said them.
    pub(crate) remote_qpn: Qpn,
    pub(crate) remote_guid: u64,
    /// This end's queue pair; the passive end has none before it accepts.
    pub(crate) own_qpn: Option<Qpn>,
    pub(crate) transaction: u64,
    pub(crate) state: State,
    /// The last message, for repetitions.
    pub(crate) message: Option<Message>,
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) tries_left: u8,
    /// The peer has asked for more time to answer the last message.
    pub(crate) is_prolonged: bool,
    /// The number of events not yet polled.
    pub(crate) unpolled: u8,
    /// This end's device, as the peer knows it.
    pub(crate) ca_guid: u64,
    pub(crate) is_passive: bool,
}

impl Connection {
    pub(crate) fn queue_pair(&self) -> PeerQueuePair {
        (self.peer, self.remote_guid, self.remote_qpn.number())
    }
}
