//! A port as a plan has it.

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
    /// The device that it is on; that of the lcore's completion queue.
    pub device: DeviceId,
    /// Where receive buffers come from; present if it receives.
    pub pool: Option<PoolId>,
    /// The queue pair's type.
    pub transport: Transport,
    /// The multicast groups to receive; UD only.
    pub join: Vec<Group>,
    /// Where the port sends to: on RC and UC always a peer or an address.
    pub destination: Destination,
    /// The groups that it sends to, that of `destination` first; UD only.
    pub send_to: Vec<Group>,
    /// Senders that it knows at once, so that they can be answered; UD only.
    pub senders_max: u32,
    /// Every address that it connects to, that of `destination` first; empty if it does not.
    pub connect_to: Vec<SocketAddr>,
    /// How long the start of a run waits for a connection by address.
    pub connect_timeout: Duration,
    /// Whether a lost connection by address is reconnected; false without an address.
    pub reconnect: bool,
    /// If it may have many connections, each a queue pair of its own.
    pub connections: Option<Connections>,
    /// Who decides about the peers that ask to be connected; `None`: all that there is room for
    /// are.
    pub acceptor: Option<Acceptor>,
    /// What the port tells the listener with its request; of a port that connects.
    pub private_data: String,
    /// Receive work requests kept posted, a queue pair; 0 with a shared receive queue.
    pub rx_depth_wr: u32,
    /// Send work requests that may be outstanding, a queue pair.
    pub tx_depth_wr: u32,
    /// One-sided operations that may be under way, beside the sends, a queue pair; 0: the port
    /// carries out none.
    pub ops_depth_wr: u32,
    /// Parts that the memory of one of its operations may have.
    pub max_sge: u32,
    /// Memory windows that its operations may bind, a queue pair.
    pub windows: u32,
    /// Signature keys through which its operations check blocks while they move, a queue pair.
    pub signature_keys: u32,
    /// Whether received packets carry the immediate data that came with them, as their mark.
    pub immediates: bool,
    /// Inline data to ask the device for.
    pub inline_bytes: u32,
    /// Every n-th send is signaled: 1 to `tx_depth_wr`, or 0 if `tx_depth_wr` is 0.
    pub signal_every_wr: u32,
    /// Whether every send wakes a peer that is woken by solicited messages only.
    pub solicited: bool,
    /// Whether packets are sent as they ask.
    pub send_options: bool,
    /// Where packets go that ask to come back once they are sent.
    pub sent: Option<Target>,
    /// When the queue pair sends again, and when it gives up; of RC, which alone does.
    pub retries: Option<Retries>,
    /// What the plan says of its queue pairs otherwise.
    pub attributes: Attributes,
    /// Another way to its peer, for when the first fails; of RC.
    pub alternate: Option<AlternatePath>,
    /// Whether received packets carry the time of the turn that received them. If not, a turn in
    /// which no stage asks for the time reads no clock.
    pub timestamps: bool,
    /// Where received packets go; present if it receives.
    pub next: Option<Target>,
    /// The capacity of the pending batch: large enough that no output on this lcore overflows it; 0
    /// without a send queue.
    pub batch_packets: u32,
    /// Where the plan gives attributes of its queue pairs, by their keys.
    pub(crate) said: Vec<(&'static str, Span)>,
}

/// When a reliable connection sends again, and when it gives up, in the codes of ibv_modify_qp(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How long it waits for an ACK: 4.096 µs × 2^timeout, 0 for ever. `None`: 14, or what the
    /// connection manager works out of the path.
    pub timeout: Option<u8>,
    /// How often it sends again without an ACK.
    pub retry_cnt: u8,
    /// How often it sends again to a peer that has no receive posted; 7 is for ever.
    pub rnr_retry: u8,
    /// How long its peer waits before it sends again to this end.
    pub min_rnr_timer: u8,
}

/// Attributes of a port's queue pairs, by their names in ibv_modify_qp(3). `None`: the plan leaves
/// it out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The traffic class of what it sends: DSCP in the upper six bits, ECN in the other two.
    pub traffic_class: Option<u8>,
    /// Hops before a packet is dropped; of a port without an address.
    pub hop_limit: Option<u8>,
    /// The service level, the priority on Ethernet; of a port without an address.
    pub service_level: Option<u8>,
    /// The most data of a packet, in bytes: 256 to 4096, a power of two. Of a pair.
    pub path_mtu_bytes: Option<u32>,
    /// The P_Key; of a port without an address.
    pub pkey: Option<u16>,
    /// The Q_Key, also of a group that it sends to; of UD.
    pub qkey: u32,
    /// READs and atomics under way at once, that this side starts; of RC.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics of its peer that it serves at once; of RC.
    pub max_dest_rd_atomic: Option<u8>,
    /// The most that a queue pair sends, where its device paces the transport.
    pub rate_limit_kbit_per_s: Option<u32>,
}

/// Another way to the same peer, by the attributes of ibv_modify_qp(3) that begin with `alt_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlternatePath {
    /// The peer's GID that it leads to.
    pub gid: [u8; 16],
    /// The peer's LID there; 0 on Ethernet.
    pub lid: u16,
    /// The port of the own device that it leaves by; `None`: that of the first path.
    pub port_num: Option<u8>,
    /// The own GID there; `None`: the index that the first path has.
    pub gid_index: Option<u8>,
    /// The P_Key there; `None`: the one at index 0.
    pub pkey: Option<u16>,
    /// How long it waits for an ACK there; `None`: as long as on the first path.
    pub timeout: Option<u8>,
}

/// What a port with many connections has for all of them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    /// How many it has at once, at most.
    pub max: u32,
    /// Receives kept posted in the queue that all of them share; 0: each has one of its own.
    pub rx_shared_wr: u32,
    /// Send work requests of all of them that may be outstanding.
    pub tx_shared_wr: u32,
    /// The port whose listener this one shares, if it has none of its own.
    pub listen_with: Option<PortId>,
    /// Which of the ports that share this one's listener gets a connection.
    pub placement: Placement,
    /// One-sided operations of all of them that may be under way.
    pub ops_shared_wr: u32,
}

/// Who decides which connections a port takes, and what the plan tells it.
#[derive(Debug, Clone)]
pub struct Acceptor {
    /// What `acceptor = "…"` says.
    pub name: String,
    /// What it is told.
    pub params: Params,
}
