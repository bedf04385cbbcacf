//! The content of written blocks. Each block names its place and its write, and shows whether each
//! of its bytes is right.
//!
//! `[place u64][writer u32, generation u32][filling …][checksum u64]`, little-endian; the checksum
//! (XXH3) is of everything in front of it.

use xxhash_rust::xxh3::xxh3_64;

/// The fewest bytes of a block.
pub(crate) const BYTES_MIN: usize = 32;

/// The identity of a block's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The block's number.
    pub(crate) place: u64,
    /// A number that each initiator draws for itself.
    pub(crate) writer: u32,
    /// The number of the write among those of the block.
    pub(crate) generation: u32,
}

/// Fills a block.
pub(crate) fn write(stamp: Stamp, block: &mut [u8]) {
    let from = u64::from(stamp.writer) << 32 | u64::from(stamp.generation);
    let mut word = stamp.place ^ from.rotate_left(32);
    let sum_at = block.len() - 8;
    for place in block[16..sum_at].chunks_exact_mut(8) {
        // Weyl's sequence: differs from word to word, from block to block and from write to write.
        word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
        place.copy_from_slice(&word.to_le_bytes());
    }
    block[..8].copy_from_slice(&stamp.place.to_le_bytes());
    block[8..16].copy_from_slice(&from.to_le_bytes());
    let sum = xxh3_64(&block[..sum_at]);
    block[sum_at..].copy_from_slice(&sum.to_le_bytes());
}

/// Reads which write a block is of; `None` if any byte differs from what was written.
pub(crate) fn read(block: &[u8]) -> Option<Stamp> {
    let word = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
    let sum_at = block.len().checked_sub(8)?;
    if block.len() < BYTES_MIN || xxh3_64(&block[..sum_at]) != word(sum_at)? {
        return None;
    }
    let from = word(8)?;
    Some(Stamp { place: word(0)?, writer: (from >> 32) as u32, generation: from as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_block_counts() {
        let stamp = Stamp { place: 7, writer: 3, generation: 9 };
        let mut block = vec![0; 512];
        write(stamp, &mut block);
        assert_eq!(read(&block), Some(stamp));
        for at in 0..block.len() {
            block[at] ^= 0x10;
            assert_ne!(read(&block), Some(stamp), "byte {at}");
            block[at] ^= 0x10;
        }
        assert_eq!(read(&[0; 512]), None, "nothing was written");
        assert_eq!(read(&block[..24]), None);
    }
}
