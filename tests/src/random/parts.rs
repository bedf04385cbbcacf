//! The optional parts of a random plan beside its graph of stages: two stages or so each, with a
//! purpose of their own. A plan may consist of them alone.

use proptest::prelude::*;

use super::links::{LinkDraft, Via, link};
use super::marks::{ASKERS_MAX, RUSH, RUSHED, SHARDS_MAX, TALK_PACKETS_MAX, WINDOWS_MAX};

#[derive(Clone, Debug)]
pub(super) struct PartsDraft {
    /// The plan has no other stages, if it has any part: nothing else wakes an lcore that should be
    /// awake.
    pub(super) alone: bool,
    pub(super) talk: Option<TalkDraft>,
    pub(super) operator: Option<OperatorDraft>,
    pub(super) injectors: Vec<InjectorDraft>,
    pub(super) visits: Option<VisitsDraft>,
    /// A part that is never alone: it takes two lcores, which may be missing.
    pub(super) rush: Option<RushDraft>,
    pub(super) poll: Option<PollDraft>,
    pub(super) watch: Option<WatchDraft>,
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

#[derive(Clone, Debug)]
pub(super) struct SpeakerDraft {
    /// An answerer's counts from its caller's: 0 is the same one, anything else the other.
    pub(super) lcore: u8,
    pub(super) seed: u32,
    /// The longest pause before it speaks.
    pub(super) pause_ns: u32,
    /// It waits in its call, to the nanosecond, and not for a tick.
    pub(super) waits_in_call: bool,
}

/// A stage that asks for operations on the region of another, over a port.
#[derive(Clone, Debug)]
pub(super) struct OperatorDraft {
    pub(super) lcore: u8,
    /// The owner's counts from the operator's, as an answerer's does.
    pub(super) owner_lcore: u8,
    pub(super) seed: u32,
    /// The number of operations in all, and at once.
    pub(super) count: u16,
    pub(super) depth: u8,
    /// Words of 8 bytes that it writes and reads.
    pub(super) words: u8,
    /// The longest pause after a batch of them.
    pub(super) pause_ns: u32,
    /// It sends in between.
    pub(super) sends: bool,
    pub(super) by_address: bool,
    /// Parts of an operation's memory.
    pub(super) max_sge: u8,
    /// By which the region is reached; 0: by its own key.
    pub(super) windows: u8,
    pub(super) port: LinkDraft,
}

/// Threads that hand messages to a stage.
#[derive(Clone, Debug)]
pub(super) struct InjectorDraft {
    /// 0: to a listener, which tells the threads what came. Anything else: to a node.
    pub(super) to: u8,
    pub(super) lcore: u8,
    pub(super) seed: u32,
    pub(super) depth: u8,
    /// The number of messages of each thread, and at once.
    pub(super) count: u16,
    pub(super) batch: u8,
    /// More than one.
    pub(super) two_threads: bool,
    /// The longest pause after a batch.
    pub(super) pause_ns: u32,
}

/// A port that many may connect to, whose stage sends back what comes, and one that makes many
/// connections, whose stage talks over them and closes them.
#[derive(Clone, Debug)]
pub(super) struct VisitsDraft {
    pub(super) lcore: u8,
    /// The server's counts from the client's.
    pub(super) server_lcore: u8,
    pub(super) seed: u32,
    pub(super) places: u8,
    pub(super) connections: u8,
    /// They receive from one queue.
    pub(super) shared: bool,
    pub(super) rx_depth_wr: u8,
    /// Receives of each connection beyond those for packets under way.
    pub(super) spare_wr: u8,
    pub(super) window_packets: u8,
    /// The number of talks over a connection, and of closes, in all.
    pub(super) rounds: u16,
    pub(super) closes: u8,
    /// The server closes them, and not the client.
    pub(super) server_closes: bool,
    /// With packets under way.
    pub(super) is_rude: bool,
    /// Ports that share the listener, each with a stage of its own.
    pub(super) shards: u8,
    pub(super) in_turn: bool,
    pub(super) gate: Option<GateDraft>,
}

/// An acceptor.
#[derive(Clone, Debug)]
pub(super) struct GateDraft {
    /// The most connections that it accepts at once, at least one.
    pub(super) most: u8,
    pub(super) reject_percent: u8,
    /// The acceptor chooses their places, not the plan.
    pub(super) says_place: bool,
}

/// Sources of one lcore that fill rings to a stage of the other as fast as they can, each ring as
/// urgent as it is.
#[derive(Clone, Debug)]
pub(super) struct RushDraft {
    pub(super) lcore: u8,
    pub(super) seed: u32,
    /// Packets of each source.
    pub(super) count: u16,
    pub(super) depth: u8,
    pub(super) priorities: Vec<u8>,
}

/// Stages that ask two groups by datagrams, and stages that answer every asker.
#[derive(Clone, Debug)]
pub(super) struct PollDraft {
    pub(super) lcore: u8,
    /// The answerers' count from the askers'.
    pub(super) polled_lcore: u8,
    pub(super) seed: u32,
    pub(super) askers: u8,
    /// The number of senders that answerers know at once, perhaps fewer than ask.
    pub(super) senders: u8,
    /// The second group has a member of its own; the first one's is in both.
    pub(super) has_second: bool,
    pub(super) joins_both: bool,
    pub(super) rounds: u16,
    pub(super) window_packets: u8,
}

/// A stage that watches sockets, and a thread that writes to them.
#[derive(Clone, Debug)]
pub(super) struct WatchDraft {
    pub(super) lcore: u8,
    pub(super) seed: u32,
    pub(super) sockets: u8,
    /// The most that is written to one.
    pub(super) bytes: u16,
    /// How often an lcore that is awake looks at them.
    pub(super) look_us: u16,
    pub(super) read_max: u8,
    /// The longest pause after a few writes.
    pub(super) pause_ns: u32,
}

pub(super) fn parts() -> impl Strategy<Value = PartsDraft> {
    let talks = prop_oneof![3 => Just(None), 2 => talk().prop_map(Some)];
    let operators = prop_oneof![3 => Just(None), 1 => operator().prop_map(Some)];
    let injectors = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(injector(), 0..=2)];
    let visits = prop_oneof![4 => Just(None), 1 => visits().prop_map(Some)];
    let rushes = prop_oneof![3 => Just(None), 1 => rush().prop_map(Some)];
    let polls = prop_oneof![3 => Just(None), 1 => poll().prop_map(Some)];
    let watches = prop_oneof![3 => Just(None), 1 => watch().prop_map(Some)];
    (any::<bool>(), talks, operators, injectors, visits, rushes, polls, watches).prop_map(
        |(alone, talk, operator, injectors, visits, rush, poll, watch)| PartsDraft {
            alone,
            talk,
            operator,
            injectors,
            visits,
            rush,
            poll,
            watch,
        },
    )
}

