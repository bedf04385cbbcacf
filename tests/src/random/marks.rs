//! What the stages of random plans leave behind: counters, and a stamp on every packet; and what
//! plans and stages must agree on.

use verbline::engine::Counter;
use verbline::prelude::*;

/// The section that says how a random plan is run.
pub(super) const SECTION: &str = "run";
/// The most packets that are under way at once.
pub(super) const TALK_PACKETS_MAX: u8 = 8;
/// Why a stage drops packets of its own accord.
pub(super) const ON_PURPOSE: DropReason = DropReason::Stage(0);
pub(super) const DROPS: &[&str] = &["on_purpose"];
/// The most outputs that a kind has.
pub(super) const OUTPUTS_MAX: usize = 3;
/// The most stages that a plan has.
const NODES_MAX: usize = 16;
/// node, output and number of a packet, as its data begin.
pub(super) const STAMP_BYTES: usize = 8;

/// What a stage counts, for [`judge`](super::judge).
pub(super) struct Counters {
    /// Packets that it took from its pool.
    pub(super) made: Counter,
    pub(super) sent: [Counter; OUTPUTS_MAX],
    /// Packets that an output refused, and so dropped.
    pub(super) refused: [Counter; OUTPUTS_MAX],
    /// Packets given to `process`.
    pub(super) came: Counter,
    pub(super) on_purpose: Counter,
    pub(super) left: Counter,
    /// Packets that came before one that was sent before them, or were not as they were sent.
    pub(super) astray: Counter,
}

impl Counters {
    pub(super) fn new(context: &StageContext<'_>) -> Counters {
        let each = |word: &str| std::array::from_fn(|output| context.counter(format!("{word}_{output}")));
        Counters {
            made: context.counter("made"),
            sent: each("sent"),
            refused: each("refused"),
            came: context.counter("came"),
            on_purpose: context.counter("on_purpose"),
            left: context.counter("left"),
            astray: context.counter("astray"),
        }
    }
}

/// The stamps that a node puts on packets, and those that it has seen.
pub(super) struct Stamps {
    node: u16,
    /// The last number sent by each output.
    numbers: [u32; OUTPUTS_MAX],
    /// The last number received, by the sender's node and output.
    seen: [u32; NODES_MAX * OUTPUTS_MAX],
}

impl Stamps {
    pub(super) fn new(node: u16) -> Stamps {
        Stamps { node, numbers: [0; OUTPUTS_MAX], seen: [0; NODES_MAX * OUTPUTS_MAX] }
    }

    /// Marks a packet as the next one that leaves by this output.
    pub(super) fn stamp(&mut self, packet: &mut Packet, output: usize) {
        self.numbers[output] += 1;
        let stamp = &mut packet.data_mut()[..STAMP_BYTES];
        stamp[..2].copy_from_slice(&self.node.to_le_bytes());
        stamp[2..4].copy_from_slice(&(output as u16).to_le_bytes());
        stamp[4..].copy_from_slice(&self.numbers[output].to_le_bytes());
    }

    /// Whether the packet is as it was sent, and after those that were sent before it.
    pub(super) fn is_next(&mut self, packet: &Packet) -> bool {
        let Some([n0, n1, o0, o1, number @ ..]) = packet.data().first_chunk::<STAMP_BYTES>() else { return false };
        let (node, output) = (u16::from_le_bytes([*n0, *n1]), u16::from_le_bytes([*o0, *o1]));
        let number = u32::from_le_bytes(*number);
        match self.seen.get_mut(usize::from(node) * OUTPUTS_MAX + usize::from(output)) {
            Some(seen) if *seen < number => {
                *seen = number;
                true
            }
            _ => false,
        }
    }
}
