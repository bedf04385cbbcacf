//! The client's choice of operations: first a PUT of each key, then random GETs and PUTs.

use fastrand::Rng;

use super::oracle::Oracle;
use crate::settings::{CLIENTS, Settings};

/// Length of a key, bytes.
pub(super) const KEY_BYTES: usize = 16;

/// An operation to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// A GET by message.
    Get { key: usize },
    /// A GET by RDMA READ.
    Read { key: usize },
    /// A PUT of this generation.
    Put { key: usize, generation: u32 },
    /// A request for the location of a shard's table.
    Locate { shard: usize },
}

/// Chooses the operations.
#[derive(Debug)]
pub(super) struct Work {
    rng: Rng,
    keys: usize,
    /// Keys that were put already, or whose first PUT is in flight.
    loaded: usize,
    get_share: f64,
    read_share: f64,
}

impl Work {
    pub(super) fn new(settings: &Settings) -> Work {
        Work {
            rng: Rng::with_seed(settings.seed),
            keys: settings.keys as usize,
            loaded: 0,
            get_share: settings.get_share,
            read_share: settings.read_share,
        }
    }

    /// Whether every key was put once.
    pub(super) fn is_loaded(&self) -> bool {
        self.loaded == self.keys
    }

    /// The next operation. A key with a PUT in flight gets a GET instead of another PUT.
    pub(super) fn next(&mut self, oracle: &mut Oracle, can_read: bool) -> Task {
        let loads = !self.is_loaded();
        let key = match loads {
            true => self.loaded,
            false => self.rng.usize(..self.keys),
        };
        self.loaded += usize::from(loads);
        let puts = loads || self.rng.f64() >= self.get_share;
        if let Some(generation) = puts.then(|| oracle.begin_put(key)).flatten() {
            return Task::Put { key, generation };
        }
        match can_read && self.rng.f64() < self.read_share {
            true => Task::Read { key },
            false => Task::Get { key },
        }
    }

    /// Takes back a PUT that could not begin. First PUTs come in the order of the keys, so if it is
    /// one, it is the next operation again.
    #[cold]
    pub(super) fn give_back_put(&mut self, oracle: &mut Oracle, key: usize, generation: u32) {
        oracle.undo_put(key);
        // Generations wrap: that of a loaded key may be 1 as well.
        if generation == 1 && self.loaded == key + 1 {
            self.loaded = key;
        }
    }
}

/// The name of a key of a client: four digits of the client's number, eight of the key's.
pub(super) fn name_of(client: u32, key: usize) -> [u8; KEY_BYTES] {
    let mut name = *b"key-000000000000";
    let mut rest = u64::from(client % CLIENTS) * 100_000_000 + key as u64 % 100_000_000;
    for digit in name.iter_mut().rev().take(12) {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first PUT of each key finds no packet or no room, once. Still every key is put before
    /// anything else begins.
    #[test]
    fn a_first_put_that_could_not_begin_comes_next_again() {
        let rng = Rng::with_seed(1);
        let mut work = Work { rng, keys: 3, loaded: 0, get_share: 1.0, read_share: 0.0 };
        let mut oracle = Oracle::new(1, 3);
        for key in 0..3 {
            for again in [true, false] {
                assert_eq!(work.next(&mut oracle, false), Task::Put { key, generation: 1 });
                match again {
                    true => work.give_back_put(&mut oracle, key, 1),
                    false => oracle.end_put(key, true),
                }
            }
        }
        assert!(work.is_loaded() && matches!(work.next(&mut oracle, false), Task::Get { .. }));
        // A later PUT of a key does not load it.
        work.get_share = 0.0;
        let Task::Put { key, generation: 2 } = work.next(&mut oracle, false) else { panic!("a second PUT") };
        work.give_back_put(&mut oracle, key, 2);
        assert!(work.is_loaded());
        assert_eq!(oracle.begin_put(key), Some(2), "it was never sent");
    }

    #[test]
    fn names_differ() {
        assert_eq!(&name_of(0, 0), b"key-000000000000");
        assert_eq!(&name_of(0, 90_210), b"key-000000090210");
        assert_eq!(&name_of(17, (1 << 26) - 1), b"key-001767108863");
        assert_eq!(&name_of(CLIENTS - 1, 5), b"key-999900000005");
    }
}
