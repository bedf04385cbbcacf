//! The generator's own book of one instrument: a fixed band of ticks, each a queue of orders in
//! time priority.
//!
//! It is deliberately built unlike [`crate::book`]: arrays by tick and linked queues, so that the
//! two can check each other.

use crate::itch::{Side, Symbol};

/// One cent, the price step, in 1/10 000 dollar.
pub const TICK_E4: u32 = 100;

/// A price level of the generator's book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TruthLevel {
    /// The price in 1/10 000 dollar.
    pub price_e4: u32,
    /// Orders at that price.
    pub orders: u32,
    /// Their shares together.
    pub shares: u64,
}

/// A live order of the generator's book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveOrder {
    /// The order's reference number.
    pub reference: u64,
    /// Its side.
    pub side: Side,
    /// Its price in 1/10 000 dollar.
    pub price_e4: u32,
    /// Its shares.
    pub shares: u32,
}

/// The width of the band; the walk turns back well within it.
const BAND_TICKS: u32 = 4096;
const MARGIN_TICKS: u32 = 1024;
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Slot {
    reference: u64,
    shares: u32,
    /// Index into the band.
    tick: u32,
    side: Side,
    before: u32,
    after: u32,
    /// This slot's index in `live`.
    live_at: u32,
}

#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
    orders: u32,
    shares: u64,
}

const EMPTY: Queue = Queue { first: NIL, last: NIL, orders: 0, shares: 0 };

/// An order, with its slot for [`TruthBook::take`].
#[derive(Clone, Copy)]
pub(super) struct TruthOrder {
    pub(super) reference: u64,
    pub(super) side: Side,
    pub(super) ticks: u32,
    pub(super) shares: u32,
    pub(super) reference_slot: u32,
}

pub(super) struct TruthBook {
    pub(super) locate: u16,
    pub(super) symbol: Symbol,
    /// The price of the band's first tick, in ticks.
    base_ticks: u32,
    /// The walk's place in the band.
    mid: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots in use, in no order, to pick one at random.
    live: Vec<u32>,
    queues: [Vec<Queue>; 2],
    /// The best tick of each side; if its queue is empty, so is the side.
    best: [u32; 2],
}

impl TruthBook {
    /// Memory that a book of this many live orders allocates, in bytes.
    pub(super) fn memory_bytes(capacity: u32) -> u64 {
        u64::from(capacity) * (size_of::<Slot>() + 2 * size_of::<u32>()) as u64
            + 2 * u64::from(BAND_TICKS) * size_of::<Queue>() as u64
            + size_of::<TruthBook>() as u64
    }

    pub(super) fn new(locate: u16, symbol: Symbol, mid_ticks: u32, capacity: u32) -> Self {
        let mid = BAND_TICKS / 2;
        // Written to now, so that no lcore takes the first page fault on it.
        let mut live = vec![NIL; capacity as usize];
        live.clear();
        Self {
            locate,
            symbol,
            base_ticks: mid_ticks.max(mid + 1) - mid,
            mid,
            slots: vec![
                Slot { reference: 0, shares: 0, tick: 0, side: Side::Buy, before: NIL, after: NIL, live_at: 0 };
                capacity as usize
            ],
            free: (0..capacity).rev().collect(),
            live,
            queues: [vec![EMPTY; BAND_TICKS as usize], vec![EMPTY; BAND_TICKS as usize]],
            best: [0, BAND_TICKS - 1],
        }
    }

    pub(super) fn live(&self) -> usize {
        self.live.len()
    }

    pub(super) fn mid_e4(&self) -> u32 {
        (self.base_ticks + self.mid) * TICK_E4
    }

    /// Moves the walk one tick up or down, but back if the band's margin is reached.
    pub(super) fn walk(&mut self, up: bool) {
        let up = if self.mid <= MARGIN_TICKS { true } else { up && self.mid < BAND_TICKS - MARGIN_TICKS };
        self.mid = if up { self.mid + 1 } else { self.mid - 1 };
    }

    /// The side whose best price the walk has passed.
    pub(super) fn crossed(&self) -> Option<Side> {
        if self.best_tick(Side::Sell).is_some_and(|ask| ask < self.mid) {
            return Some(Side::Sell);
        }
        self.best_tick(Side::Buy).filter(|&bid| bid > self.mid).map(|_| Side::Buy)
    }

    /// A price `offset` ticks behind the walk that does not meet the other side.
    pub(super) fn passive_price(&self, side: Side, offset: u32) -> u32 {
        let offset = offset.min(MARGIN_TICKS / 2);
        match side {
            Side::Buy => {
                let limit = self.best_tick(Side::Sell).map_or(self.mid, |ask| ask - 1);
                (self.mid - offset).min(limit)
            }
            Side::Sell => {
                let limit = self.best_tick(Side::Buy).map_or(self.mid, |bid| bid + 1);
                (self.mid + offset).max(limit)
            }
        }
    }

