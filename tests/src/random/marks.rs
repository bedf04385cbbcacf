//! Traces of the stages of random plans: counters, and a stamp on every packet; and constants that
//! plans and stages share.

use std::time::Duration;

use verbline::engine::{Counter, OperationKind};
use verbline::prelude::*;

/// A visitor's private data in its request.
pub(super) const HELLO: &str = "a visitor";
/// Whether these are a visitor's private data, which may be followed by zeros.
pub(super) fn is_hello(private_data: &[u8]) -> bool {
    private_data.strip_prefix(HELLO.as_bytes()).is_some_and(|rest| rest.iter().all(|byte| *byte == 0))
}
/// The section with the settings of a random run.
pub(super) const SECTION: &str = "run";
/// In that section: the plan has a process of its own.
pub(super) const ALONE: &str = "alone = true";
/// The address of a device whose packets go through a UDP socket. A process that runs plans
/// replaces it by its own address, and the groups by its own, since processes of one host share the
/// datagrams to a group.
pub(super) const WIRE_ADDRESS: &str = "127.77.77.77";
/// The beginning of all groups' addresses.
pub(super) const GROUPS: &str = "239.1.1.";
/// How the text of a reliable port begins.
pub(super) const RELIABLE: &str = "transport = \"rc\"\n";
/// A key of reliable ports of two processes, each of which others may keep from its CPU: a peer is
/// given up after four seconds, not half of one.
pub(super) const PATIENT: &str = "timeout = 17\n";
/// The most packets that are under way at once.
pub(super) const TALK_PACKETS_MAX: u8 = 8;
/// Why a stage drops packets of its own accord.
pub(super) const ON_PURPOSE: DropReason = DropReason::Stage(0);
pub(super) const DROPS: &[&str] = &["on_purpose"];
/// The most outputs that a kind has.
pub(super) const OUTPUTS_MAX: usize = 3;
/// A longer wait was for a safety time-out, which is 1 s.
pub(super) const LATE_NS: u64 = 900_000_000;
/// A plan whose sources end takes far less, unless an lcore slept through its work.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before another try, when a pool or an output has no room.
pub(super) const RETRY_NS: u64 = 20_000;
/// The most places that a spread has.
pub(super) const PLACES_MAX: usize = 4;
/// The numbers of the stages outside the graph; if there may be two of a kind, of the first.
/// Messages pushed by threads have the number of their injector.
pub(super) const CALLER: usize = 8;
pub(super) const ANSWERER: usize = 9;
pub(super) const OPERATOR: usize = 10;
pub(super) const OWNER: usize = 11;
pub(super) const LISTENER: usize = 12;
pub(super) const INJECTED: usize = 14;
pub(super) const VISITOR: usize = 16;
pub(super) const DESK: usize = 17;
pub(super) const RUSH: usize = 18;
pub(super) const RUSHED: usize = 21;
/// The numbers for ports that share a listener follow the desk of the listening one.
pub(super) const SHARD_DESK: usize = 22;
pub(super) const SHARDS_MAX: u8 = 2;
pub(super) const ASKER: usize = 24;
pub(super) const ASKERS_MAX: u8 = 3;
pub(super) const POLLED: usize = 27;
pub(super) const WATCHER: usize = 29;
const NODES_MAX: usize = 30;
/// node, output, who it is for, what it asks of its send, and number of a packet, as its data
/// begin.
pub(super) const STAMP_BYTES: usize = 8;
/// The offsets of the addressee and of the requests.
const TO_AT: usize = 2;
pub(super) const ASKS_AT: usize = 3;
/// All requests are below this.
pub(super) const ASKS_END: u8 = 16;
/// For any receiver.
pub(super) const ANYBODY: u8 = u8::MAX;
/// What a stage that prepends puts in front of a packet, at most.
pub(super) const PREPEND_BYTES: usize = 16;
/// Room for the messages of operators and visitors.
pub(super) const PART_BYTES: usize = 32;
/// A word of a region.
pub(super) const WORD_BYTES: usize = 8;
/// A sum and a word to compare and swap, before the words that are written and read.
pub(super) const WORDS_FIXED: usize = 2;
/// The memory of one operation, of which it uses some.
pub(super) const SLOT_BYTES: usize = 32;
/// Slots beyond the operations that a port takes at once.
pub(super) const SLOTS_SPARE: usize = 2;

/// The most windows of a port.
pub(super) const WINDOWS_MAX: u8 = 4;

/// The operations that an operator asks for.
pub(super) const OPERATIONS: [OperationKind; 5] = [
    OperationKind::Send,
    OperationKind::Write,
    OperationKind::Read,
    OperationKind::CompareSwap,
    OperationKind::FetchAdd,
];

/// A stage's counters, for [`judge`](super::judge).
pub(super) struct Counters {
    /// Packets that it took from its pool.
    pub(super) made: Counter,
    pub(super) sent: [Counter; OUTPUTS_MAX],
    /// Packets that an output refused, and so dropped.
    pub(super) refused: [Counter; OUTPUTS_MAX],
    /// Like `sent` and `refused`, for each place, if the key selects it; those two are the sums.
    pub(super) dealt: [[Counter; PLACES_MAX]; OUTPUTS_MAX],
    pub(super) turned: [[Counter; PLACES_MAX]; OUTPUTS_MAX],
    /// Packets that were to be copied to all places but the first.
    pub(super) copied: [Counter; OUTPUTS_MAX],
    /// Fresh packets for which the pool had none.
    pub(super) unmade: Counter,
    /// Packets given to `process`.
    pub(super) came: Counter,
    pub(super) on_purpose: Counter,
    pub(super) left: Counter,
    /// Packets out of order, or changed on the way.
    pub(super) astray: Counter,
}

