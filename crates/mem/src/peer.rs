//! Memory that a peer may write at any moment.
//!
//! A remote peer (RDMA WRITE, atomics) writes such memory while this process looks at it. No
//! reference into it can therefore exist: `&[u8]` promises that the bytes stay. Every access here
//! is a relaxed atomic access of one whole aligned 64-bit word, of that one size only, so no two
//! accesses through this type can race, and a peer's write can at worst be seen half done. What
//! holds torn data together (sequence numbers, a flag written last) is the protocol's business;
//! [`PeerRegion::load_u64`] acquires and [`PeerRegion::store_u64`] releases for it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::region::Region;

/// The unit of every access, bytes.
const WORD: usize = 8;

/// Why an access was refused. Nothing was read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PeerAccessError {
    /// The range leaves the region.
    #[error(
        "{len_bytes} bytes at offset {offset} leave the region of {region_bytes} bytes; check the offset that the peer \
         was told"
    )]
    OutOfBounds {
        /// Where it starts, bytes.
        offset: usize,
        /// How long it is, bytes.
        len_bytes: usize,
        /// How long the region is, bytes.
        region_bytes: usize,
    },
    /// A word access at an offset that is not a multiple of 8.
    #[error("offset {offset} is not a multiple of 8, as a 64-bit atomic needs; lay words out on 8-byte boundaries")]
    Misaligned {
        /// The offset, bytes.
        offset: usize,
    },
}

/// A region that a peer may write, reached by copies and whole words only.
///
/// ```
/// use verbline_mem::{PageChoice, PageSize, PeerRegion, Region, RegionSpec};
///
/// let spec = RegionSpec {
///     name: "window".into(),
///     len_bytes: 4096,
///     pages: PageChoice::Exactly(PageSize::Small4K),
///     lock: false,
/// };
/// let window = PeerRegion::new(Region::map(&spec)?);
/// window.write_from(13, b"bid 101.5")?;
/// let mut bytes = [0; 9];
/// window.read_into(13, &mut bytes)?;
/// assert_eq!(&bytes, b"bid 101.5");
///
/// window.store_u64(64, 7)?;
/// assert_eq!(window.load_u64(64)?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PeerRegion {
    region: Region,
    /// The accessible length, from the first byte on; at most the region's.
    len_bytes: usize,
}

impl PeerRegion {
    /// Takes the whole region.
    #[must_use]
    pub fn new(region: Region) -> Self {
        Self { len_bytes: region.len_bytes(), region }
    }

    /// Takes the first `len_bytes` of the region, or all of it if that is less: nobody reaches the
    /// rest of its last page, which may be a huge one.
    #[must_use]
    pub fn of_first(region: Region, len_bytes: usize) -> Self {
        Self { len_bytes: len_bytes.min(region.len_bytes()), region }
    }

    /// The region beneath: address, length, page size, fallback.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The first byte, to register with a device.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Copies `bytes.len()` bytes from `offset` on. Each aligned 64-bit word is read whole; words
    /// are read in no promised order.
    ///
    /// # Errors
    /// The range leaves the region.
    pub fn read_into(&self, offset: usize, bytes: &mut [u8]) -> Result<(), PeerAccessError> {
        self.check(offset, bytes.len())?;
        let lead = lead_bytes(offset, bytes.len());
        let (head, rest) = bytes.split_at_mut(lead);
        if lead > 0 {
            self.read_part(offset, head);
        }
        let mut at = offset + lead;
        let mut words = rest.chunks_exact_mut(WORD);
        for word in &mut words {
            word.copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
            at += WORD;
        }
        let tail = words.into_remainder();
        if !tail.is_empty() {
            self.read_part(at, tail);
        }
        Ok(())
    }

