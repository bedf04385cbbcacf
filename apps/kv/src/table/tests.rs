//! The table against a map, and a reader beside the writer.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use verbline::mem::{PageChoice, PageSize, PeerRegion, Region, RegionSpec};

use super::writer::{Memory, OutOfReach};
use super::*;

fn memory(len_bytes: usize) -> Arc<PeerRegion> {
    let pages = PageChoice::Exactly(PageSize::Small4K);
    let spec = RegionSpec { name: "table".into(), len_bytes, pages, lock: false };
    Arc::new(PeerRegion::new(Region::map(&spec).expect("memory")))
}

fn table(buckets: u32, key_bytes: u32, value_bytes: u32) -> (Table<Arc<PeerRegion>>, Arc<PeerRegion>) {
    let shape = Shape::new(buckets, key_bytes, value_bytes).expect("a shape");
    let memory = memory(shape.len_bytes());
    (Table::new(Arc::clone(&memory), shape), memory)
}

/// Reads the key's buckets and searches them, like a client.
fn look(memory: &PeerRegion, shape: &Shape, key: &[u8], bytes: &mut [u8]) -> Option<Vec<u8>> {
    for bucket in shape.buckets_of(hash(key)) {
        loop {
            memory.read_into(shape.offset_of(bucket), bytes).expect("within");
            match find(shape, bytes, key) {
                Found::Value(value) => return Some(value.to_vec()),
                Found::Absent => break,
                Found::Torn => {}
            }
        }
    }
    None
}

proptest! {
    /// Puts, gets and deletes behave as in a map, except that a bucket may be full; and a reader of
    /// the memory finds the same values.
    #[test]
    fn a_table_is_a_map(steps in prop::collection::vec((0u8..3, 0u16..40, 0usize..20), 1..400)) {
        let (mut table, memory) = table(8, 6, 16);
        let shape = table.shape();
        let mut map = BTreeMap::new();
        let mut bytes = vec![0; shape.bucket_bytes()];
        for (step, key, len) in steps {
            let (key, value) = (format!("k{key}").into_bytes(), vec![len as u8; len]);
            match step {
                0 => match table.put(&key, &value) {
                    Ok(new) => prop_assert_eq!(new, map.insert(key.clone(), value).is_none()),
                    Err(TableError::Full) => prop_assert!(!map.contains_key(&key)),
                    Err(TableError::TooLong) => prop_assert!(len > 16),
                    Err(error) => prop_assert!(false, "{:?}", error),
                },
                1 => {
                    let found = table.find(&key).expect("within").map(|entry| {
                        let mut value = vec![0; entry.value_bytes];
                        table.read(entry, &mut value).expect("within");
                        value
                    });
                    prop_assert_eq!(found.as_ref(), map.get(&key));
                }
                _ => prop_assert_eq!(table.delete(&key).expect("within"), map.remove(&key).is_some()),
            }
            prop_assert_eq!(table.len(), map.len());
            prop_assert_eq!(look(&memory, &shape, &key, &mut bytes), map.get(&key).cloned());
        }
    }

    /// Any bytes can be searched as a bucket.
    #[test]
    fn any_bytes_are_a_bucket(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        key in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let shape = Shape::new(1, 8, 16).expect("a shape");
        if let Found::Value(value) = find(&shape, &bytes, &key) {
            prop_assert!(value.len() <= 16);
        }
    }
}

/// A reader beside the writer sees only whole values that were written.
#[test]
fn a_reader_never_sees_half_a_value() {
    const ROUNDS: u64 = 20_000;
    let (mut table, memory) = table(1, 8, 64);
    let shape = table.shape();
    let value = |round: u64| [round.to_le_bytes(); 8].concat();
    table.put(b"key", &value(0)).expect("room");
    let (done, seen_once) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut bytes, mut last, mut seen) = (vec![0; shape.bucket_bytes()], 0, 0u64);
            while !done.load(Ordering::Relaxed) {
                let found = look(&memory, &shape, b"key", &mut bytes).expect("the key stays");
                let round = u64::from_le_bytes(found[..8].try_into().expect("8 bytes"));
                assert_eq!(found, value(round), "half of one value and half of another");
                assert!(round >= last, "round {round} after {last}");
                (last, seen) = (round, seen + 1);
                seen_once.store(true, Ordering::Relaxed);
            }
            seen
        });
        while !seen_once.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        for round in 1..=ROUNDS {
            assert_eq!(table.put(b"key", &value(round)), Ok(false));
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("no half value") > 0);
    });
}

