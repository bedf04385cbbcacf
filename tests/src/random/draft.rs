//! The numbers of a random plan. Every combination of numbers is a valid plan: an impossible
//! meaning is ignored.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::drawn::{drawn, maybe, seldom, zero_or};
use super::links::{LinkDraft, RingDraft, link};
use super::marks::ASKS_END;
use super::parts::PartsDraft;

drawn! {
    /// A plan, as numbers. Zero is the simplest choice everywhere.
    pub struct Draft {
        lcores: Vec<LcoreDraft> = vec(LcoreDraft::strategy(), 1..=2),
        /// The first [`Draft::sources`] of them are sources.
        nodes: Vec<NodeDraft> = vec(NodeDraft::strategy(), 1..=6),
        sources: usize = 1..=3_usize,
        data_bytes: u16 = prop_oneof![7 => 8..200_u16, 1 => 200..4_000_u16],
        cache_packets: u16 = zero_or(1, 1..64_u16),
        /// Ports receive into a pool of their own.
        two_pools: bool = any::<bool>(),
        parts: PartsDraft = PartsDraft::strategy(),
        meddler: Option<MeddlerDraft> = maybe(4, MeddlerDraft::strategy()),
        /// Packets go through a UDP socket, as RoCE v2.
        by_wire: bool = seldom(),
        /// Its queues are this much longer, and it runs in a process of its own, whose memory is
        /// measured. 1: neither.
        scale: u16 = prop_oneof![31 => Just(1), 1 => 2..=SCALE_MAX],
        /// It is for two processes, connected by the wire.
        pair: Option<PairDraft> = maybe(23, PairDraft::strategy()),
    }
}

drawn! {
    /// Which nodes are the server's.
    pub(super) struct PairDraft {
        /// The client's last node.
        split: u8 = 0..6_u8,
        shares_address: bool = any::<bool>(),
    }
}

drawn! {
    /// A thread that changes ports, and the like, while the plan runs.
    pub(super) struct MeddlerDraft {
        seed: u32 = any::<u32>(),
        /// The longest pause between two deeds.
        pause_us: u16 = 0..2_000_u16,
        deeds: Vec<u8> = vec(0..5_u8, 1..=3),
    }
}

drawn! {
    pub(super) struct LcoreDraft {
        idle: u8 = 0..3_u8,
        burst_packets: u16 = 1..40_u16,
        spin_us: Option<u16> = maybe(1, 0..300_u16),
        dwell_us: Option<u16> = maybe(1, 0..300_u16),
        /// Only solicited messages wake it; others wait this long.
        unsolicited_us: Option<u16> = maybe(4, 0..300_u16),
        /// Of one that learns when to sleep: the share of batches that may find it asleep, and the
        /// longest that it spins.
        late_permille: Option<u16> = maybe(1, 0..=1000_u16),
        spin_max_us: Option<u16> = maybe(1, 0..300_u16),
    }
}

drawn! {
    pub(super) struct NodeDraft {
        lcore: u8 = 0..2_u8,
        outputs: Vec<OutputDraft> = vec(output(), 1..=3),
        /// The ring for several stages of the other lcore, if any link uses it.
        inbox: RingDraft = RingDraft::strategy(),
        habits: HabitDraft = HabitDraft::strategy(),
    }
}

/// Where an output leads. Several links are the places of a spread.
#[derive(Clone, Debug)]
pub(super) struct OutputDraft {
    pub(super) links: Vec<LinkDraft>,
    /// By key, in turn, as copies.
    pub(super) by: u8,
}

fn output() -> impl Strategy<Value = OutputDraft> {
    let places = prop_oneof![2 => 1..2_usize, 1 => 2..5_usize];
    places.prop_flat_map(|places| (vec(link(), 1..=places), 0..3_u8)).prop_map(|(links, by)| OutputDraft { links, by })
}

drawn! {
    /// A stage's behaviour, written as its `params`.
    pub(super) struct HabitDraft {
        seed: u32 = any::<u32>(),
        /// Packets that a source makes; `None`: it never ends.
        count: Option<u16> = prop_oneof![6 => (0..800_u16).prop_map(Some), 1 => Just(None)],
        /// Answers of `poll`, one of them at random.
        next: Vec<NextDraft> = vec(next(), 1..=3),
        hold_packets: u8 = zero_or(2, 1..=64_u8),
        drop_percent: u8 = zero_or(3, 1..50_u8),
        leave_percent: u8 = zero_or(3, 1..50_u8),
        take_percent: u8 = zero_or(3, 1..50_u8),
        /// Sends in batches, and not packet by packet.
        batches: bool = any::<bool>(),
        /// Looks for room before it sends.
        polite: bool = any::<bool>(),
        /// The most timers armed at once.
        timers: u8 = zero_or(3, 1..20_u8),
        /// Possible requests of its packets for their sends.
        asks: u8 = zero_or(1, 1..ASKS_END),
        /// It puts bytes in front of its packets.
        prepends: bool = seldom(),
    }
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
    /// With its parts in agreement.
    fn agreed(mut self) -> Draft {
        self.sources = self.sources.min(self.nodes.len());
        self.paired().grown()
    }

    /// As one for two processes, if it is: the client ends by itself, and its peer after it.
    fn paired(mut self) -> Draft {
        if self.pair.is_none() {
            return self;
        }
        (self.by_wire, self.scale) = (true, 1);
        if let [only] = &*self.lcores {
            self.lcores.push(only.clone());
        }
        for NodeDraft { habits, .. } in &mut self.nodes[..self.sources] {
            habits.count.get_or_insert(COUNT);
            habits.next.iter_mut().filter(|next| matches!(next, NextDraft::Fed)).for_each(|fed| *fed = NextDraft::Busy);
        }
        self.parts.poll.iter_mut().for_each(|poll| poll.senders = poll.senders.max(poll.askers));
        self
    }

    /// With queues as long as its scale says, of packets that are not too long for that.
    fn grown(mut self) -> Draft {
        let scale = self.scale;
        if scale == 1 {
            return self;
        }
        self.data_bytes = self.data_bytes.min(SCALED_BYTES_MAX);
        let PartsDraft { talk, operator, visits, .. } = &mut self.parts;
        let links = self.nodes.iter_mut().flat_map(|node| &mut node.outputs).flat_map(|output| &mut output.links);
        let links = links.chain(talk.iter_mut().flat_map(|talk| [&mut talk.there, &mut talk.back]));
        for link in links.chain(operator.iter_mut().map(|operator| &mut operator.port)) {
            link.rx_depth_wr *= scale;
            link.tx_depth_wr *= scale;
            link.ring.depth *= scale;
        }
        self.nodes.iter_mut().for_each(|node| node.inbox.depth *= scale);
        // Each of several connections has as many.
        visits.iter_mut().for_each(|visits| visits.rx_depth_wr *= 4);
        self
    }
}

/// Packets of a source that would never end.
const COUNT: u16 = 100;
/// The greatest [`Draft::scale`], and the longest packets of a plan that is scaled.
const SCALE_MAX: u16 = 40;
const SCALED_BYTES_MAX: u16 = 300;

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
    Draft::strategy().prop_map(Draft::agreed).new_tree(&mut runner).expect("the strategy refuses nothing")
}
