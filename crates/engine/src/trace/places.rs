//! The numbers by which events of a trace name the places and the packets of a run.

use std::ops::Range;
use std::sync::Arc;

use verbline_mem::{Packet, Pool};

use crate::stats::counter::Shared;
use crate::stats::counters::{RingConsumerStats, RingProducerStats, StageStats};

/// The places of a run by number, each with the counters by which its lcore knows it.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) stages: Vec<(Shared<StageStats>, u16)>,
    pub(crate) filled: Vec<(Shared<RingProducerStats>, u16)>,
    pub(crate) emptied: Vec<(Shared<RingConsumerStats>, u16)>,
    /// The place of the plan's first port; the others follow it.
    pub(crate) ports_from: u16,
}

/// The number of packets from an unknown pool.
const NOBODY: u32 = u32::MAX;

const LINE_BITS: u32 = 6;

/// The packets of all pools, numbered by their address: in steps of a cache line, or of twice as
/// much, and so on, where the pools are so large that there are not enough numbers for all lines.
#[derive(Debug)]
pub(crate) struct PacketNumbers {
    pools: Box<[PoolNumbers]>,
    step_bits: u32,
}

/// The memory of a pool, and the number of its first packet.
#[derive(Clone, Copy, Debug)]
struct PoolNumbers {
    from: u64,
    to: u64,
    first: u32,
}

impl PacketNumbers {
    pub(crate) fn new(pools: &[Pool]) -> PacketNumbers {
        let memory = pools.iter().map(|pool| {
            let from = pool.region().as_ptr().addr() as u64;
            from..from + pool.region().len_bytes() as u64
        });
        PacketNumbers::over(&memory.collect::<Vec<_>>())
    }

    /// The numbers for pools with this memory.
    fn over(memory: &[Range<u64>]) -> PacketNumbers {
        let steps = |pool: &Range<u64>, bits: u32| (pool.end - pool.start).div_ceil(1 << bits);
        let fits = |bits: &u32| memory.iter().map(|pool| steps(pool, *bits)).sum::<u64>() <= NOBODY.into();
        let step_bits = (LINE_BITS..u32::BITS).find(fits).unwrap_or(u32::BITS);
        let mut first = 0;
        let of_pool = |pool: &Range<u64>| {
            let one = PoolNumbers { from: pool.start, to: pool.end, first };
            first += steps(pool, step_bits) as u32;
            one
        };
        PacketNumbers { pools: memory.iter().map(of_pool).collect(), step_bits }
    }

    pub(crate) fn of(&self, packet: &Packet) -> u32 {
        self.at(packet.buffer_addr())
    }

    fn at(&self, address: u64) -> u32 {
        let pool = self.pools.iter().find(|pool| (pool.from..pool.to).contains(&address));
        pool.map_or(NOBODY, |pool| pool.first + ((address - pool.from) >> self.step_bits) as u32)
    }
}

/// Returns the place with these counters.
pub(crate) fn place_of<T>(places: &[(Shared<T>, u16)], stats: &Shared<T>) -> u16 {
    places.iter().find(|(known, _)| Arc::ptr_eq(known, stats)).map_or(u16::MAX, |(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const STRIDE: u64 = 2_048;

    #[test]
    fn packets_of_pools_without_end_have_numbers_of_their_own() {
        for sizes in [[1, 2, 3], [100, 150, 6], [255, 2, 600], [4_000, 1, 3_000]] {
            let mut from = GIB;
            let memory = sizes.map(|gib| {
                let pool = from..from + gib * GIB - STRIDE;
                from = pool.end + STRIDE;
                pool
            });
            let numbers = PacketNumbers::over(&memory);
            let mut last = None;
            for pool in &memory {
                for address in [pool.start, pool.start + STRIDE, pool.end - STRIDE] {
                    let number = numbers.at(address);
                    assert!(last < Some(number) && number != NOBODY, "{sizes:?}: {last:?}, {number}");
                    last = Some(number);
                }
                assert_eq!(numbers.at(pool.end), NOBODY);
            }
        }
    }
}