/// With two buckets to choose from, a table is more than half full before it refuses a key.
#[test]
fn a_table_fills_before_it_is_full() {
    let (mut table, _) = table(1 << 10, 8, 8);
    let slots = table.shape().slots();
    let refused = (0..slots as u64).find(|key| table.put(&key.to_le_bytes(), b"v") == Err(TableError::Full));
    let taken = refused.expect("no table is full to the last slot");
    assert!(taken as usize > slots / 2, "{taken} of {slots}");
}

/// Memory that counts the times that it is read.
struct Counted {
    memory: Arc<PeerRegion>,
    reads: Cell<usize>,
}

impl Memory for Counted {
    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfReach> {
        self.reads.set(self.reads.get() + 1);
        Memory::read_into(&self.memory, offset, bytes)
    }

    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfReach> {
        Memory::write_from(&self.memory, offset, bytes)
    }

    fn store_u64(&self, offset: usize, value: u64) -> Result<(), OutOfReach> {
        Memory::store_u64(&self.memory, offset, value)
    }
}

/// A key of 32 bytes, of any number, whose hash is that of all the others: XXH3 multiplies its
/// first word by the second, each combined with a constant, and the first becomes 0.
fn colliding(number: u64) -> Vec<u8> {
    const FIRST: [u8; 8] = [0xB8, 0xFE, 0x6C, 0x39, 0x23, 0xA4, 0x4B, 0xBE];
    [&FIRST[..], &number.to_le_bytes(), &[0; 16]].concat()
}

/// A peer may choose keys whose whole hashes are equal. They find both buckets full, and a look for
/// one of them compares as many keys as two buckets hold.
#[test]
fn keys_of_one_hash_cost_two_buckets_at_most() {
    let shape = Shape::new(1 << 10, 32, 8).expect("a shape");
    let memory = Counted { memory: memory(shape.len_bytes()), reads: Cell::new(0) };
    let mut table = Table::new(memory, shape);
    assert!((1..100).all(|number| hash(&colliding(number)) == hash(&colliding(0))), "they collide");
    let put: Vec<_> = (0..100).map(|number| table.put(&colliding(number), b"v")).collect();
    let room = 2 * shape::SLOTS;
    assert!(put[..room].iter().all(|put| *put == Ok(true)), "{put:?}");
    assert!(put[room..].iter().all(|put| *put == Err(TableError::Full)), "{put:?}");
    for number in 0..100 {
        let before = table.memory().reads.get();
        assert_eq!(table.find(&colliding(number)).expect("within").is_some(), number < room as u64);
        let reads = table.memory().reads.get() - before;
        assert!(reads <= room, "{reads} keys compared");
    }
    assert_eq!(table.put(b"another", b"v"), Ok(true), "other keys find room");
}

/// The largest table that fits a region.
#[test]
fn a_table_fits_its_region() {
    let one = Shape::new(1, 16, 64).expect("a shape").bucket_bytes();
    assert_eq!(Shape::fitting(one - 1, 16, 64), None);
    assert_eq!(Shape::fitting(one * 7, 16, 64).map(|shape| shape.buckets), Some(4));
    assert!(Shape::new(3, 16, 64).is_none() && Shape::new(4, 0, 64).is_none());
    let mut short = Table::new(memory(4096), Shape::new(1 << 10, 16, 64).expect("a shape"));
    let mut puts = (0..4_096u64).map(|key| short.put(&key.to_le_bytes(), b"v"));
    assert!(puts.any(|put| put == Err(TableError::OutOfReach)), "refused, and nothing else");
}
