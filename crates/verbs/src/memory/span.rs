//! A part of a region: an offset and a length of 48 bits each.
//!
//! 256 TiB are more than an address space has. A span takes twelve bytes with two-byte alignment.
//! With a region's number in front, a work request that waits in a list is then no larger than with
//! two 32-bit numbers: 72 bytes.

use std::fmt;
use std::ops::Range;

/// A part of a region: the offset of its first byte, and its length.
///
/// ```
/// use verbline_verbs::rdma::Span;
///
/// let blocks = Span::new(5 << 30, 4096).expect("below 256 TiB");
/// assert_eq!((blocks.offset(), blocks.len_bytes()), (5 << 30, 4096));
/// assert_eq!(Span::new(1 << 48, 1), None);
/// assert_eq!(Span::from(64..72), Span::new(64, 8).unwrap());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(C, packed(2))]
pub struct Span {
    offset_high: u16,
    len_high: u16,
    offset_low: u32,
    len_low: u32,
}

const _: () = assert!(size_of::<Span>() == 12 && align_of::<Span>() == 2);

impl Span {
    /// The largest offset and the largest length.
    pub const MAX: u64 = (1 << 48) - 1;

    /// Returns `None` if either value is above [`Span::MAX`].
    #[inline]
    pub const fn new(offset: u64, len_bytes: u64) -> Option<Span> {
        if offset > Span::MAX || len_bytes > Span::MAX {
            return None;
        }
        Some(Span {
            offset_high: (offset >> 32) as u16,
            len_high: (len_bytes >> 32) as u16,
            offset_low: offset as u32,
            len_low: len_bytes as u32,
        })
    }

    /// The offset in bytes.
    #[inline]
    pub const fn offset(self) -> u64 {
        (self.offset_high as u64) << 32 | self.offset_low as u64
    }

    /// The length in bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        (self.len_high as u64) << 32 | self.len_low as u64
    }

    /// Whether the span is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len_bytes() == 0
    }

    /// The length as that of a message; `None` if it exceeds `max_bytes`.
    #[inline]
    pub(crate) fn message_len(self, max_bytes: u32) -> Option<u32> {
        (self.len_high == 0 && self.len_low <= max_bytes).then_some(self.len_low)
    }

    /// Whether the span ends within memory of `bytes`.
    #[inline]
    pub(crate) fn is_within(self, bytes: u64) -> bool {
        // The sum of two 48-bit numbers cannot overflow.
        self.offset() + self.len_bytes() <= bytes
    }
}

impl From<Range<u32>> for Span {
    /// The bytes of a range; empty if its end is before its start.
    fn from(bytes: Range<u32>) -> Span {
        let len_low = bytes.end.saturating_sub(bytes.start);
        Span { offset_low: bytes.start, len_low, ..Span::default() }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.len_bytes(), self.offset())
    }
}
