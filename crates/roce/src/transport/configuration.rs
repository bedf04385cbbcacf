//! The attributes of a queue pair: at creation, and when it begins to receive and to send.

use crate::wire::{Psn, Qpn, Route};

/// The most bytes of a message in one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512,
    /// 1,024 bytes, which fit Ethernet's usual 1,500.
    B1024,
    /// 2,048 bytes.
    B2048,
    /// 4,096 bytes.
    B4096,
}

impl Mtu {
    /// In bytes.
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// The number in verbs and in connection management.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Finds the MTU of that number.
    pub const fn of_code(code: u8) -> Option<Mtu> {
        Some(match code {
            1 => Mtu::B256,
            2 => Mtu::B512,
            3 => Mtu::B1024,
            4 => Mtu::B2048,
            5 => Mtu::B4096,
            _ => return None,
        })
    }
}

/// A queue pair's room for work requests, all of it allocated at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Send work requests whose completions were not polled.
    pub sends: usize,
    /// Scatter/gather elements of a send.
    pub send_sges: usize,
    /// Inline bytes of a send.
    pub inline_bytes: usize,
    /// Scatter/gather elements of a receive.
    pub receive_sges: usize,
}

/// The source of a queue pair's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    /// A queue of its own, for that many receives.
    Own(usize),
    /// A shared queue, by its number in [`Memory`](crate::Memory).
    Shared {
        /// The number.
        queue: u32,
        /// Completions that were not polled. While there is no room for another, peers get RNR
        /// NAKs, as if no receive were posted.
        completions: usize,
    },
}

/// The rights of peers on the queue pair, beside sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// WRITE.
    pub write: bool,
    /// READ.
    pub read: bool,
    /// Atomics.
    pub atomic: bool,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The route from here to there.
    pub route: Route,
    /// Its queue pair.
    pub qpn: Qpn,
    /// The number of the first packet that it sends.
    pub psn: Psn,
    /// The most bytes of a packet, both ways.
    pub mtu: Mtu,
}

/// The behaviour of a reliable connection's responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// READs and atomics that the peer may have under way: verbs' `max_dest_rd_atomic`, at most 16.
    pub reads: u8,
    /// How long a peer has to wait when no receive is posted: verbs' `min_rnr_timer`.
    pub rnr_timer: u8,
    /// The greatest distance from the expected packet number at which a packet is still answered. A
    /// stranger's guess is answered with a probability of twice this in 2^24.
    pub answered_psns: u32,
}

/// The packets that a queue pair receives from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiving {
    /// A reliable connection's requests.
    Rc(Peer, Serving),
    /// An unreliable connection's messages.
    Uc(Peer),
    /// Datagrams with this Q_Key, each of one packet up to this size.
    Ud {
        /// The key.
        qkey: u32,
        /// The size.
        mtu: Mtu,
    },
}

/// The retries of a reliable connection's requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Verbs' `timeout`: see [`ack_timeout_ns`](crate::transport::ack_timeout_ns).
    pub timeout: u8,
    /// Verbs' `retry_cnt`: how often in a row a request is retransmitted without progress, 7 at
    /// most.
    pub retry_count: u8,
    /// Verbs' `rnr_retry`: how often in a row it retries after RNR; 7 is forever.
    pub rnr_retry: u8,
    /// READs and atomics under way at once: verbs' `max_rd_atomic`, at least 1.
    pub reads: u8,
    /// Packets under way at once: 2 to 65,536.
    pub window_packets: u32,
}

/// The packets that a queue pair sends from now on. The transport is that of its [`Receiving`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Requests of a reliable connection.
    Rc(Psn, Retries),
    /// Messages of an unreliable connection.
    Uc(Psn),
    /// Datagrams.
    Ud(Psn),
}

impl Default for Serving {
    fn default() -> Serving {
        Serving { reads: 16, rnr_timer: 12, answered_psns: 1 << 16 }
    }
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { timeout: 14, retry_count: 7, rnr_retry: 7, reads: 16, window_packets: 128 }
    }
}

/// The time-out of an acknowledgement, by the five bits of verbs' `timeout`: 4.096 µs · 2^n; none
/// if they are 0.
pub fn ack_timeout_ns(code: u8) -> Option<u64> {
    let code = code & 0x1F;
    (code > 0).then(|| 4096 << code)
}

/// Hundredths of a millisecond; the first is the longest (table 46 of the specification).
const RNR_TIMERS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The wait for a receive to be posted, by the five bits of an RNR NAK.
pub fn rnr_timer_ns(code: u8) -> u64 {
    u64::from(RNR_TIMERS[usize::from(code & 0x1F)]) * 10_000
}
