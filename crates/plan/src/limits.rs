//! Bounds and defaults of the numbers in a plan.

use std::time::Duration;

/// The tables of resources. Every other top-level table is an application's section.
pub(crate) const TOP_KEYS: [&str; 9] =
    ["device", "pool", "region", "lcore", "port", "ring", "injector", "spread", "stage"];

/// The most tables of one sort; a file with more is no plan. The work of the checks grows with the
/// products of these numbers.
pub(crate) const DEVICES_MAX: usize = 64;
pub(crate) const POOLS_MAX: usize = 256;
pub(crate) const LCORES_MAX: usize = 1024;
pub(crate) const RESOURCES_MAX: usize = 4096;
/// The most outputs of a stage, and groups that a port joins.
pub(crate) const LISTED_MAX: usize = 1024;
/// The most edges from outputs to targets, where each place of a spread counts as one.
pub(crate) const EDGES_MAX: usize = 1 << 18;
/// The most places of a spread.
pub(crate) const PLACES_MAX: usize = 256;
/// ibv_port_attr numbers ports in 8 bits.
pub(crate) const PORT_NUM_MAX: u32 = 255;
pub(crate) const PACKETS_MAX: u32 = 1 << 28;
pub(crate) const DATA_BYTES_MAX: u32 = 1 << 26;
pub(crate) const HEADROOM_BYTES_MAX: u32 = 1 << 16;
/// 16 TiB: more than the memory of a machine, and within the 48 bits of an operation's offset.
pub(crate) const REGION_BYTES_MAX: u64 = 1 << 44;
/// Senders of datagrams that one port knows at once: they share its 16-bit numbers with its groups.
pub(crate) const SENDERS_MAX: u32 = 1 << 15;
pub(crate) const SGE_MAX: u32 = 1 << 10;
/// Memory windows of one port, numbered in 16 bits.
pub(crate) const WINDOWS_MAX: u32 = 1 << 15;
/// Signature keys of one port, numbered in 16 bits.
pub(crate) const SIGNATURE_KEYS_MAX: u32 = 1 << 15;
pub(crate) const DEPTH_MAX: u32 = 1 << 20;
/// Timers that a stage may have armed at once.
pub const TIMERS_MAX: u32 = 1 << 20;
/// Memory of one timer, and of a stage's timer wheel beside its timers.
pub const TIMER_BYTES: u64 = 48;
pub(crate) const WHEEL_BYTES: u64 = 12 << 10;
/// Slots that a connection's handle can number.
pub(crate) const CONNECTIONS_MAX: u32 = 1 << 16;
/// Connections of a software device by its address (docs/wire.md).
pub(crate) const WIRE_CONNECTIONS_MAX: u64 = 4096;
/// The most private data of a connection request, rdma_connect(3).
pub(crate) const PRIVATE_DATA_BYTES_MAX: usize = 56;
/// Slots by which a shared receive queue numbers its work requests.
pub(crate) const SHARED_DEPTH_MAX: u32 = 1 << 16;
/// The highest priority of a ring.
pub(crate) const PRIORITY_MAX: u32 = 15;
pub(crate) const BURST_MAX: u32 = 1024;
pub(crate) const CPU_MAX: u32 = 1 << 16;
/// The kernel has at most 1,024 nodes (CONFIG_NODES_SHIFT).
pub(crate) const NODE_MAX: u32 = 1023;
/// Greater than any device's `max_cqe`; an lcore's ports may need that many together.
pub(crate) const CQ_DEPTH_MAX: u32 = DEPTH_MAX * 64;
/// Shorter than the longest sleep, so that the lcore's own timer bounds the wait.
pub(crate) const UNSOLICITED_WAIT_MAX: Duration = Duration::from_millis(500);
/// Longer than any sensible budget, and far from overflowing nanoseconds in 64 bits.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(3600);

/// `timeout` and `min_rnr_timer` have 5 bits, `retry_cnt` and `rnr_retry` 3 (ibv_modify_qp(3)).
pub(crate) const TIMER_CODE_MAX: u32 = 31;
pub(crate) const RETRIES_MAX: u32 = 7;

/// The first two have 8 bits each, the third has 4 (the GRH and the LRH of InfiniBand).
pub(crate) const TRAFFIC_CLASS_MAX: u32 = 255;
pub(crate) const HOP_LIMIT_MAX: u32 = 255;
pub(crate) const SERVICE_LEVEL_MAX: u32 = 15;
/// 16 bits.
pub(crate) const PKEY_MAX: u32 = 0xffff;
/// The last unicast LID (InfiniBand Architecture Specification, 4.1.3).
pub(crate) const LID_MAX: u32 = 0xbfff;
/// Higher Q_Keys are controlled: the kernel leaves them to programs with CAP_NET_RAW, and a send
/// that names one goes out with the Q_Key of its queue pair.
pub(crate) const QKEY_MAX: u32 = 0x7fff_ffff;
/// The Q_Key of a port without `qkey`.
pub(crate) const QKEY: u32 = 0x5642_4c4e;
/// 8 bits, whose greatest value rdma_cm reads as "the device's" (RDMA_MAX_RESP_RES).
pub(crate) const RD_ATOMIC_MAX: u32 = 254;
/// `enum ibv_mtu`, in bytes: powers of two.
pub(crate) const PATH_MTU_MIN: u32 = 256;
pub(crate) const PATH_MTU_MAX: u32 = 4096;

pub(crate) const RETRY_CNT: u32 = 7;
/// Forever: a finite number breaks connections for want of a receive (docs/plan.md has figures).
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
