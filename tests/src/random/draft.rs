//! What a random plan is made of. Every combination of numbers is a valid plan: what a number
//! cannot mean it does not.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::marks::TALK_PACKETS_MAX;

/// A plan, as numbers. Zero is the simplest choice everywhere.
#[derive(Clone, Debug)]
pub struct Draft {
    pub(super) lcores: Vec<LcoreDraft>,
    /// The first [`Draft::sources`] of them are sources.
    pub(super) nodes: Vec<NodeDraft>,
    pub(super) sources: usize,
    pub(super) data_bytes: u16,
    pub(super) cache_packets: u16,
    /// Ports receive into a pool of their own.
    pub(super) two_pools: bool,
    pub(super) talk: Option<TalkDraft>,
}

#[derive(Clone, Debug)]
pub(super) struct LcoreDraft {
    pub(super) idle: u8,
    pub(super) burst_packets: u16,
    pub(super) spin_us: Option<u16>,
    pub(super) dwell_us: Option<u16>,
}

#[derive(Clone, Debug)]
pub(super) struct NodeDraft {
    pub(super) lcore: u8,
    pub(super) links: Vec<LinkDraft>,
    pub(super) habits: HabitDraft,
}

/// What a stage does, as its `params` say it.
#[derive(Clone, Debug)]
pub(super) struct HabitDraft {
    pub(super) seed: u32,
    /// Packets that a source makes; `None`: it never ends.
    pub(super) count: Option<u16>,
    /// What `poll` answers, one of them at random.
    pub(super) next: Vec<NextDraft>,
    pub(super) hold_packets: u8,
    pub(super) drop_percent: u8,
    pub(super) leave_percent: u8,
    pub(super) take_percent: u8,
    /// Sends in batches, and not packet by packet.
    pub(super) batches: bool,
    /// Looks for room before it sends.
    pub(super) polite: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum NextDraft {
    Busy,
    /// So many µs from now.
    After(u16),
    /// Tick 0 or 1: long past.
    Past(u8),
    Idle,
    /// `At(Tick::MAX)`.
    Fed,
    Done,
}

/// A caller that sends only once all that it sent has come back, and an answerer on its way. While
/// a packet is under way nothing else happens between the two, so that whoever sleeps through one
/// sleeps until the safety time-out.
#[derive(Clone, Debug)]
pub(super) struct TalkDraft {
    /// The plan has no other stages: nothing else wakes an lcore that should be awake.
    pub(super) alone: bool,
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

/// A link to a later stage, or to nowhere.
#[derive(Clone, Debug)]
pub(super) struct LinkDraft {
    pub(super) to: u8,
    pub(super) via: Via,
    pub(super) ring_depth: u16,
    pub(super) rx_depth_wr: u16,
    pub(super) tx_depth_wr: u16,
    pub(super) signal_every_wr: u16,
    pub(super) inline_bytes: u16,
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

impl Draft {
    fn strategy() -> impl Strategy<Value = Draft> {
        let lcores = prop::collection::vec(lcore(), 1..=2);
        let nodes = prop::collection::vec(node(), 1..=6);
        let talks = prop_oneof![3 => Just(None), 2 => talk().prop_map(Some)];
        (lcores, nodes, 1..=3_usize, 8..200_u16, prop_oneof![Just(0), 1..64_u16], any::<bool>(), talks).prop_map(
            |(lcores, nodes, sources, data_bytes, cache_packets, two_pools, talk)| {
                let sources = sources.min(nodes.len());
                Draft { lcores, nodes, sources, data_bytes, cache_packets, two_pools, talk }
            },
        )
    }
}

fn lcore() -> impl Strategy<Value = LcoreDraft> {
    let micros = || prop_oneof![Just(None), (0..300_u16).prop_map(Some)];
    (0..3_u8, 1..40_u16, micros(), micros()).prop_map(|(idle, burst_packets, spin_us, dwell_us)| LcoreDraft {
        idle,
        burst_packets,
        spin_us,
        dwell_us,
    })
}

fn node() -> impl Strategy<Value = NodeDraft> {
    (0..2_u8, prop::collection::vec(link(), 1..=3), habits()).prop_map(|(lcore, links, habits)| NodeDraft {
        lcore,
        links,
        habits,
    })
}

fn habits() -> impl Strategy<Value = HabitDraft> {
    let seldom = || prop_oneof![3 => Just(0), 1 => 1..50_u8];
    let counts = prop_oneof![6 => (0..800_u16).prop_map(Some), 1 => Just(None)];
    let next = prop::collection::vec(next(), 1..=3);
    let hold = prop_oneof![2 => Just(0), 1 => 1..=64_u8];
    let often = (any::<u32>(), counts, next, hold);
    (often, seldom(), seldom(), seldom(), any::<bool>(), any::<bool>()).prop_map(
        |((seed, count, next, hold_packets), drop_percent, leave_percent, take_percent, batches, polite)| HabitDraft {
            seed,
            count,
            next,
            hold_packets,
            drop_percent,
            leave_percent,
            take_percent,
            batches,
            polite,
        },
    )
}

fn next() -> impl Strategy<Value = NextDraft> {
    prop_oneof![
        8 => Just(NextDraft::Busy),
        8 => (0..400_u16).prop_map(NextDraft::After),
        2 => (0..2_u8).prop_map(NextDraft::Past),
        2 => Just(NextDraft::Idle),
        1 => Just(NextDraft::Fed),
        1 => Just(NextDraft::Done),
    ]
}

fn talk() -> impl Strategy<Value = TalkDraft> {
    let by_port = || prop_oneof![2 => Just(Via::Rc), 1 => Just(Via::Address), 1 => Just(Via::RingThenRc)];
    let vias = prop_oneof![(by_port(), by_port()), (by_port(), Just(Via::Direct)), (Just(Via::Direct), by_port())];
    let rounds = (20..300_u16, 1..=TALK_PACKETS_MAX);
    (any::<bool>(), speaker(), speaker(), rounds, vias, link(), link()).prop_map(
        |(alone, caller, answerer, (rounds, window_packets), vias, there, back)| TalkDraft {
            alone,
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
    // An lcore goes to sleep within a µs of its last packet, or after its spin or dwell; a pause
    // meets that moment if it is as long.
    let pause_ns = prop_oneof![Just(0), 1..1_000_u32, 1..4_000_u32, 1..20_000_u32, 1..300_000_u32];
    let waits = prop_oneof![2 => Just(true), 1 => Just(false)];
    (0..4_u8, any::<u32>(), pause_ns, waits).prop_map(|(lcore, seed, pause_ns, waits_in_call)| SpeakerDraft {
        lcore,
        seed,
        pause_ns,
        waits_in_call,
    })
}

fn link() -> impl Strategy<Value = LinkDraft> {
    let via = prop_oneof![
        4 => Just(Via::Direct),
        3 => Just(Via::Rc),
        1 => Just(Via::Uc),
        1 => Just(Via::Ud),
        1 => Just(Via::Group),
        1 => Just(Via::Address),
        1 => Just(Via::RingThenRc),
    ];
    (any::<u8>(), via, 1..100_u16, 1..100_u16, 1..100_u16, 1..40_u16, prop_oneof![Just(0_u16), Just(128)]).prop_map(
        |(to, via, ring_depth, rx_depth_wr, tx_depth_wr, signal_every_wr, inline_bytes)| LinkDraft {
            to,
            via,
            ring_depth,
            rx_depth_wr,
            tx_depth_wr,
            signal_every_wr: signal_every_wr.min(tx_depth_wr),
            inline_bytes,
        },
    )
}

/// The draft of a seed.
pub fn draw(seed: u64) -> Draft {
    tree(seed).current()
}

/// The smallest draft on the way from a seed's that is still faulty: `is_faulty` is asked `tries`
/// times at most.
pub fn shrink(seed: u64, tries: usize, mut is_faulty: impl FnMut(&Draft) -> bool) -> Draft {
    let mut tree = tree(seed);
    let mut smallest = tree.current();
    let mut moved = tree.simplify();
    for _ in 0..tries {
        if !moved {
            break;
        }
        let draft = tree.current();
        moved = if is_faulty(&draft) {
            smallest = draft;
            tree.simplify()
        } else {
            tree.complicate()
        };
    }
    smallest
}

fn tree(seed: u64) -> impl ValueTree<Value = Draft> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    Draft::strategy().new_tree(&mut runner).expect("the strategy refuses nothing")
}