    /// Copies `bytes` to `offset` on. Each aligned 64-bit word is written whole; the bytes around
    /// the range keep what a peer writes to them meanwhile (a compare-and-swap on the words at
    /// either end). Words are written in no promised order.
    ///
    /// # Errors
    /// The range leaves the region.
    pub fn write_from(&self, offset: usize, bytes: &[u8]) -> Result<(), PeerAccessError> {
        self.check(offset, bytes.len())?;
        let lead = lead_bytes(offset, bytes.len());
        let (head, rest) = bytes.split_at(lead);
        if lead > 0 {
            self.write_part(offset, head);
        }
        let mut at = offset + lead;
        let mut words = rest.chunks_exact(WORD);
        for word in &mut words {
            let mut value = [0; WORD];
            value.copy_from_slice(word);
            self.word(at).store(u64::from_ne_bytes(value), Ordering::Relaxed);
            at += WORD;
        }
        if !words.remainder().is_empty() {
            self.write_part(at, words.remainder());
        }
        Ok(())
    }

    /// The word at `offset`, in this machine's byte order. Acquires: what was written before the
    /// store that is seen here is seen after.
    ///
    /// # Errors
    /// Out of bounds, or `offset` is not a multiple of 8.
    pub fn load_u64(&self, offset: usize) -> Result<u64, PeerAccessError> {
        // Acquire: pairs with `store_u64`, or with a device that writes data before the flag.
        Ok(self.checked_word(offset)?.load(Ordering::Acquire))
    }

    /// Stores the word at `offset`. Releases: a thread that acquires it sees what was written
    /// before.
    ///
    /// # Errors
    /// Out of bounds, or `offset` is not a multiple of 8.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), PeerAccessError> {
        // Release: pairs with `load_u64`.
        self.checked_word(offset)?.store(value, Ordering::Release);
        Ok(())
    }

    fn check(&self, offset: usize, len_bytes: usize) -> Result<(), PeerAccessError> {
        let region_bytes = self.len_bytes();
        match offset.checked_add(len_bytes) {
            Some(end) if end <= region_bytes => Ok(()),
            _ => Err(PeerAccessError::OutOfBounds { offset, len_bytes, region_bytes }),
        }
    }

    fn checked_word(&self, offset: usize) -> Result<&AtomicU64, PeerAccessError> {
        if !offset.is_multiple_of(WORD) {
            return Err(PeerAccessError::Misaligned { offset });
        }
        self.check(offset, WORD)?;
        Ok(self.word(offset))
    }

    /// The word that holds byte `offset`. Panics outside the region: every caller has checked.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset < self.len_bytes());
        let aligned = offset - offset % WORD;
        // SAFETY: the region starts and ends on page boundaries, so the aligned word that holds a
        // byte of it lies inside and is aligned; it stays mapped as long as `self`. This type owns
        // the region and reaches it by 64-bit atomics only, so nothing in this process races with
        // them.
        unsafe { AtomicU64::from_ptr(self.as_ptr().add(aligned).cast()) }
    }

    /// Reads bytes that lie inside one word.
    fn read_part(&self, offset: usize, bytes: &mut [u8]) {
        let word = self.word(offset).load(Ordering::Relaxed).to_ne_bytes();
        let first = offset % WORD;
        bytes.copy_from_slice(&word[first..first + bytes.len()]);
    }

    /// Writes bytes that lie inside one word, and leaves its other bytes to their writers.
    fn write_part(&self, offset: usize, bytes: &[u8]) {
        let first = offset % WORD;
        let merge = |seen: u64| {
            let mut word = seen.to_ne_bytes();
            word[first..first + bytes.len()].copy_from_slice(bytes);
            Some(u64::from_ne_bytes(word))
        };
        // Relaxed: a copy promises no order; `store_u64` is there to publish. It ends with the
        // change made, as `merge` always has one.
        let _ = self.word(offset).fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
    }
}

/// Bytes before the first word boundary, at most all.
fn lead_bytes(offset: usize, len_bytes: usize) -> usize {
    (offset.next_multiple_of(WORD) - offset).min(len_bytes)
}
