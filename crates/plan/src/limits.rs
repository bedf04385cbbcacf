//! Bounds and defaults of the numbers in a plan.

use std::time::Duration;

/// The tables of resources. Every other top-level table is an application's section.
pub(crate) const TOP_KEYS: [&str; 9] =
    ["device", "pool", "region", "lcore", "port", "ring", "injector", "spread", "stage"];

/// More of one sort than this is not a plan: what is worked out for each pool and lcore, and each
/// that it reaches, adds up.
pub(crate) const DEVICES_MAX: usize = 64;
pub(crate) const POOLS_MAX: usize = 256;
pub(crate) const LCORES_MAX: usize = 1024;
pub(crate) const RESOURCES_MAX: usize = 4096;
/// The outputs of a stage, and the groups that a port joins.
pub(crate) const LISTED_MAX: usize = 1024;
/// The ways from an output to a target, each place of a spread being one.
pub(crate) const EDGES_MAX: usize = 1 << 18;
/// The places of a spread.
pub(crate) const PLACES_MAX: usize = 256;
/// ibv_port_attr numbers ports in 8 bits.
pub(crate) const PORT_NUM_MAX: u32 = 255;
pub(crate) const PACKETS_MAX: u32 = 1 << 28;
pub(crate) const DATA_BYTES_MAX: u32 = 1 << 26;
pub(crate) const HEADROOM_BYTES_MAX: u32 = 1 << 16;
/// 16 TiB: more than the memory of a machine, and within the 48 bits of an operation's offset.
pub(crate) const REGION_BYTES_MAX: u64 = 1 << 44;
/// Senders of datagrams that one port knows at once: they share numbers of 16 bits with its groups.
pub(crate) const SENDERS_MAX: u32 = 1 << 15;
pub(crate) const SGE_MAX: u32 = 1 << 10;
/// Memory windows of one port, whose numbers have 16 bits.
pub(crate) const WINDOWS_MAX: u32 = 1 << 15;
/// Signature keys of one port, whose numbers have 16 bits.
pub(crate) const SIGNATURE_KEYS_MAX: u32 = 1 << 15;
pub(crate) const DEPTH_MAX: u32 = 1 << 20;
/// Timers that a stage may have armed at once.
pub const TIMERS_MAX: u32 = 1 << 20;
/// What a timer takes, and what the wheel of a stage takes beside its timers.
pub const TIMER_BYTES: u64 = 48;
pub(crate) const WHEEL_BYTES: u64 = 12 << 10;
/// What a connection's handle has room for.
pub(crate) const CONNECTIONS_MAX: u32 = 1 << 16;
/// What a software device has by its address, as docs/wire.md says.
pub(crate) const WIRE_CONNECTIONS_MAX: u64 = 4096;
/// The private data of a request, rdma_connect(3).
pub(crate) const PRIVATE_DATA_BYTES_MAX: usize = 56;
/// The slots of a queue that work requests are numbered by.
pub(crate) const SHARED_DEPTH_MAX: u32 = 1 << 16;
/// Of the classes of rings.
pub(crate) const PRIORITY_MAX: u32 = 15;
pub(crate) const BURST_MAX: u32 = 1024;
pub(crate) const CPU_MAX: u32 = 1 << 16;
/// The kernel has at most 1,024 nodes (CONFIG_NODES_SHIFT).
pub(crate) const NODE_MAX: u32 = 1023;
/// Greater than any device's `max_cqe`, and what an lcore's ports may need together.
pub(crate) const CQ_DEPTH_MAX: u32 = DEPTH_MAX * 64;
/// Shorter than the longest sleep, so that the lcore looks by a timer of its own.
pub(crate) const UNSOLICITED_WAIT_MAX: Duration = Duration::from_millis(500);
/// Longer than any sensible budget, and far from overflowing nanoseconds in 64 bits.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(3600);

/// `timeout` and `min_rnr_timer` have 5 bits, the two counts 3 (ibv_modify_qp(3)).
pub(crate) const TIMER_CODE_MAX: u32 = 31;
pub(crate) const RETRIES_MAX: u32 = 7;

/// Of 8 bits each, and 4 (the GRH and the LRH of InfiniBand).
pub(crate) const TRAFFIC_CLASS_MAX: u32 = 255;
pub(crate) const HOP_LIMIT_MAX: u32 = 255;
pub(crate) const SERVICE_LEVEL_MAX: u32 = 15;
/// 16 bits.
pub(crate) const PKEY_MAX: u32 = 0xffff;
/// The last of those that one port has (InfiniBand Architecture Specification, 4.1.3).
pub(crate) const LID_MAX: u32 = 0xbfff;
/// Those above are controlled: the kernel leaves them to programs with CAP_NET_RAW, and a send that
/// names one is sent with the Q_Key of its queue pair.
pub(crate) const QKEY_MAX: u32 = 0x7fff_ffff;
/// Of a port that says none.
pub(crate) const QKEY: u32 = 0x5642_4c4e;
/// 8 bits, whose greatest value rdma_cm reads as "the device's" (RDMA_MAX_RESP_RES).
pub(crate) const RD_ATOMIC_MAX: u32 = 254;
/// `enum ibv_mtu`, in bytes: powers of two.
pub(crate) const PATH_MTU_MIN: u32 = 256;
pub(crate) const PATH_MTU_MAX: u32 = 4096;

pub(crate) const RETRY_CNT: u32 = 7;
/// For ever: a finite number breaks connections for want of a receive (docs/plan.md has figures).
pub(crate) const RNR_RETRY: u32 = 7;
pub(crate) const MIN_RNR_TIMER: u32 = 1;
pub(crate) const HEADROOM_BYTES: u32 = 64;
pub(crate) const CACHE_PACKETS: u32 = 256;
pub(crate) const BURST_PACKETS: u32 = 32;
pub(crate) const INLINE_BYTES: u32 = 128;
pub(crate) const SIGNAL_EVERY_WR: u32 = 32;
pub(crate) const DRAIN: Duration = Duration::from_secs(1);
/// Long enough to start the other end by hand.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