    /// Adds an order at a tick of the band; `None` if there is no room.
    pub(super) fn add(&mut self, reference: u64, side: Side, tick: u32, shares: u32) -> Option<TruthOrder> {
        let slot = self.free.pop()?;
        let queue = &mut self.queues[side as usize][tick as usize];
        let live_at = self.live.len() as u32;
        self.slots[slot as usize] = Slot { reference, shares, tick, side, before: queue.last, after: NIL, live_at };
        self.live.push(slot);
        match queue.last {
            NIL => queue.first = slot,
            last => self.slots[last as usize].after = slot,
        }
        queue.last = slot;
        queue.orders += 1;
        queue.shares += u64::from(shares);
        let is_better = match side {
            Side::Buy => tick > self.best[0],
            Side::Sell => tick < self.best[1],
        };
        if is_better {
            self.best[side as usize] = tick;
        }
        Some(self.order(slot))
    }

    /// The next order to execute on a side.
    pub(super) fn first(&self, side: Side) -> Option<TruthOrder> {
        let tick = self.best_tick(side)?;
        Some(self.order(self.queues[side as usize][tick as usize].first))
    }

    /// The live order at an index of `live`, which is in no order.
    pub(super) fn order_at(&self, place: u32) -> TruthOrder {
        self.order(self.live[place as usize])
    }

    pub(super) fn remove_at(&mut self, place: u32) -> TruthOrder {
        let order = self.order_at(place);
        self.take(order.reference_slot, order.shares);
        order
    }

    /// Takes shares from an order, and removes the order with its last share.
    pub(super) fn take(&mut self, slot: u32, shares: u32) {
        let at = slot as usize;
        self.slots[at].shares -= shares;
        let Slot { tick, side, before, after, shares: left, live_at, .. } = self.slots[at];
        let queue = &mut self.queues[side as usize][tick as usize];
        queue.shares -= u64::from(shares);
        if left > 0 {
            return;
        }
        queue.orders -= 1;
        match before {
            NIL => queue.first = after,
            before => self.slots[before as usize].after = after,
        }
        match after {
            NIL => queue.last = before,
            after => self.slots[after as usize].before = before,
        }
        self.live.swap_remove(live_at as usize);
        if let Some(&moved) = self.live.get(live_at as usize) {
            self.slots[moved as usize].live_at = live_at;
        }
        self.free.push(slot);
        self.settle_best(side);
    }

    /// The levels of a side, best first.
    pub(super) fn levels(&self, side: Side) -> impl Iterator<Item = TruthLevel> + '_ {
        let queues = &self.queues[side as usize];
        (0..BAND_TICKS)
            .map(move |at| match side {
                Side::Buy => BAND_TICKS - 1 - at,
                Side::Sell => at,
            })
            .filter_map(move |tick| {
                let queue = &queues[tick as usize];
                let price_e4 = (self.base_ticks + tick) * TICK_E4;
                (queue.orders > 0).then_some(TruthLevel { price_e4, orders: queue.orders, shares: queue.shares })
            })
    }

    /// All live orders, in no order.
    pub(super) fn orders(&self) -> impl Iterator<Item = LiveOrder> + '_ {
        self.live.iter().map(|&slot| {
            let Slot { reference, side, tick, shares, .. } = self.slots[slot as usize];
            LiveOrder { reference, side, price_e4: (self.base_ticks + tick) * TICK_E4, shares }
        })
    }

    fn order(&self, slot: u32) -> TruthOrder {
        let Slot { reference, side, tick, shares, .. } = self.slots[slot as usize];
        TruthOrder { reference, side, ticks: self.base_ticks + tick, shares, reference_slot: slot }
    }

    fn best_tick(&self, side: Side) -> Option<u32> {
        let tick = self.best[side as usize];
        (self.queues[side as usize][tick as usize].orders > 0).then_some(tick)
    }

    /// Moves a side's best tick to the next level, or to the end of the band.
    fn settle_best(&mut self, side: Side) {
        let queues = &self.queues[side as usize];
        let best = &mut self.best[side as usize];
        match side {
            Side::Buy => {
                while queues[*best as usize].orders == 0 && *best > 0 {
                    *best -= 1;
                }
            }
            Side::Sell => {
                while queues[*best as usize].orders == 0 && *best < BAND_TICKS - 1 {
                    *best += 1;
                }
            }
        }
    }
}
