//! A port of a plan.

use std::net::SocketAddr;
use std::time::Duration;

use crate::choices::{Destination, Group, Placement, Transport};
use crate::diag::source::Span;
use crate::ids::{DeviceId, LcoreId, PoolId, PortId, Target};
use crate::text::params::Params;

/// `[port.NAME]`: one queue pair, or many connections with one each.
#[derive(Debug, Clone)]
pub struct Port {
    /// Its own id.
    pub id: PortId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// The lcore that owns it.
    pub lcore: LcoreId,
    /// Its device, which the lcore's completion queue belongs to.
    pub device: DeviceId,
    /// The pool of its receive buffers; present if it receives.
    pub pool: Option<PoolId>,
    /// The queue pair's type.
    pub transport: Transport,
    /// The multicast groups to receive; UD only.
    pub join: Vec<Group>,
    /// The destination of its sends: on RC and UC always a peer or an address.
    pub destination: Destination,
    /// The groups that it sends to, that of `destination` first; UD only.
    pub send_to: Vec<Group>,
    /// The most senders that it knows at once, and so can answer; UD only.
    pub senders_max: u32,
    /// All addresses that it connects to, that of `destination` first; empty if it does not
    /// connect.
    pub connect_to: Vec<SocketAddr>,
    /// How long the start of a run waits for a connection by address.
    pub connect_timeout: Duration,
    /// Whether a lost connection by address is reconnected; false without an address.
    pub reconnect: bool,
    /// The shared settings of many connections, each with a queue pair of its own; `None`: the port
    /// has one queue pair.
    pub connections: Option<Connections>,
    /// The acceptor that decides about connection requests; `None`: all are accepted while there is
    /// room.
    pub acceptor: Option<Acceptor>,
    /// Private data of its connection requests; ports that connect only.
    pub private_data: String,
    /// Receive work requests kept posted, a queue pair; 0 with a shared receive queue.
    pub rx_depth_wr: u32,
    /// Send work requests that may be outstanding, a queue pair.
    pub tx_depth_wr: u32,
    /// One-sided operations that may be under way beside the sends, a queue pair; 0: the port
    /// carries out none.
    pub ops_depth_wr: u32,
    /// The most scatter/gather parts of an operation's memory.
    pub max_sge: u32,
    /// Memory windows that its operations may bind, a queue pair.
    pub windows: u32,
    /// Signature keys through which its operations check blocks while they move, a queue pair.
    pub signature_keys: u32,
    /// Whether received packets carry their immediate data, as their mark.
    pub immediates: bool,
    /// Inline data that the device is asked for.
    pub inline_bytes: u32,
    /// Every n-th send is signaled: 1 to `tx_depth_wr`, or 0 if `tx_depth_wr` is 0.
    pub signal_every_wr: u32,
    /// Whether every send is solicited, and so wakes a peer with `unsolicited_wait`.
    pub solicited: bool,
    /// Whether packets choose options of their sends.
    pub send_options: bool,
    /// The target of packets that ask to come back once sent.
    pub sent: Option<Target>,
    /// When the queue pair retries, and when it gives up; RC only.
    pub retries: Option<Retries>,
    /// Further attributes of its queue pairs.
    pub attributes: Attributes,
    /// An alternate path to its peer, for when the first fails; RC only.
    pub alternate: Option<AlternatePath>,
    /// Whether received packets carry the time of the turn that received them. If not, a turn in
    /// which no stage asks for the time reads no clock.
    pub timestamps: bool,
    /// The target of received packets; present if it receives.
    pub next: Option<Target>,
    /// The capacity of the pending batch: large enough that no output on this lcore overflows it; 0
    /// without a send queue.
    pub batch_packets: u32,
    /// The places of its queue pairs' attributes in the plan, by key.
    pub(crate) said: Vec<(&'static str, Span)>,
}

/// When a reliable connection retries, and when it gives up, in the codes of ibv_modify_qp(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How long it waits for an ACK: 4.096 µs × 2^timeout, 0 is forever. `None`: 14, or the
    /// connection manager's value for the path.
    pub timeout: Option<u8>,
    /// How often it retries without an ACK.
    pub retry_cnt: u8,
    /// How often it retries to a peer without a posted receive; 7 is forever.
    pub rnr_retry: u8,
    /// How long its peer waits before it retries to this end.
    pub min_rnr_timer: u8,
}

/// Attributes of a port's queue pairs, by their names in ibv_modify_qp(3). `None`: the plan leaves
/// the attribute out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The traffic class of its packets: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: Option<u8>,
    /// Hops before a packet is dropped; ports without an address only.
    pub hop_limit: Option<u8>,
    /// The service level, the priority on Ethernet; ports without an address only.
    pub service_level: Option<u8>,
    /// The most data of a packet, in bytes: 256 to 4096, a power of two; ports with a `peer` only.
    pub path_mtu_bytes: Option<u32>,
    /// The P_Key; ports without an address only.
    pub pkey: Option<u16>,
    /// The Q_Key, also that of groups that it sends to; UD only.
    pub qkey: u32,
    /// READs and atomics that this side has under way at once; RC only.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics of its peer that it serves at once; RC only.
    pub max_dest_rd_atomic: Option<u8>,
    /// The highest rate of a queue pair, if its device paces the transport.
    pub rate_limit_kbit_per_s: Option<u32>,
}

/// An alternate path to the same peer, by the attributes of ibv_modify_qp(3) that begin with
/// `alt_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlternatePath {
    /// The peer's GID on this path.
    pub gid: [u8; 16],
    /// The peer's LID on this path; 0 on Ethernet.
    pub lid: u16,
    /// The own device's port of this path; `None`: that of the first path.
    pub port_num: Option<u8>,
    /// The own GID index of this path; `None`: that of the first path.
    pub gid_index: Option<u8>,
    /// The P_Key of this path; `None`: the one at index 0.
    pub pkey: Option<u16>,
    /// How long it waits for an ACK on this path; `None`: as long as on the first path.
    pub timeout: Option<u8>,
}

/// Settings of a port with many connections that all of them share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    /// The most connections at once.
    pub max: u32,
    /// Receives kept posted in the shared receive queue; 0: each connection has a queue of its own.
    pub rx_shared_wr: u32,
    /// Send work requests of all connections that may be outstanding.
    pub tx_shared_wr: u32,
    /// The port whose listener this one shares; `None`: it has its own.
    pub listen_with: Option<PortId>,
    /// The rule by which the ports that share this one's listener get connections.
    pub placement: Placement,
    /// One-sided operations of all connections that may be under way.
    pub ops_shared_wr: u32,
}

/// The acceptor of a port's connections, and its parameters.
#[derive(Debug, Clone)]
pub struct Acceptor {
    /// The name in `acceptor = "…"`.
    pub name: String,
    /// Its parameters.
    pub params: Params,
}
