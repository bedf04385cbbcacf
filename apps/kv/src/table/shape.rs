//! The shape of a table, and where a key belongs in it.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Slots a bucket.
pub(crate) const SLOTS: usize = 4;

/// Length of the head of a slot: version, checksum, lengths.
pub(super) const HEAD_BYTES: usize = 24;

/// More than any message carries, and more buckets than 64 GiB have.
const KEY_BYTES_MAX: u32 = 1 << 12;
const VALUE_BYTES_MAX: u32 = 1 << 20;
const BUCKETS_MAX: u32 = 1 << 28;

/// How many buckets a table has, and what its slots hold.
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

    /// The shape with the most buckets that fits into `region_bytes`; `None` if not one does.
    pub(crate) fn fitting(region_bytes: usize, key_bytes: u32, value_bytes: u32) -> Option<Shape> {
        let one = Shape::new(1, key_bytes, value_bytes)?;
        let fit = u32::try_from(region_bytes / one.bucket_bytes()).unwrap_or(BUCKETS_MAX).min(BUCKETS_MAX);
        // The greatest power of two that is not greater.
        Shape::new(1 << fit.checked_ilog2()?, key_bytes, value_bytes)
    }

    /// Length of a slot, bytes.
    pub(crate) fn slot_bytes(&self) -> usize {
        HEAD_BYTES + self.key_room() + (self.value_bytes as usize).next_multiple_of(8)
    }

    /// Length of a bucket, bytes: what a client reads at once.
    pub(crate) fn bucket_bytes(&self) -> usize {
        SLOTS * self.slot_bytes()
    }

    /// Length of the table, bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        self.buckets as usize * self.bucket_bytes()
    }

    /// The keys that fit at most.
    pub(crate) fn slots(&self) -> usize {
        self.buckets as usize * SLOTS
    }

    /// The two buckets of a key, by its [`hash`]; they may be one.
    pub(crate) fn buckets_of(&self, hash: u64) -> [usize; 2] {
        let mask = u64::from(self.buckets - 1);
        [(hash & mask) as usize, (hash >> 32 & mask) as usize]
    }

    /// Where a bucket begins, bytes.
    pub(crate) fn offset_of(&self, bucket: usize) -> usize {
        bucket * self.bucket_bytes()
    }

    pub(super) fn key_room(&self) -> usize {
        (self.key_bytes as usize).next_multiple_of(8)
    }
}

/// The hash of a key, which says its buckets.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// What binds the parts of a slot together.
pub(super) fn checksum(version: u64, key: &[u8], value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, version))
}
