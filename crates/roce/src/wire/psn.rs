//! Packet sequence numbers: 24 bits that wrap.

/// A packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

const BITS: u32 = 24;
const MASK: u32 = (1 << BITS) - 1;

impl Psn {
    /// The low 24 bits of a number.
    pub const fn new(number: u32) -> Psn {
        Psn(number & MASK)
    }

    /// The number, below 2^24.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The number `count` packets later.
    #[must_use]
    pub const fn plus(self, count: u32) -> Psn {
        Psn::new(self.0.wrapping_add(count))
    }

    /// The number before this one.
    #[must_use]
    pub const fn before(self) -> Psn {
        Psn::new(self.0.wrapping_sub(1))
    }

    /// How many packets this number is ahead of `other`; negative if it is behind, exact while both
    /// are within 2^23 of each other.
    pub const fn ahead_of(self, other: Psn) -> i32 {
        (self.0.wrapping_sub(other.0) << (32 - BITS)).cast_signed() >> (32 - BITS)
    }
}
