//! The shard's own side of its table: the only writer.

use std::ops::Range;

use verbline::engine::Region;

use super::shape::{HEAD_BYTES, SLOTS, Shape, checksum, hash};

/// Why the table refused an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableError {
    /// Both buckets of the key are full.
    Full,
    /// The key or the value is longer than a slot takes, or the key is empty.
    TooLong,
    /// The memory is shorter than the table's shape requires.
    OutOfReach,
}

impl From<OutOfReach> for TableError {
    fn from(_: OutOfReach) -> TableError {
        TableError::OutOfReach
    }
}

/// The shard's own copy of a slot's facts, which spares a look into the shared memory.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    hash: u64,
    version: u64,
    /// 0 if the slot is free.
    key_bytes: u32,
    value_bytes: u32,
}

/// The slot of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundKey {
    slot: usize,
    /// Length of its value, bytes.
    pub(crate) value_bytes: usize,
}

/// A table over memory that clients may read. Nothing is allocated after [`Table::new`].
#[derive(Debug)]
pub(crate) struct Table<M> {
    memory: M,
    shape: Shape,
    known: Vec<Known>,
    /// A key copied from the memory, for comparison.
    scratch: Vec<u8>,
    keys: usize,
}

impl<M: Memory> Table<M> {
    /// An empty table over zeroed memory.
    pub(crate) fn new(memory: M, shape: Shape) -> Table<M> {
        let scratch = vec![0; shape.key_room()];
        Table { memory, shape, known: vec![Known::default(); shape.slots()], scratch, keys: 0 }
    }

    /// Memory that [`Table::new`] allocates besides the memory that clients may read, in bytes.
    pub(crate) fn memory_bytes(shape: Shape) -> u64 {
        (shape.slots() * size_of::<Known>() + shape.key_room()) as u64
    }

    /// The shape.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// The memory.
    #[cfg(test)]
    pub(super) fn memory(&self) -> &M {
        &self.memory
    }

    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.keys
    }

    /// The entry of a key; `None` if there is no such key.
    pub(crate) fn find(&mut self, key: &[u8]) -> Result<Option<FoundKey>, TableError> {
        let slot = self.slot_of(key, hash(key))?;
        Ok(slot.map(|slot| FoundKey { slot, value_bytes: self.known[slot].value_bytes as usize }))
    }

    /// Copies the value of an entry found since the last change. Fills `value`, up to the value's
    /// length.
    pub(crate) fn read(&self, entry: FoundKey, value: &mut [u8]) -> Result<(), TableError> {
        let len = entry.value_bytes.min(value.len());
        Ok(self.memory.read_into(self.value_at(entry.slot), &mut value[..len])?)
    }

    /// Sets the value of a key. Returns whether the key is new.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<bool, TableError> {
        let fits =
            (1..=self.shape.key_bytes as usize).contains(&key.len()) && value.len() <= self.shape.value_bytes as usize;
        if !fits {
            return Err(TableError::TooLong);
        }
        let hash = hash(key);
        let (slot, new) = match self.slot_of(key, hash)? {
            Some(slot) => (slot, false),
            None => (self.free_slot(hash).ok_or(TableError::Full)?, true),
        };
        self.write(slot, hash, key, value)?;
        self.keys += usize::from(new);
        Ok(new)
    }

    /// Removes a key. Returns whether it was there.
    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool, TableError> {
        let Some(slot) = self.slot_of(key, hash(key))? else { return Ok(false) };
        self.write(slot, 0, &[], &[])?;
        self.keys -= 1;
        Ok(true)
    }

    /// The slots of the two buckets of a hash.
    fn slots_of(&self, hash: u64) -> [Range<usize>; 2] {
        self.shape.buckets_of(hash).map(|bucket| bucket * SLOTS..(bucket + 1) * SLOTS)
    }

    fn slot_of(&mut self, key: &[u8], hash: u64) -> Result<Option<usize>, TableError> {
        for slot in self.slots_of(hash).into_iter().flatten() {
            let known = self.known[slot];
            if known.key_bytes as usize == key.len() && known.hash == hash && !key.is_empty() {
                let at = self.key_at(slot);
                let found = &mut self.scratch[..key.len()];
                self.memory.read_into(at, found)?;
                if found == key {
                    return Ok(Some(slot));
                }
            }
        }
        Ok(None)
    }

    /// A slot for a new key, in the bucket with more free slots.
    fn free_slot(&self, hash: u64) -> Option<usize> {
        let free = |slots: &Range<usize>| slots.clone().filter(|slot| self.known[*slot].key_bytes == 0).count();
        let [first, second] = self.slots_of(hash);
        let mut bucket = if free(&first) >= free(&second) { first } else { second };
        bucket.find(|slot| self.known[*slot].key_bytes == 0)
    }

    /// Writes a slot. A reader sees the old entry, the new one, or that the slot is being written.
    fn write(&mut self, slot: usize, hash: u64, key: &[u8], value: &[u8]) -> Result<(), TableError> {
        let at = slot * self.shape.slot_bytes();
        let version = self.known[slot].version + 2;
        let lengths = key.len() as u64 | (value.len() as u64) << 32;
        // Odd, before any part of the entry changes. A device reads words in an order that neither
        // side controls; the checksum detects mixtures.
        self.memory.store_u64(at, version - 1)?;
        self.memory.store_u64(at + 8, checksum(version, key, value))?;
        self.memory.store_u64(at + 16, lengths)?;
        self.memory.write_from(at + HEAD_BYTES, key)?;
        self.memory.write_from(self.value_at(slot), value)?;
        self.memory.store_u64(at, version)?;
        let (key_bytes, value_bytes) = (key.len() as u32, value.len() as u32);
        self.known[slot] = Known { hash, version, key_bytes, value_bytes };
        Ok(())
    }

    fn key_at(&self, slot: usize) -> usize {
        slot * self.shape.slot_bytes() + HEAD_BYTES
    }

    fn value_at(&self, slot: usize) -> usize {
        self.key_at(slot) + self.shape.key_room()
    }
}

/// An access beyond the memory. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfReach;

/// Memory that others may read at the same time, in whole words of 8 bytes.
pub(crate) trait Memory {
    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfReach>;
    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfReach>;
    fn store_u64(&self, offset: usize, value: u64) -> Result<(), OutOfReach>;
}

impl Memory for Region {
    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfReach> {
        Region::read_into(self, offset, bytes).map_err(|_| OutOfReach)
    }

    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfReach> {
        Region::write_from(self, offset, bytes).map_err(|_| OutOfReach)
    }

    fn store_u64(&self, offset: usize, value: u64) -> Result<(), OutOfReach> {
        Region::store_u64(self, offset, value).map_err(|_| OutOfReach)
    }
}

/// A region without a plan around it.
#[cfg(test)]
impl Memory for std::sync::Arc<verbline::mem::PeerRegion> {
    fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfReach> {
        verbline::mem::PeerRegion::read_into(self, offset, bytes).map_err(|_| OutOfReach)
    }

    fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfReach> {
        verbline::mem::PeerRegion::write_from(self, offset, bytes).map_err(|_| OutOfReach)
    }

    fn store_u64(&self, offset: usize, value: u64) -> Result<(), OutOfReach> {
        verbline::mem::PeerRegion::store_u64(self, offset, value).map_err(|_| OutOfReach)
    }
}
