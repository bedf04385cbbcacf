//! The two ends of a ring, each with the lcore that owns it.

use verbline_mem::Packet;
use verbline_ring::{Consumer, Producer, Waker};

use crate::api::outputs::Sink;
use crate::stats::count::Shared;
use crate::stats::counters::{RingConsumerStats, RingProducerStats};

/// A ring that this lcore empties.
#[derive(Debug)]
pub(crate) struct RingConsumer {
    pub(crate) consumer: Consumer<Packet>,
    /// Index of the sink that it empties into.
    pub(crate) sink: usize,
    pub(crate) burst: usize,
    pub(crate) stats: Shared<RingConsumerStats>,
}

impl RingConsumer {
    /// Takes a burst, or what the consumer's input has room for. What does not fit stays in the
    /// ring.
    #[inline]
    pub(crate) fn poll(&mut self, sinks: &mut [Sink]) -> usize {
        let batch = &mut sinks[self.sink].batch;
        let popped = batch.push_iter(self.consumer.pop_iter(self.burst.min(batch.room())));
        if popped > 0 {
            self.stats.popped.add(popped as u64);
            self.stats.pop_batches.add(1);
        }
        popped
    }

    /// Notes how much was in it, right after `popped` were taken. For timed turns: it reads the
    /// producer's line.
    #[cold]
    pub(crate) fn gauge(&self, popped: usize) {
        self.stats.most.raise_to((popped + self.consumer.len()).min(self.consumer.capacity()) as u64);
    }
}

/// A ring that this lcore fills.
#[derive(Debug)]
pub(crate) struct RingProducer {
    pub(crate) producer: Producer<Packet>,
    /// Index of the sink that gathers for it.
    pub(crate) sink: usize,
    /// Index of the consumer's doorbell among the lcore's.
    pub(crate) doorbell: usize,
    pub(crate) stats: Shared<RingProducerStats>,
}

impl RingProducer {
    /// Publishes what has gathered, as far as the ring has room; the rest waits. Says how many.
    #[inline]
    pub(crate) fn flush(&mut self, sinks: &mut [Sink]) -> usize {
        let batch = &mut sinks[self.sink].batch;
        if batch.is_empty() {
            return 0;
        }
        // Bounded by the room beforehand: a drain that is not asked for all it was given drops the
        // rest.
        let n = self.producer.room_for(batch.len());
        if n < batch.len() {
            self.stats.full.add(1);
        }
        let pushed = self.producer.push_iter(n, batch.drain_front(n));
        self.stats.pending.set(batch.len() as u64);
        if pushed > 0 {
            self.stats.pushed.add(pushed as u64);
            self.stats.push_batches.add(1);
        }
        pushed
    }
}

/// The doorbell of another lcore, rung once a loop at most however many rings lead there.
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
