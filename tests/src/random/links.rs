//! Links of a random plan: the ways of packets from one stage to another.

use proptest::prelude::*;

/// A link to a later stage, or to nowhere.
#[derive(Clone, Debug)]
pub(super) struct LinkDraft {
    pub(super) to: u8,
    pub(super) via: Via,
    pub(super) ring: RingDraft,
    /// To another lcore it goes by the node's inbox, where it needs a ring.
    pub(super) by_inbox: bool,
    pub(super) rx_depth_wr: u16,
    pub(super) tx_depth_wr: u16,
    pub(super) signal_every_wr: u16,
    pub(super) inline_bytes: u16,
    /// Its messages are solicited, and wake an lcore that waits for that.
    pub(super) solicited: bool,
    /// Its port sends as packets ask. Bits: its other end has immediate data; returned packets go
    /// to a stage; over a ring.
    pub(super) options: Option<u8>,
    /// Of a connection of the plan's own: 256 bytes, or twice as many so often.
    pub(super) path_mtu: Option<u8>,
}

impl LinkDraft {
    /// As a port says it.
    pub(super) fn path_mtu_key(&self) -> String {
        self.path_mtu.map_or_else(String::new, |doubled| format!("path_mtu = {}\n", 256 << doubled))
    }
}

#[derive(Clone, Debug)]
pub(super) struct RingDraft {
    pub(super) depth: u16,
    /// Refuses, displaces, or holds where it may.
    pub(super) full: u8,
    pub(super) priority: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// A batch on the same lcore; a ring to another one.
    Direct,
    Rc,
    Uc,
    Ud,
    Group,
    /// RC, by `listen` and `connect`.
    Address,
    /// RC from a port on the other lcore, over a ring.
    RingThenRc,
}

pub(super) fn ring() -> impl Strategy<Value = RingDraft> {
    let full = prop_oneof![2 => Just(0), 1 => Just(1_u8), 1 => Just(2)];
    (1..100_u16, full, prop_oneof![2 => Just(0), 1 => 1..16_u8]).prop_map(|(depth, full, priority)| RingDraft {
        depth,
        full,
        priority,
    })
}

pub(super) fn link() -> impl Strategy<Value = LinkDraft> {
    let via = prop_oneof![
        4 => Just(Via::Direct),
        3 => Just(Via::Rc),
        1 => Just(Via::Uc),
        1 => Just(Via::Ud),
        1 => Just(Via::Group),
        1 => Just(Via::Address),
        1 => Just(Via::RingThenRc),
    ];
    let ways = (via, ring(), any::<bool>());
    let options = prop_oneof![1 => Just(None), 1 => (0..8_u8).prop_map(Some)];
    let sends = (1..100_u16, 1..40_u16, prop_oneof![Just(0_u16), Just(128)], any::<bool>(), options);
    let path_mtu = prop_oneof![1 => Just(None), 1 => (0..5_u8).prop_map(Some)];
    (any::<u8>(), ways, 1..100_u16, sends, path_mtu).prop_map(
        |(to, (via, ring, by_inbox), rx_depth_wr, sends, path_mtu)| {
            let (tx_depth_wr, signal_every_wr, inline_bytes, solicited, options) = sends;
            LinkDraft {
                to,
                via,
                ring,
                by_inbox,
                rx_depth_wr,
                tx_depth_wr,
                signal_every_wr: signal_every_wr.min(tx_depth_wr),
                inline_bytes,
                solicited,
                options,
                path_mtu,
            }
        },
    )
}
