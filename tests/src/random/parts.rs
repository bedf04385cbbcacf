//! The optional parts of a random plan beside its graph of stages: two stages or so each, with a
//! purpose of their own. A plan may consist of them alone.

use proptest::collection::vec;
use proptest::prelude::*;

use super::drawn::{drawn, maybe, seldom, zero_or};
use super::links::{LinkDraft, Via, link};
use super::marks::{ASKERS_MAX, RUSH, RUSHED, SHARDS_MAX, TALK_PACKETS_MAX, WINDOWS_MAX};

drawn! {
    pub(super) struct PartsDraft {
        /// The plan has no other stages, if it has any part: nothing else wakes an lcore that
        /// should be awake.
        alone: bool = any::<bool>(),
        talk: Option<TalkDraft> = prop_oneof![3 => Just(None), 2 => talk().prop_map(Some)],
        operator: Option<OperatorDraft> = maybe(3, OperatorDraft::strategy()),
        injectors: Vec<InjectorDraft> = prop_oneof![3 => Just(Vec::new()), 1 => vec(InjectorDraft::strategy(), 0..=2)],
        visits: Option<VisitsDraft> = maybe(4, VisitsDraft::strategy()),
        /// A part that is never alone: it takes two lcores, which may be missing.
        rush: Option<RushDraft> = maybe(3, RushDraft::strategy()),
        poll: Option<PollDraft> = maybe(3, PollDraft::strategy()),
        watch: Option<WatchDraft> = maybe(3, WatchDraft::strategy()),
    }
}

impl PartsDraft {
    pub(super) fn are_alone(&self) -> bool {
        let ports = self.talk.is_some() || self.operator.is_some() || self.visits.is_some() || self.poll.is_some();
        let any = ports || !self.injectors.is_empty() || self.watch.is_some();
        self.alone && any
    }
}

/// A caller that sends only once all that it sent has come back, and an answerer on its way. While
/// a packet is under way nothing else happens between the two, so that a thread that sleeps through
/// one sleeps until the safety time-out.
#[derive(Clone, Debug)]
pub(super) struct TalkDraft {
    pub(super) caller: SpeakerDraft,
    pub(super) answerer: SpeakerDraft,
    pub(super) rounds: u16,
    pub(super) window_packets: u8,
    /// Both lead over ports, but for the one that may be `Direct`: packets must not go round in a
    /// circle of rings.
    pub(super) there: LinkDraft,
    pub(super) back: LinkDraft,
}

drawn! {
    pub(super) struct SpeakerDraft {
        /// An answerer's counts from its caller's: 0 is the same one, anything else the other.
        lcore: u8 = 0..4_u8,
        seed: u32 = any::<u32>(),
        /// The longest pause before it speaks.
        pause_ns: u32 = pause_ns(),
        /// It waits in its call, to the nanosecond, and not for a tick.
        waits_in_call: bool = prop_oneof![2 => Just(true), 1 => Just(false)],
    }
}

drawn! {
    /// A stage that asks for operations on the region of another, over a port.
    pub(super) struct OperatorDraft {
        lcore: u8 = 0..4_u8,
        /// The owner's counts from the operator's, as an answerer's does.
        owner_lcore: u8 = 0..4_u8,
        seed: u32 = any::<u32>(),
        /// The number of operations in all, and at once.
        count: u16 = 1..600_u16,
        depth: u8 = 1..40_u8,
        /// Words of 8 bytes that it writes and reads.
        words: u8 = 1..32_u8,
        /// The longest pause after a batch of them.
        pause_ns: u32 = pause_ns(),
        /// It sends in between.
        sends: bool = any::<bool>(),
        by_address: bool = seldom(),
        /// Parts of an operation's memory.
        max_sge: u8 = prop_oneof![1 => Just(1), 1 => 2..6_u8],
        /// By which the region is reached; 0: by its own key.
        windows: u8 = zero_or(1, 1..=WINDOWS_MAX),
        port: LinkDraft = link(),
    }
}

drawn! {
    /// Threads that hand messages to a stage.
    pub(super) struct InjectorDraft {
        /// 0: to a listener, which tells the threads what came. Anything else: to a node.
        to: u8 = zero_or(1, 1..8_u8),
        lcore: u8 = 0..2_u8,
        seed: u32 = any::<u32>(),
        depth: u8 = 1..64_u8,
        /// The number of messages of each thread, and at once.
        count: u16 = 0..200_u16,
        batch: u8 = 1..8_u8,
        /// More than one.
        two_threads: bool = any::<bool>(),
        /// The longest pause after a batch.
        pause_ns: u32 = pause_ns(),
    }
}

