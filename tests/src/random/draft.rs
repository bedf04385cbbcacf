//! The numbers of a random plan. Every combination of numbers is a valid plan: an impossible
//! meaning is ignored.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::links::{LinkDraft, RingDraft, link, ring};
use super::marks::ASKS_END;
use super::parts::{PartsDraft, parts};

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
    pub(super) parts: PartsDraft,
    pub(super) meddler: Option<MeddlerDraft>,
    /// Packets go through a UDP socket, as RoCE v2.
    pub(super) by_wire: bool,
}

/// A thread that changes ports, and the like, while the plan runs.
#[derive(Clone, Debug)]
pub(super) struct MeddlerDraft {
    pub(super) seed: u32,
    /// The longest pause between two deeds.
    pub(super) pause_us: u16,
    pub(super) deeds: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct LcoreDraft {
    pub(super) idle: u8,
    pub(super) burst_packets: u16,
    pub(super) spin_us: Option<u16>,
    pub(super) dwell_us: Option<u16>,
    /// Only solicited messages wake it; others wait this long.
    pub(super) unsolicited_us: Option<u16>,
    /// Of one that learns when to sleep: the share of batches that may find it asleep, and the
    /// longest that it spins.
    pub(super) late_permille: Option<u16>,
    pub(super) spin_max_us: Option<u16>,
}

#[derive(Clone, Debug)]
pub(super) struct NodeDraft {
    pub(super) lcore: u8,
    pub(super) outputs: Vec<OutputDraft>,
    /// The ring for several stages of the other lcore, if any link uses it.
    pub(super) inbox: RingDraft,
    pub(super) habits: HabitDraft,
}

/// Where an output leads. Several links are the places of a spread.
#[derive(Clone, Debug)]
pub(super) struct OutputDraft {
    pub(super) links: Vec<LinkDraft>,
    /// By key, in turn, as copies.
    pub(super) by: u8,
}

/// A stage's behaviour, written as its `params`.
#[derive(Clone, Debug)]
pub(super) struct HabitDraft {
    pub(super) seed: u32,
    /// Packets that a source makes; `None`: it never ends.
    pub(super) count: Option<u16>,
    /// Answers of `poll`, one of them at random.
    pub(super) next: Vec<NextDraft>,
    pub(super) hold_packets: u8,
    pub(super) drop_percent: u8,
    pub(super) leave_percent: u8,
    pub(super) take_percent: u8,
    /// Sends in batches, and not packet by packet.
    pub(super) batches: bool,
    /// Looks for room before it sends.
    pub(super) polite: bool,
    /// The most timers armed at once.
    pub(super) timers: u8,
    /// Possible requests of its packets for their sends.
    pub(super) asks: u8,
    /// It puts bytes in front of its packets.
    pub(super) prepends: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum NextDraft {
    Busy,
    /// This many µs from now.
    After(u16),
    /// Tick 0 or 1: long past.
    Past(u8),
    Idle,
    /// `At(Tick::MAX)`.
    Fed,
    Done,
}

impl Draft {
    fn strategy() -> impl Strategy<Value = Draft> {
        let lcores = prop::collection::vec(lcore(), 1..=2);
        let nodes = prop::collection::vec(node(), 1..=6);
        let data_bytes = prop_oneof![7 => 8..200_u16, 1 => 200..4_000_u16];
        let meddlers = prop_oneof![4 => Just(None), 1 => meddler().prop_map(Some)];
        let whole = (data_bytes, prop_oneof![Just(0), 1..64_u16], any::<bool>());
        let wires = prop_oneof![3 => Just(false), 1 => Just(true)];
        (lcores, nodes, 1..=3_usize, whole, parts(), meddlers, wires).prop_map(
            |(lcores, nodes, sources, (data_bytes, cache_packets, two_pools), parts, meddler, by_wire)| {
                let sources = sources.min(nodes.len());
                Draft { lcores, nodes, sources, data_bytes, cache_packets, two_pools, parts, meddler, by_wire }
            },
        )
    }
}

fn meddler() -> impl Strategy<Value = MeddlerDraft> {
    (any::<u32>(), 0..2_000_u16, prop::collection::vec(0..5_u8, 1..=3))
        .prop_map(|(seed, pause_us, deeds)| MeddlerDraft { seed, pause_us, deeds })
}

fn lcore() -> impl Strategy<Value = LcoreDraft> {
    let micros = || prop_oneof![Just(None), (0..300_u16).prop_map(Some)];
    let unsolicited = prop_oneof![4 => Just(None), 1 => (0..300_u16).prop_map(Some)];
    let share = prop_oneof![Just(None), (0..=1000_u16).prop_map(Some)];
    (0..3_u8, 1..40_u16, micros(), micros(), unsolicited, share, micros()).prop_map(
        |(idle, burst_packets, spin_us, dwell_us, unsolicited_us, late_permille, spin_max_us)| LcoreDraft {
            idle,
            burst_packets,
            spin_us,
            dwell_us,
            unsolicited_us,
            late_permille,
            spin_max_us,
        },
    )
}

fn node() -> impl Strategy<Value = NodeDraft> {
    (0..2_u8, prop::collection::vec(output(), 1..=3), ring(), habits())
        .prop_map(|(lcore, outputs, inbox, habits)| NodeDraft { lcore, outputs, inbox, habits })
}

fn output() -> impl Strategy<Value = OutputDraft> {
    let places = prop_oneof![2 => 1..2_usize, 1 => 2..5_usize];
    places
        .prop_flat_map(|places| (prop::collection::vec(link(), 1..=places), 0..3_u8))
        .prop_map(|(links, by)| OutputDraft { links, by })
}

fn habits() -> impl Strategy<Value = HabitDraft> {
    let seldom = || prop_oneof![3 => Just(0), 1 => 1..50_u8];
    let counts = prop_oneof![6 => (0..800_u16).prop_map(Some), 1 => Just(None)];
    let next = prop::collection::vec(next(), 1..=3);
    let hold = prop_oneof![2 => Just(0), 1 => 1..=64_u8];
    let often = (any::<u32>(), counts, next, hold);
    let timers = prop_oneof![3 => Just(0), 1 => 1..20_u8];
    let sends = (prop_oneof![1 => Just(0), 1 => 1..ASKS_END], prop_oneof![3 => Just(false), 1 => Just(true)]);
    (often, seldom(), seldom(), seldom(), any::<bool>(), any::<bool>(), timers, sends).prop_map(
        |(
            (seed, count, next, hold_packets),
            drop_percent,
            leave_percent,
            take_percent,
            batches,
            polite,
            timers,
            (asks, prepends),
        )| {
            HabitDraft {
                seed,
                count,
                next,
                hold_packets,
                drop_percent,
                leave_percent,
                take_percent,
                batches,
                polite,
                timers,
                asks,
                prepends,
            }
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
