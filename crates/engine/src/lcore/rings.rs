//! The two ends of a ring, each on the lcore that owns it, and the rings that hold their producers
//! back. While packets wait for room in such a ring, the stages that lead to it are neither called
//! nor polled. The plan has proved three things: the batch before such a ring takes all packets
//! that these stages send in one turn; no port feeds them; the wait ends. So no packet is dropped
//! on the way to it.

use verbline_mem::Packet;
use verbline_ring::{Consumer, Displaced, Displacer, Producer, Waker};

use crate::lcore::node::Node;
use crate::ports::sink::Sink;
use crate::stats::counter::Shared;
use crate::stats::counters::{RingConsumerStats, RingProducerStats};

/// A ring that this lcore empties.
#[derive(Debug)]
pub(crate) struct RingConsumer {
    pub(crate) consumer: Consumer<Packet>,
    /// The index of the sink that it empties into.
    pub(crate) sink: usize,
    pub(crate) burst: usize,
    pub(crate) stats: Shared<RingConsumerStats>,
    /// Present for a ring that drops the oldest.
    pub(crate) displaced: Option<Displaced>,
    pub(crate) order: PollOrder,
}

/// A lane's place among the lanes that its lcore empties. The lanes of one consumer stand side by
/// side, the most urgent first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PollOrder {
    /// The number of lanes behind it with the same consumer and priority.
    pub(crate) peers: usize,
    /// The number of lanes behind those with the same consumer and a lower priority.
    pub(crate) lower: usize,
}

impl PollOrder {
    /// Returns the places of lanes, given as (consumer, priority).
    pub(crate) fn of<T: PartialEq>(lanes: &[(T, u32)]) -> Vec<PollOrder> {
        let behind = |at: usize, is: &dyn Fn(u32, u32) -> bool| {
            let (consumer, priority) = &lanes[at];
            let others = lanes[at + 1..].iter();
            others.filter(|(other, number)| other == consumer && is(*number, *priority)).count()
        };
        let order = |at| PollOrder { peers: behind(at, &|a, b| a == b), lower: behind(at, &|a, b| a < b) };
        (0..lanes.len()).map(order).collect()
    }
}

impl RingConsumer {
    /// Takes a burst, or as many packets as the consumer's input has room for. The rest stays in
    /// the ring.
    #[inline]
    pub(crate) fn poll(&mut self, sinks: &mut [Sink]) -> usize {
        if let Some(displaced) = &mut self.displaced {
            displace(displaced, &mut self.consumer, &self.stats);
        }
        let batch = &mut sinks[self.sink].batch;
        let popped = batch.push_iter(self.consumer.pop_iter(self.burst.min(batch.room())));
        if popped > 0 {
            if let Some(displaced) = &mut self.displaced {
                displaced.note_taken(popped);
            }
            self.stats.popped.add(popped as u64);
            self.stats.pop_batches.add(1);
        }
        popped
    }

    /// Whether a poll would take a packet.
    pub(crate) fn has_more(&self, sinks: &[Sink]) -> bool {
        sinks[self.sink].batch.room() > 0 && !self.consumer.is_empty()
    }

    /// Records the ring's fill, right after `popped` packets were taken. For timed turns only: it
    /// reads the producer's cache line.
    #[cold]
    pub(crate) fn gauge(&self, popped: usize) {
        self.stats.most.raise_to((popped + self.consumer.len()).min(self.consumer.capacity()) as u64);
    }
}

/// Drops the ring's oldest packets, as many as are in the way of the packets that wait for room.
#[cold]
fn displace(displaced: &mut Displaced, consumer: &mut Consumer<Packet>, stats: &RingConsumerStats) {
    let in_the_way = displaced.in_the_way();
    if in_the_way > 0 {
        let dropped = consumer.pop_into(in_the_way, drop);
        displaced.note_taken(dropped);
        stats.displaced.add(dropped as u64);
    }
}

/// Moves the first of the lanes of one consumer and priority behind the others, so that another
/// lane comes first where there is not room for all.
#[cold]
pub(crate) fn take_turns(lanes: &mut [RingConsumer]) {
    lanes.rotate_left(1);
    for (behind, lane) in lanes.iter_mut().rev().enumerate() {
        lane.order.peers = behind;
    }
}

