//! The shape of a table, and the places of its keys.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Slots per bucket.
pub(crate) const SLOTS: usize = 4;

/// The length of a slot's head: version, checksum, lengths.
pub(super) const HEAD_BYTES: usize = 24;

/// More than any message carries, and more buckets than fit into 64 GiB.
pub(crate) const KEY_BYTES_MAX: u32 = 1 << 12;
pub(crate) const VALUE_BYTES_MAX: u32 = 1 << 20;
const BUCKETS_MAX: u32 = 1 << 28;

/// The number of buckets of a table, and the size of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Buckets, a power of two.
    pub(crate) buckets: u32,
    /// The longest key, bytes.
    pub(crate) key_bytes: u32,
    /// The longest value, bytes.
    pub(crate) value_bytes: u32,
}

impl Shape {
    /// A shape; `None` if no table can have it.
    pub(crate) fn new(buckets: u32, key_bytes: u32, value_bytes: u32) -> Option<Shape> {
        let possible = buckets.is_power_of_two()
            && buckets <= BUCKETS_MAX
            && (1..=KEY_BYTES_MAX).contains(&key_bytes)
            && (1..=VALUE_BYTES_MAX).contains(&value_bytes);
        possible.then_some(Shape { buckets, key_bytes, value_bytes })
    }

    /// The shape with the most buckets that fits into `region_bytes`; `None` if no bucket fits.
    pub(crate) fn fitting(region_bytes: usize, key_bytes: u32, value_bytes: u32) -> Option<Shape> {
        let one = Shape::new(1, key_bytes, value_bytes)?;
        let fit = u32::try_from(region_bytes / one.bucket_bytes()).unwrap_or(BUCKETS_MAX).min(BUCKETS_MAX);
        // The greatest power of two that fits.
        Shape::new(1 << fit.checked_ilog2()?, key_bytes, value_bytes)
    }

    /// Length of a slot, bytes.
    pub(crate) fn slot_bytes(&self) -> usize {
        HEAD_BYTES + self.key_room() + (self.value_bytes as usize).next_multiple_of(8)
    }

    /// Length of a bucket, bytes: the amount that a client reads at once.
    pub(crate) fn bucket_bytes(&self) -> usize {
        SLOTS * self.slot_bytes()
    }

    /// Length of the table, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.buckets as usize * self.bucket_bytes()
    }

    /// The number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.buckets as usize * SLOTS
    }

    /// The two buckets of a key, by its [`hash`]; they may coincide.
    pub(crate) fn buckets_of(&self, hash: u64) -> [usize; 2] {
        let mask = u64::from(self.buckets - 1);
        [(hash & mask) as usize, (hash >> 32 & mask) as usize]
    }

    /// The offset of a bucket, bytes.
    pub(crate) fn offset_of(&self, bucket: usize) -> usize {
        bucket * self.bucket_bytes()
    }

    pub(super) fn key_room(&self) -> usize {
        (self.key_bytes as usize).next_multiple_of(8)
    }
}

/// The hash of a key, which determines its buckets.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The checksum over all parts of a slot.
pub(super) fn checksum(version: u64, key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, version))
}