drawn! {
    /// A port that many may connect to, whose stage sends back what comes, and one that makes many
    /// connections, whose stage talks over them and closes them.
    pub(super) struct VisitsDraft {
        lcore: u8 = 0..4_u8,
        /// The server's counts from the client's.
        server_lcore: u8 = 0..4_u8,
        seed: u32 = any::<u32>(),
        /// They receive from one queue.
        shared: bool = any::<bool>(),
        places: u8 = 1..6_u8,
        connections: u8 = 1..6_u8,
        rx_depth_wr: u8 = 1..32_u8,
        /// Receives of each connection beyond those for packets under way.
        spare_wr: u8 = 0..8_u8,
        window_packets: u8 = 1..=TALK_PACKETS_MAX,
        /// The number of talks over a connection, and of closes, in all.
        rounds: u16 = 1..120_u16,
        closes: u8 = zero_or(1, 1..40_u8),
        /// The server closes them, and not the client.
        server_closes: bool = any::<bool>(),
        /// With packets under way.
        is_rude: bool = any::<bool>(),
        /// Ports that share the listener, each with a stage of its own.
        shards: u8 = 0..=SHARDS_MAX,
        in_turn: bool = any::<bool>(),
        gate: Option<GateDraft> = maybe(1, GateDraft::strategy()),
    }
}

drawn! {
    /// An acceptor.
    pub(super) struct GateDraft {
        /// The most connections that it accepts at once, at least one.
        most: u8 = 1..6_u8,
        reject_percent: u8 = zero_or(1, 1..40_u8),
        /// The acceptor chooses their places, not the plan.
        says_place: bool = any::<bool>(),
    }
}

drawn! {
    /// Sources of one lcore that fill rings to a stage of the other as fast as they can, each ring
    /// as urgent as it is.
    pub(super) struct RushDraft {
        lcore: u8 = 0..2_u8,
        seed: u32 = any::<u32>(),
        /// Packets of each source.
        count: u16 = 0..1_500_u16,
        depth: u8 = 1..100_u8,
        priorities: Vec<u8> = vec(0..16_u8, 2..=RUSHED - RUSH),
    }
}

drawn! {
    /// Stages that ask two groups by datagrams, and stages that answer every asker.
    pub(super) struct PollDraft {
        lcore: u8 = 0..2_u8,
        /// The answerers' count from the askers'.
        polled_lcore: u8 = 0..2_u8,
        seed: u32 = any::<u32>(),
        /// The second group has a member of its own; the first one's is in both.
        has_second: bool = any::<bool>(),
        joins_both: bool = any::<bool>(),
        askers: u8 = 1..=ASKERS_MAX,
        /// The number of senders that answerers know at once, perhaps fewer than ask.
        senders: u8 = 1..5_u8,
        rounds: u16 = 1..60_u16,
        window_packets: u8 = 1..=TALK_PACKETS_MAX,
    }
}

drawn! {
    /// A stage that watches sockets, and a thread that writes to them.
    pub(super) struct WatchDraft {
        lcore: u8 = 0..2_u8,
        seed: u32 = any::<u32>(),
        /// One system call looks at 16.
        sockets: u8 = 1..40_u8,
        /// The most that is written to one.
        bytes: u16 = 0..300_u16,
        read_max: u8 = 1..=40_u8,
        /// How often an lcore that is awake looks at them.
        look_us: u16 = 1..3_000_u16,
        /// The longest pause after a few writes.
        pause_ns: u32 = pause_ns(),
    }
}

fn talk() -> impl Strategy<Value = TalkDraft> {
    let by_port = || prop_oneof![2 => Just(Via::Rc), 1 => Just(Via::Address), 1 => Just(Via::RingThenRc)];
    let vias = prop_oneof![(by_port(), by_port()), (by_port(), Just(Via::Direct)), (Just(Via::Direct), by_port())];
    let rounds = (20..300_u16, 1..=TALK_PACKETS_MAX);
    (SpeakerDraft::strategy(), SpeakerDraft::strategy(), rounds, vias, link(), link()).prop_map(
        |(caller, answerer, (rounds, window_packets), vias, there, back)| TalkDraft {
            caller,
            answerer,
            rounds,
            window_packets,
            there: with_room(vias.0, window_packets, there),
            back: with_room(vias.1, window_packets, back),
        },
    )
}

/// With a receive for each packet that is under way: a sender that finds none waits for the timer's
/// thread, which on a busy machine is most of the run.
fn with_room(via: Via, window_packets: u8, link: LinkDraft) -> LinkDraft {
    LinkDraft { via, rx_depth_wr: link.rx_depth_wr.max(window_packets.into()), ..link }
}

fn pause_ns() -> impl Strategy<Value = u32> {
    // An lcore goes to sleep within a µs of its last packet, or after its spin or dwell; a pause
    // meets that moment if it is as long.
    prop_oneof![Just(0), 1..1_000_u32, 1..4_000_u32, 1..20_000_u32, 1..300_000_u32]
}