/// A ring that this lcore fills.
#[derive(Debug)]
pub(crate) struct RingProducer {
    pub(crate) producer: Producer<Packet>,
    /// The index of the sink that gathers for it.
    pub(crate) sink: usize,
    /// The index of the consumer's doorbell among the lcore's.
    pub(crate) doorbell: usize,
    pub(crate) stats: Shared<RingProducerStats>,
    /// Present for a ring that drops the oldest.
    pub(crate) displacer: Option<Displacer>,
}

impl RingProducer {
    /// Publishes gathered packets, as far as the ring has room; the rest waits. Returns the number
    /// published.
    #[inline]
    pub(crate) fn flush(&mut self, sinks: &mut [Sink]) -> usize {
        let batch = &mut sinks[self.sink].batch;
        if batch.is_empty() {
            return 0;
        }
        // Limited to the room beforehand: a drain that is not consumed to its end drops the rest.
        let n = self.producer.room_for(batch.len());
        if n < batch.len() {
            self.stats.full.add(1);
        }
        let pushed = self.producer.push_iter(n, batch.drain_front(n));
        self.stats.pending.set(batch.len() as u64);
        if let Some(displacer) = &mut self.displacer {
            displacer.ask(pushed, batch.len());
        }
        if pushed > 0 {
            self.stats.pushed.add(pushed as u64);
            self.stats.push_batches.add(1);
        }
        pushed
    }
}

/// The doorbell of another lcore, rung at most once a loop, even if several rings lead there.
#[derive(Debug)]
pub(crate) struct PeerDoorbell {
    pub(crate) waker: Waker,
    pub(crate) due: bool,
}

impl PeerDoorbell {
    /// Rings if something was published since the last time.
    #[inline]
    pub(crate) fn ring_if_due(&mut self) -> bool {
        std::mem::take(&mut self.due) && self.waker.ring()
    }
}

/// One lane that holds back.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The index of the sink that gathers for it.
    pub(crate) sink: usize,
    /// The indices of the nodes that lead to it.
    pub(crate) nodes: Box<[usize]>,
    /// Whether packets waited at the last look.
    pub(crate) waits: bool,
}

impl Hold {
    pub(crate) fn new(sink: usize, nodes: Box<[usize]>) -> Hold {
        Hold { sink, nodes, waits: false }
    }
}

/// Holds nodes back or lets them run again, by whether packets wait now. Returns true if one may
/// run again.
#[inline(never)]
pub(crate) fn update_holds(holds: &mut [Hold], sinks: &[Sink], nodes: &mut [Node]) -> bool {
    let mut let_go = false;
    for hold in holds {
        let waits = !sinks[hold.sink].batch.is_empty();
        if waits == std::mem::replace(&mut hold.waits, waits) {
            continue;
        }
        for node in &hold.nodes {
            let_go |= nodes[*node].hold(waits);
        }
    }
    let_go
}

#[cfg(test)]
mod tests {
    use verbline_mem::Batch;

    use super::*;
    use crate::ports::sink::SinkStats;
    use crate::rig::Rig;
    use crate::stats::counter::shared;
    use crate::stats::drop_reason::DropReason;

