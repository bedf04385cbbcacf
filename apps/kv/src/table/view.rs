//! A client's view of a bucket that it has read by RDMA.

use super::shape::{HEAD_BYTES, SLOTS, Shape, checksum};

/// The result of searching a bucket for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// The key's value.
    Value(&'a [u8]),
    /// The key is in no slot of this bucket.
    Absent,
    /// A slot was being written: read the bucket again.
    Torn,
}

/// Searches the bytes of one bucket, which may be anything, for a key.
pub(crate) fn find<'a>(shape: &Shape, bucket: &'a [u8], key: &[u8]) -> Found<'a> {
    let mut torn = bucket.len() < shape.bucket_bytes();
    for slot in bucket.chunks_exact(shape.slot_bytes()).take(SLOTS) {
        match read_slot(shape, slot) {
            Slot::Empty => {}
            Slot::Torn => torn = true,
            Slot::Entry { key: found, value } if found == key => return Found::Value(value),
            Slot::Entry { .. } => {}
        }
    }
    if torn { Found::Torn } else { Found::Absent }
}

/// A slot as read.
pub(super) enum Slot<'a> {
    Empty,
    Torn,
    Entry { key: &'a [u8], value: &'a [u8] },
}

pub(super) fn read_slot<'a>(shape: &Shape, slot: &'a [u8]) -> Slot<'a> {
    let word = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().unwrap_or_default());
    let (version, sum, lengths) = (word(0), word(8), word(16));
    if version == 0 {
        return Slot::Empty;
    }
    let (key_bytes, value_bytes) = (lengths as u32 as usize, (lengths >> 32) as usize);
    if version % 2 == 1 || key_bytes > shape.key_bytes as usize || value_bytes > shape.value_bytes as usize {
        return Slot::Torn;
    }
    let (keys, values) = slot[HEAD_BYTES..].split_at(shape.key_room());
    let (key, value) = (&keys[..key_bytes], &values[..value_bytes]);
    match sum == checksum(version, key, value) {
        // A removed key leaves an empty one, so that the slot's version continues.
        true if key.is_empty() => Slot::Empty,
        true => Slot::Entry { key, value },
        false => Slot::Torn,
    }
}
