//! Links of a random plan: the ways of packets from one stage to another.

use proptest::prelude::*;

use super::drawn::{drawn, maybe, zero_or};

drawn! {
    /// A link to a later stage, or to nowhere.
    pub(super) struct LinkDraft {
        to: u8 = any::<u8>(),
        via: Via = via(),
        ring: RingDraft = RingDraft::strategy(),
        /// To another lcore it goes by the node's inbox, where it needs a ring.
        by_inbox: bool = any::<bool>(),
        rx_depth_wr: u16 = 1..100_u16,
        tx_depth_wr: u16 = 1..100_u16,
        signal_every_wr: u16 = 1..40_u16,
        inline_bytes: u16 = zero_or(1, Just(128_u16)),
        /// Its messages are solicited, and wake an lcore that waits for that.
        solicited: bool = any::<bool>(),
        /// Its port sends as packets ask. Bits: its other end has immediate data; returned packets
        /// go to a stage; over a ring.
        options: Option<u8> = maybe(1, 0..8_u8),
        /// Of a connection of the plan's own: 256 bytes, or twice as many so often.
        path_mtu: Option<u8> = maybe(1, 0..5_u8),
    }
}

impl LinkDraft {
    /// As a port says it.
    pub(super) fn path_mtu_key(&self) -> String {
        self.path_mtu.map_or_else(String::new, |doubled| format!("path_mtu = {}\n", 256 << doubled))
    }
}

drawn! {
    pub(super) struct RingDraft {
        depth: u16 = 1..100_u16,
        /// Refuses, displaces, or holds where it may.
        full: u8 = prop_oneof![2 => Just(0), 1 => Just(1_u8), 1 => Just(2)],
        priority: u8 = zero_or(2, 1..16_u8),
    }
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

fn via() -> impl Strategy<Value = Via> {
    prop_oneof![
        4 => Just(Via::Direct),
        3 => Just(Via::Rc),
        1 => Just(Via::Uc),
        1 => Just(Via::Ud),
        1 => Just(Via::Group),
        1 => Just(Via::Address),
        1 => Just(Via::RingThenRc),
    ]
}

pub(super) fn link() -> impl Strategy<Value = LinkDraft> {
    LinkDraft::strategy()
        .prop_map(|link| LinkDraft { signal_every_wr: link.signal_every_wr.min(link.tx_depth_wr), ..link })
}