fn talk() -> impl Strategy<Value = TalkDraft> {
    let by_port = || prop_oneof![2 => Just(Via::Rc), 1 => Just(Via::Address), 1 => Just(Via::RingThenRc)];
    let vias = prop_oneof![(by_port(), by_port()), (by_port(), Just(Via::Direct)), (Just(Via::Direct), by_port())];
    let rounds = (20..300_u16, 1..=TALK_PACKETS_MAX);
    (speaker(), speaker(), rounds, vias, link(), link()).prop_map(
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

fn speaker() -> impl Strategy<Value = SpeakerDraft> {
    let waits = prop_oneof![2 => Just(true), 1 => Just(false)];
    (0..4_u8, any::<u32>(), pause_ns(), waits).prop_map(|(lcore, seed, pause_ns, waits_in_call)| SpeakerDraft {
        lcore,
        seed,
        pause_ns,
        waits_in_call,
    })
}

fn pause_ns() -> impl Strategy<Value = u32> {
    // An lcore goes to sleep within a µs of its last packet, or after its spin or dwell; a pause
    // meets that moment if it is as long.
    prop_oneof![Just(0), 1..1_000_u32, 1..4_000_u32, 1..20_000_u32, 1..300_000_u32]
}

fn operator() -> impl Strategy<Value = OperatorDraft> {
    let sizes = (1..600_u16, 1..40_u8, 1..32_u8);
    let flags = (any::<bool>(), prop_oneof![3 => Just(false), 1 => Just(true)]);
    let max_sge = prop_oneof![1 => Just(1), 1 => 2..6_u8];
    let reach = (max_sge, prop_oneof![1 => Just(0), 1 => 1..=WINDOWS_MAX]);
    (0..4_u8, 0..4_u8, any::<u32>(), sizes, pause_ns(), (flags, reach), link()).prop_map(
        |(lcore, owner_lcore, seed, (count, depth, words), pause_ns, ((sends, by_address), reach), port)| {
            OperatorDraft {
                lcore,
                owner_lcore,
                seed,
                count,
                depth,
                words,
                pause_ns,
                sends,
                by_address,
                max_sge: reach.0,
                windows: reach.1,
                port,
            }
        },
    )
}

fn injector() -> impl Strategy<Value = InjectorDraft> {
    let to = prop_oneof![Just(0), 1..8_u8];
    let sizes = (1..64_u8, 0..200_u16, 1..8_u8);
    (to, 0..2_u8, any::<u32>(), sizes, any::<bool>(), pause_ns()).prop_map(
        |(to, lcore, seed, (depth, count, batch), two_threads, pause_ns)| InjectorDraft {
            to,
            lcore,
            seed,
            depth,
            count,
            batch,
            two_threads,
            pause_ns,
        },
    )
}

fn visits() -> impl Strategy<Value = VisitsDraft> {
    let sizes = (1..6_u8, 1..6_u8, 1..32_u8, 0..8_u8, 1..=TALK_PACKETS_MAX);
    let habits = (1..120_u16, prop_oneof![Just(0), 1..40_u8], any::<bool>(), any::<bool>());
    let gates = (1..6_u8, prop_oneof![Just(0), 1..40_u8], any::<bool>());
    let gates = gates.prop_map(|(most, reject_percent, says_place)| GateDraft { most, reject_percent, says_place });
    let gates = prop_oneof![Just(None), gates.prop_map(Some)];
    let doors = (0..=SHARDS_MAX, any::<bool>(), gates);
    (0..4_u8, 0..4_u8, any::<u32>(), any::<bool>(), sizes, habits, doors).prop_map(
        |(lcore, server_lcore, seed, shared, sizes, (rounds, closes, server_closes, is_rude), doors)| {
            let (shards, in_turn, gate) = doors;
            let (places, connections, rx_depth_wr, spare_wr, window_packets) = sizes;
            VisitsDraft {
                lcore,
                server_lcore,
                seed,
                places,
                connections,
                shared,
                rx_depth_wr,
                spare_wr,
                window_packets,
                rounds,
                closes,
                server_closes,
                is_rude,
                shards,
                in_turn,
                gate,
            }
        },
    )
}

fn rush() -> impl Strategy<Value = RushDraft> {
    let priorities = prop::collection::vec(0..16_u8, 2..=RUSHED - RUSH);
    (0..2_u8, any::<u32>(), 0..1_500_u16, 1..100_u8, priorities)
        .prop_map(|(lcore, seed, count, depth, priorities)| RushDraft { lcore, seed, count, depth, priorities })
}

fn poll() -> impl Strategy<Value = PollDraft> {
    let sizes = (1..=ASKERS_MAX, 1..5_u8, 1..60_u16, 1..=TALK_PACKETS_MAX);
    (0..2_u8, 0..2_u8, any::<u32>(), any::<bool>(), any::<bool>(), sizes).prop_map(
        |(lcore, polled_lcore, seed, has_second, joins_both, (askers, senders, rounds, window_packets))| PollDraft {
            lcore,
            polled_lcore,
            seed,
            askers,
            senders,
            has_second,
            joins_both,
            rounds,
            window_packets,
        },
    )
}

fn watch() -> impl Strategy<Value = WatchDraft> {
    // One system call looks at 16.
    let sizes = (1..40_u8, 0..300_u16, 1..=40_u8);
    (0..2_u8, any::<u32>(), sizes, 1..3_000_u16, pause_ns()).prop_map(
        |(lcore, seed, (sockets, bytes, read_max), look_us, pause_ns)| WatchDraft {
            lcore,
            seed,
            sockets,
            bytes,
            look_us,
            read_max,
            pause_ns,
        },
    )
}
