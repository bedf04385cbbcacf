//! A connection as its manager knows it, and what programs say and hear of one.

use crate::cm::address::{IP_HEADER_BYTES, IpHeader, PortSpace, gid_of};
use crate::cm::bits::padded;
use crate::cm::mad::{MadError, Message};
use crate::cm::notices::Reject;
use crate::cm::reply::{REPLY_DATA_BYTES, Reply};
use crate::cm::request::{Path, Request};
use crate::transport::Mtu;
use crate::wire::{DEFAULT_PKEY, Psn, Qpn};
use std::net::IpAddr;

/// What a manager sets aside, and how long it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in all states: at most 65,536.
    pub connections: usize,
    /// Requests of one address that are not yet connections, or no longer: those that are about to
    /// end, or whose numbers rest, have places too.
    pub half_open_per_source: usize,
    /// Answers that wait to be sent to those who have no connection.
    pub answers: usize,
    /// How long an answer is waited for: 4.096 µs · 2^n.
    pub timeout: u8,
    /// How often a message is repeated.
    pub retries: u8,
    /// How long a program may take to accept, reject or establish.
    pub decide_ns: u64,
    /// How long the numbers of a connection that has ended are not used again.
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

/// A connection of a manager: never another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// Its number in messages.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Somebody asks for one: accept or reject it.
    Requested(ConnectionId, Request),
    /// Ours was accepted: establish or reject it.
    Replied(ConnectionId, Reply),
    /// It can be used. The one who asked knows without.
    Established(ConnectionId),
    /// It was rejected, and is gone.
    Rejected(ConnectionId, Reject),
    /// No answer came, or the program gave none in time, and it is gone.
    Unanswered(ConnectionId),
    /// It has ended.
    Disconnected(ConnectionId),
}

/// Why no connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no room.
    #[error("all {connections} connections of the manager are in use or in time-wait")]
    Full {
        /// How many there may be.
        connections: usize,
    },
    /// IPv4 on one side and IPv6 on the other.
    #[error("the two addresses are of different families")]
    Families,
}

/// There is no such connection, or it is in no state for this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection {number:#x} is gone, or in no state for this")]
pub struct NoSuchConnection {
    /// Its number.
    pub number: u32,
}

/// Why a message was discarded. Some are answered all the same, by one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CmDiscard {
    /// It is no message.
    #[error(transparent)]
    Mad(#[from] MadError),
    /// It is about no connection with its sender.
    #[error("the message is about no connection with its sender")]
    NoConnection,
    /// It comes again, or too late.
    #[error("the message came before, or comes too late")]
    Duplicate,
    /// It asks for a connection, and got a rejection with this [reason](crate::cm::reason).
    #[error("the request was rejected with reason {0}")]
    Rejected(u16),
}

/// A request for a connection, as a program makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Whom to ask.
    pub to: IpAddr,
    /// What to say; the numbers of the connection are filled in.
    pub request: Request,
}

/// The number of 4.096 µs · 2^n that an acknowledgement may take: 67 ms.
const ACK_TIMEOUT: u8 = 14;
/// 10 Gbit/s, which nobody looks at.
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

    /// The same request, at the port of that number in this space.
    #[must_use]
    pub fn in_space(mut self, space: PortSpace) -> Connect {
        if let Some((_, port)) = self.request.port() {
            self.request.service = space.service_of_port(port);
            self.request.service_type = space.service_type();
        }
        self
    }
}

/// How a request is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// What to say; the numbers of the connection are filled in.
    pub reply: Reply,
}

impl Accept {
    /// A reply, with as much of the program's data as fits.
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

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// REQ was sent.
    Requesting,
    /// REP has come, and the program is to say what it thinks.
    Replied,
    /// REQ has come, and the program is to say what it thinks.
    Requested,
    /// REP was sent.
    Accepting,
    Established,
    /// DREQ was sent.
    Disconnecting,
    TimeWait,
    /// Over: its place is free once its last message was sent and its events were polled.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: u32,
    pub(crate) peer: IpAddr,
    pub(crate) remote_id: u32,
    pub(crate) remote_qpn: Qpn,
    pub(crate) transaction: u64,
    pub(crate) state: State,
    /// What was said last, to be said again.
    pub(crate) message: Option<Message>,
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) tries_left: u8,
    /// Events that were not polled.
    pub(crate) unpolled: u8,
    /// This end's device, as the other was told.
    pub(crate) ca_guid: u64,
    pub(crate) is_passive: bool,
}
