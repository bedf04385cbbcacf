//! One side of a full-depth book: its price levels, found by price when an order is added and by
//! place when it is removed.
//!
//! A level keeps its place while it has orders, and each order stores that place, so that later
//! events of an order need no search. A new order is searched by price in one sorted array of keys,
//! the best last: sixteen keys are a cache line, and the sixteen best are compared all at once,
//! without a branch to mispredict. The rest is bisected.

use crate::itch::Side;

/// A price level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The price in 1/10 000 dollar.
    pub price_e4: u32,
    /// Orders at that price.
    pub orders: u32,
    /// Their shares together.
    pub shares: u64,
}

/// The effect of an update on the best level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Touched {
    /// The update was at the best level, or created or removed it.
    pub(super) top: bool,
}

/// A price, mapped so that greater is better on both sides. Signed, as SSE2 compares only signed
/// words.
type Key = i32;

#[derive(Clone, Copy)]
struct Node {
    key: Key,
    orders: u32,
    /// In a free node, the next free place.
    shares: u64,
}

/// The fields that an update needs before its level: one cache line.
#[repr(align(64))]
pub(super) struct Ladder {
    /// The first `len` are in use, ascending: the best last.
    keys: Box<[Key]>,
    /// The place in `nodes` of the key at the same index.
    places: Box<[u32]>,
    nodes: Box<[Node]>,
    len: u32,
    /// The place of the best level; [`NONE`] in an empty ladder.
    best: u32,
    /// The first free place; [`NONE`] if all are taken.
    free: u32,
    /// `(price ^ flip) as i32` sorts bids by ascending price, asks by descending price.
    flip: u32,
}

const _: () = assert!(size_of::<Ladder>() == 64);

const NONE: u32 = u32::MAX;

/// Keys compared at once, from the best.
const NEAR: usize = 16;

impl Ladder {
    /// Memory that a ladder of this capacity allocates, in bytes.
    pub(super) fn memory_bytes(capacity: u32) -> u64 {
        u64::from(capacity) * (size_of::<Key>() + size_of::<u32>() + size_of::<Node>()) as u64
            + size_of::<Ladder>() as u64
    }

    pub(super) fn new(side: Side, capacity: u32) -> Self {
        let flip = match side {
            Side::Buy => 1 << 31,
            Side::Sell => !(1 << 31),
        };
        let mut ladder = Self {
            keys: vec![0; capacity as usize].into_boxed_slice(),
            places: vec![0; capacity as usize].into_boxed_slice(),
            nodes: vec![Node { key: 0, orders: 0, shares: 0 }; capacity as usize].into_boxed_slice(),
            len: 0,
            best: NONE,
            free: NONE,
            flip,
        };
        ladder.clear();
        ladder
    }

    /// Removes all levels.
    pub(super) fn clear(&mut self) {
        (self.len, self.best, self.free) = (0, NONE, NONE);
        for (place, node) in self.nodes.iter_mut().enumerate().rev() {
            *node = Node { key: 0, orders: 0, shares: u64::from(self.free) };
            self.free = place as u32;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn best(&self) -> Option<Level> {
        self.nodes.get(self.best as usize).map(|node| self.level(node))
    }

    /// The levels, best first.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = Level> + '_ {
        self.places[..self.len()].iter().rev().map(|&place| self.level(&self.nodes[place as usize]))
    }

    #[inline]
    pub(super) fn price_e4(&self, place: u32) -> u32 {
        self.nodes[place as usize].key as u32 ^ self.flip
    }

    /// Adds an order and returns its level's place; `None` if the level is new and has no room.
    #[inline]
    pub(super) fn add(&mut self, price_e4: u32, shares: u32) -> Option<(u32, Touched)> {
        let key = (price_e4 ^ self.flip) as Key;
        let place = match self.find(key) {
            Ok(at) => self.places[at],
            Err(at) => self.open(at, key)?,
        };
        let node = &mut self.nodes[place as usize];
        node.orders += 1;
        node.shares += u64::from(shares);
        Some((place, self.touched(place)))
    }

    /// Takes shares from an order that stays in the book.
    #[inline]
    pub(super) fn reduce(&mut self, place: u32, shares: u32) -> Touched {
        self.nodes[place as usize].shares -= u64::from(shares);
        self.touched(place)
    }

    /// Removes an order with its last shares.
    #[inline]
    pub(super) fn remove(&mut self, place: u32, shares: u32) -> Touched {
        let touched = self.touched(place);
        let node = &mut self.nodes[place as usize];
        node.orders -= 1;
        node.shares -= u64::from(shares);
        if node.orders == 0 {
            self.close(place);
        }
        touched
    }

    #[inline]
    fn touched(&self, place: u32) -> Touched {
        Touched { top: place == self.best }
    }

    #[inline]
    fn level(&self, node: &Node) -> Level {
        Level { price_e4: node.key as u32 ^ self.flip, orders: node.orders, shares: node.shares }
    }

    /// Inserts a new level at the index `at`.
    #[inline(never)]
    fn open(&mut self, at: usize, key: Key) -> Option<u32> {
        let place = self.free;
        let node = self.nodes.get_mut(place as usize)?;
        self.free = node.shares as u32;
        *node = Node { key, orders: 0, shares: 0 };
        let len = self.len();
        self.keys.copy_within(at..len, at + 1);
        self.places.copy_within(at..len, at + 1);
        self.keys[at] = key;
        self.places[at] = place;
        self.len += 1;
        if at == len {
            self.best = place;
        }
        Some(place)
    }

    /// Frees a level whose last order is gone.
    #[inline(never)]
    fn close(&mut self, place: u32) {
        let Ok(at) = self.find(self.nodes[place as usize].key) else {
            debug_assert!(false, "no key for the level at {place}: `open` and `close` keep keys and nodes together");
            return;
        };
        let len = self.len();
        self.keys.copy_within(at + 1..len, at);
        self.places.copy_within(at + 1..len, at);
        self.len -= 1;
        if place == self.best {
            self.best = self.places[..self.len()].last().copied().unwrap_or(NONE);
        }
        self.nodes[place as usize].shares = u64::from(self.free);
        self.free = place;
    }

    /// The index of the key, or the one where it belongs.
    #[inline]
    fn find(&self, key: Key) -> Result<usize, usize> {
        let keys = &self.keys[..self.len()];
        let below = match keys.last_chunk::<NEAR>() {
            Some(near) => match near.iter().map(|&near| i32::from(near >= key)).sum::<i32>() as usize {
                NEAR => keys[..keys.len() - NEAR + 1].partition_point(|&far| far < key),
                not_below => keys.len() - not_below,
            },
            None => keys.partition_point(|&near| near < key),
        };
        if keys.get(below) == Some(&key) { Ok(below) } else { Err(below) }
    }
}
