//! The places and the packets of a run, by the numbers that events of a trace have.

use std::sync::Arc;

use verbline_mem::{Packet, Pool};

use crate::stats::counter::Shared;
use crate::stats::counters::{RingConsumerStats, RingProducerStats, StageStats};

/// The places of a run, as events name them, each with the counters by which its lcore knows it.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) stages: Vec<(Shared<StageStats>, u16)>,
    pub(crate) filled: Vec<(Shared<RingProducerStats>, u16)>,
    pub(crate) emptied: Vec<(Shared<RingConsumerStats>, u16)>,
    /// The place of the plan's first port; the others follow it.
    pub(crate) ports_from: u16,
}

/// Packets of an unknown pool.
const NOBODY: u32 = u32::MAX;

const LINE_BITS: u32 = 6;

/// The packets of all pools, numbered by where they lie, in steps of a cache line.
#[derive(Debug)]
pub(crate) struct PacketNumbers(Box<[PoolNumbers]>);

/// The memory of a pool, and the number of its first packet.
#[derive(Clone, Copy, Debug)]
struct PoolNumbers {
    from: u64,
    to: u64,
    first: u32,
}

impl PacketNumbers {
    pub(crate) fn new(pools: &[Pool]) -> PacketNumbers {
        let mut first = 0;
        let of_pool = |pool: &Pool| {
            let from = pool.region().as_ptr().addr() as u64;
            let len = pool.region().len_bytes() as u64;
            let one = PoolNumbers { from, to: from + len, first };
            first += (len >> LINE_BITS) as u32;
            one
        };
        PacketNumbers(pools.iter().map(of_pool).collect())
    }

    pub(crate) fn of(&self, packet: &Packet) -> u32 {
        let address = packet.buffer_addr();
        let pool = self.0.iter().find(|pool| (pool.from..pool.to).contains(&address));
        pool.map_or(NOBODY, |pool| pool.first + ((address - pool.from) >> LINE_BITS) as u32)
    }
}

/// The place whose counters these are.
pub(crate) fn place_of<T>(places: &[(Shared<T>, u16)], stats: &Shared<T>) -> u16 {
    places.iter().find(|(known, _)| Arc::ptr_eq(known, stats)).map_or(u16::MAX, |(_, place)| *place)
}
