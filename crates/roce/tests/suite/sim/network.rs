//! The network: datagrams under way, and their faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use verbline_roce::wire::Route;

/// Faults, each by its chance in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
    pub(crate) changed: u32,
    /// Arrives much later than others.
    pub(crate) late: u32,
}

/// The shortest delay.
const DELAY_NS: u64 = 2_000;
/// The greatest additional delay of a late datagram.
const LATE_NS: u64 = 60_000;

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) faults: Faults,
    /// No datagram gets through in this time.
    pub(crate) cut_ns: std::ops::Range<u64>,
    /// One datagram is lost: the next one if this is 1.
    pub(crate) loses_at: Option<u64>,
    under_way: BinaryHeap<Reverse<(u64, u64)>>,
    datagrams: Vec<Option<(Route, Vec<u8>)>>,
    free: Vec<usize>,
    count: u64,
    /// All datagrams sent, if a test wants them.
    pub(crate) kept: Option<Vec<(Route, Vec<u8>)>>,
}

impl Network {
    pub(crate) fn new(faults: Faults) -> Network {
        Network {
            faults,
            cut_ns: 0..0,
            loses_at: None,
            under_way: BinaryHeap::new(),
            datagrams: Vec::new(),
            free: Vec::new(),
            count: 0,
            kept: None,
        }
    }

    pub(crate) fn send(&mut self, now_ns: u64, rng: &mut Rng, route: Route, datagram: &[u8]) {
        if let Some(kept) = &mut self.kept {
            kept.push((route, datagram.to_vec()));
        }
        let happens = |rng: &mut Rng, chance: u32| chance > 0 && rng.u32(..1000) < chance;
        self.loses_at = self.loses_at.map(|at| at.wrapping_sub(1));
        if self.loses_at == Some(0) {
            return;
        }
        if self.cut_ns.contains(&now_ns) || happens(rng, self.faults.lost) {
            return;
        }
        let copies = if happens(rng, self.faults.doubled) { rng.usize(2..4) } else { 1 };
        for _ in 0..copies {
            let mut datagram = datagram.to_vec();
            if happens(rng, self.faults.changed) {
                let bit = rng.usize(..datagram.len() * 8);
                datagram[bit / 8] ^= 1 << (bit % 8);
            }
            let late_ns = if happens(rng, self.faults.late) { rng.u64(..LATE_NS) } else { 0 };
            // Without faults the order is kept.
            self.count += 1;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.datagrams.push(None);
                self.datagrams.len() - 1
            });
            self.datagrams[slot] = Some((route, datagram));
            let key = self.count << 20 | slot as u64;
            self.under_way.push(Reverse((now_ns + DELAY_NS + late_ns, key)));
        }
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse((when_ns, _))| *when_ns)
    }

    pub(crate) fn arrived(&mut self, now_ns: u64) -> Option<(Route, Vec<u8>)> {
        self.next_ns().filter(|when_ns| *when_ns <= now_ns)?;
        let Reverse((_, key)) = self.under_way.pop()?;
        let slot = (key & 0xF_FFFF) as usize;
        self.free.push(slot);
        self.datagrams[slot].take()
    }
}