    #[test]
    fn each_lane_knows_how_many_behind_it_are_its_equals_and_how_many_less_urgent() {
        let lanes = [("a", 7), ("a", 7), ("a", 7), ("a", 3), ("a", 1), ("a", 1), ("b", 7), ("b", 2)];
        let orders = PollOrder::of(&lanes).into_iter().map(|order| (order.peers, order.lower));
        let expected = [(2, 3), (1, 3), (0, 3), (0, 2), (1, 0), (0, 0), (0, 1), (0, 0)];
        assert_eq!(orders.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_ring_without_room_takes_nothing_and_only_that_is_counted() {
        let (rig, stats) = (Rig::new(8), shared::<RingProducerStats>());
        let (producer, mut consumer) = verbline_ring::spsc(2);
        let sink = Sink::new(8, DropReason::RingFull, SinkStats::Ring(Shared::clone(&stats)));
        let mut sinks = [sink];
        let mut ring = RingProducer { producer, sink: 0, doorbell: 0, stats: Shared::clone(&stats), displacer: None };
        let mut batch = Batch::with_capacity(3);
        assert_eq!(rig.pool.cache(0).get_bulk(&mut batch, 3), 3);
        sinks[0].batch.append(&mut batch);
        let counted = || [&stats.pushed, &stats.push_batches, &stats.full, &stats.pending].map(|count| count.value());
        assert_eq!((ring.flush(&mut sinks), counted()), (2, [2, 1, 1, 1]));
        assert_eq!((ring.flush(&mut sinks), counted()), (0, [2, 1, 2, 1]));
        drop(consumer.pop());
        assert_eq!((ring.flush(&mut sinks), counted()), (1, [3, 2, 2, 0]));
        assert_eq!((ring.flush(&mut sinks), counted()), (0, [3, 2, 2, 0]), "nothing waits");
    }

    #[test]
    fn a_full_ring_that_displaces_loses_as_many_of_its_oldest_as_wait() {
        let rig = Rig::new(8);
        let (producer, consumer) = verbline_ring::spsc(4);
        let (displacer, displaced) = verbline_ring::displacement(4);
        let [filled, emptied] = [shared::<RingProducerStats>(), shared()];
        let stats: Shared<RingConsumerStats> = shared();
        let mut to_ring = [Sink::new(8, DropReason::Displaced, SinkStats::Ring(Shared::clone(&filled)))];
        let mut from_ring = [Sink::new(8, DropReason::StageFull, SinkStats::Ring(emptied))];
        let mut fills = RingProducer { producer, sink: 0, doorbell: 0, stats: filled, displacer: Some(displacer) };
        let mut empties = RingConsumer {
            consumer,
            sink: 0,
            burst: 8,
            stats: Shared::clone(&stats),
            displaced: Some(displaced),
            order: PollOrder::default(),
        };
        let mut next = 0;
        let mut round = |waiting: u64| {
            for mark in next..next + waiting {
                let mut packet = rig.pool.cache(0).get().unwrap();
                packet.set_mark(mark);
                assert!(to_ring[0].push(packet));
            }
            next += waiting;
            fills.flush(&mut to_ring);
            empties.poll(&mut from_ring);
            let marks: Vec<u64> = from_ring[0].batch.iter().map(Packet::mark).collect();
            from_ring[0].batch.clear();
            (marks, stats.displaced.value(), stats.popped.value())
        };
        assert_eq!(round(3), (vec![0, 1, 2], 0, 3), "there is room for all");
        assert_eq!(round(6), (vec![5, 6], 2, 5), "two wait, for which the oldest two go");
        assert_eq!(round(0), (vec![7, 8], 2, 7), "they have come, and nobody waits");
    }

    #[test]
    fn what_a_poll_takes_is_counted_and_the_most_that_was_there() {
        let (rig, stats) = (Rig::new(8), shared::<RingConsumerStats>());
        let (mut producer, consumer) = verbline_ring::spsc(8);
        let mut ring = RingConsumer {
            consumer,
            sink: 0,
            burst: 2,
            stats: Shared::clone(&stats),
            displaced: None,
            order: PollOrder::default(),
        };
        let mut sinks = [Sink::new(3, DropReason::RingFull, SinkStats::Ring(shared()))];
        let counted = || [&stats.popped, &stats.pop_batches, &stats.most].map(|count| count.value());
        assert_eq!((ring.poll(&mut sinks), counted()), (0, [0, 0, 0]));
        for _ in 0..5 {
            assert!(producer.push(rig.pool.cache(0).get().unwrap()).is_ok());
        }
        // First a burst, then as many as there is room for, then none.
        for (taken, expected) in [(2, [2, 1, 5]), (1, [3, 2, 5]), (0, [3, 2, 5])] {
            assert!(ring.has_more(&sinks) || taken == 0);
            assert_eq!(ring.poll(&mut sinks), taken);
            ring.gauge(taken);
            assert_eq!(counted(), expected);
        }
        assert!(!ring.has_more(&sinks), "there is more, and no room for it");
    }

    #[test]
    fn a_doorbell_is_rung_once_for_what_was_published() {
        let (waker, _sleeper) = verbline_ring::doorbell().unwrap();
        let mut doorbell = PeerDoorbell { waker, due: false };
        assert!(!doorbell.ring_if_due() && !doorbell.due);
        doorbell.due = true;
        assert!(!doorbell.ring_if_due(), "nobody sleeps who could be woken");
        assert!(!doorbell.due);
    }
}