impl Counters {
    pub(super) fn new(context: &StageContext<'_>) -> Counters {
        let each = |word: &str| std::array::from_fn(|output| context.counter(format!("{word}_{output}")));
        let places = |word: &str| {
            std::array::from_fn(|output| {
                std::array::from_fn(|place| context.counter(format!("{word}_{output}_{place}")))
            })
        };
        Counters {
            made: context.counter("made"),
            sent: each("sent"),
            refused: each("refused"),
            dealt: places("dealt"),
            turned: places("turned"),
            copied: each("copied"),
            unmade: context.counter("unmade"),
            came: context.counter("came"),
            on_purpose: context.counter("on_purpose"),
            left: context.counter("left"),
            astray: context.counter("astray"),
        }
    }

    /// A fresh packet, counted.
    pub(super) fn take(&self, out: &mut Outputs<'_>) -> Option<Packet> {
        let packet = out.alloc();
        if packet.is_some() { &self.made } else { &self.unmade }.add(1);
        packet
    }

    /// Drops what came, counted.
    pub(super) fn drop_all(&self, input: &mut Batch, out: &mut Outputs<'_>) {
        self.on_purpose.add(input.len() as u64);
        out.drop_batch(input, ON_PURPOSE);
    }
}

/// Stamps a packet as the `number`th of an output of a node, for this node.
pub(super) fn stamp(data: &mut [u8], node: usize, output: usize, to: u8, number: u32) {
    data[..4].copy_from_slice(&[node as u8, output as u8, to, 0]);
    data[4..STAMP_BYTES].copy_from_slice(&number.to_le_bytes());
}

/// Fills a packet behind its stamp with words derived from the stamp.
pub(super) fn fill(data: &mut [u8]) {
    let Some((stamp, rest)) = data.split_first_chunk_mut::<STAMP_BYTES>() else { return };
    for (chunk, word) in rest.chunks_mut(WORD_BYTES).zip(filling(*stamp)) {
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Whether the packet is filled this way.
pub(super) fn is_filled(data: &[u8]) -> bool {
    let Some((stamp, rest)) = data.split_first_chunk::<STAMP_BYTES>() else { return false };
    rest.chunks(WORD_BYTES).zip(filling(*stamp)).all(|(chunk, word)| *chunk == word[..chunk.len()])
}

/// Words that differ from packet to packet, and within one.
fn filling(stamp: [u8; STAMP_BYTES]) -> impl Iterator<Item = [u8; WORD_BYTES]> {
    let first = u64::from_le_bytes(stamp).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..).map(move |at| first.wrapping_add(at).to_le_bytes())
}

/// The node and the output that a packet has left by last.
pub(super) fn stamped_by(packet: &Packet) -> Option<[u8; 2]> {
    packet.data().first_chunk::<2>().copied()
}

/// The stamps that a node puts on packets, and those that it has seen.
pub(super) struct Stamps {
    node: u8,
    /// The last number sent by each output.
    numbers: [u32; OUTPUTS_MAX],
    seen: Numbers,
}

/// The last number received, by the sender's node and output.
pub(super) struct Numbers([u32; NODES_MAX * OUTPUTS_MAX]);

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers([0; NODES_MAX * OUTPUTS_MAX])
    }
}

impl Numbers {
    /// Whether a packet was sent after those that came before it.
    pub(super) fn is_next(&mut self, packet: &Packet) -> bool {
        let Some([node, output, _, _, number @ ..]) = packet.data().first_chunk::<STAMP_BYTES>() else { return false };
        let number = u32::from_le_bytes(*number);
        match self.0.get_mut(usize::from(*node) * OUTPUTS_MAX + usize::from(*output)) {
            Some(seen) if *seen < number => {
                *seen = number;
                true
            }
            _ => false,
        }
    }
}

impl Stamps {
    pub(super) fn new(node: u8) -> Stamps {
        Stamps { node, numbers: [0; OUTPUTS_MAX], seen: Numbers::default() }
    }

    /// The number of the next packet that leaves by this output.
    pub(super) fn number(&self, output: usize) -> u32 {
        self.numbers[output] + 1
    }

    /// Marks a packet as the next one that leaves by this output, for that node.
    pub(super) fn stamp(&mut self, packet: &mut Packet, output: usize, to: u8) {
        self.numbers[output] += 1;
        stamp(packet.data_mut(), self.node.into(), output, to, self.numbers[output]);
    }

    /// Whether the packet is as it was sent, for this node, and after those that were sent before
    /// it. The places of a spread are different nodes, so what came by one of them is in order.
    pub(super) fn is_next(&mut self, packet: &Packet) -> bool {
        let to = packet.data().get(TO_AT).copied();
        (to == Some(self.node) || to == Some(ANYBODY)) && self.seen.is_next(packet)
    }
}

/// The ports of a server, the one that listens first, each with the number of its desk.
pub(super) fn doors() -> impl Iterator<Item = (String, usize)> {
    let shard = |shard: usize| (format!("door{}", shard + 1), SHARD_DESK + shard);
    std::iter::once(("door".to_owned(), DESK)).chain((0..SHARDS_MAX.into()).map(shard))
}
