//! Guards: checksums of a block's data.
//!
//! Guarantees: [`Guard::of`] equals the bit-by-bit definition (tests), for any number of bytes.

use crc_fast::{CrcAlgorithm, Digest};

/// The kind of sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    /// CRC-16/T10-DIF: polynomial 0x8bb7.
    T10Crc,
    /// The Internet checksum (RFC 1071) of words in network order.
    IpChecksum,
    /// CRC-32 of Fibre Channel's FC-PH, which is Ethernet's: polynomial 0x04c11db7, reflected.
    Crc32,
    /// CRC-32C of iSCSI (RFC 3720): polynomial 0x1edc6f41, reflected.
    Crc32c,
    /// CRC-64 of XP10: polynomial 0xad93d23594c93659, reflected, as in NVMe.
    Crc64Xp10,
}

/// A sum and its start value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) sum: Sum,
    /// Starts from all ones instead of 0.
    pub(crate) from_ones: bool,
}

impl Guard {
    /// The guard of these bytes, in its low bits.
    pub(crate) fn of(self, data: &[u8]) -> u64 {
        let seed = |ones: u64| if self.from_ones { ones } else { 0 };
        let crc = |algorithm, ones| {
            let mut digest = Digest::new_with_init_state(algorithm, seed(ones));
            digest.update(data);
            digest.finalize()
        };
        match self.sum {
            Sum::T10Crc => crc(CrcAlgorithm::Crc16T10Dif, 0xffff),
            Sum::IpChecksum => u64::from(ip_checksum(seed(0xffff), data)),
            Sum::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc, 0xffff_ffff),
            Sum::Crc32c => crc(CrcAlgorithm::Crc32Iscsi, 0xffff_ffff),
            Sum::Crc64Xp10 => crc(CrcAlgorithm::Crc64Nvme, u64::MAX),
        }
    }
}

/// The complement of the one's complement sum, begun at `seed`. Adds words in the byte order of
/// memory and swaps the sum at the end, with the same result (RFC 1071, 2 (B)).
fn ip_checksum(seed: u64, data: &[u8]) -> u16 {
    let (words, rest) = data.as_chunks::<4>();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let mut sum = sum + u64::from(u32::from_ne_bytes(last));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let mut sum = seed + u64::from((sum as u16).to_be());
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[cfg(test)]
pub(crate) mod oracle {
    //! The guards by their definitions, a bit at a time.

    use super::{Guard, Sum};

    /// Like [`Guard::of`], by the definition.
    pub(crate) fn guard(guard: Guard, data: &[u8]) -> u64 {
        match guard.sum {
            Sum::T10Crc => plain(16, 0x8bb7, guard.from_ones, data),
            Sum::Crc32 => reflected(32, 0x04c1_1db7, guard.from_ones, data),
            Sum::Crc32c => reflected(32, 0x1edc_6f41, guard.from_ones, data),
            Sum::Crc64Xp10 => reflected(64, 0xad93_d235_94c9_3659, guard.from_ones, data),
            Sum::IpChecksum => checksum(guard.from_ones, data),
        }
    }

    fn ones(width: u32) -> u64 {
        u64::MAX >> (64 - width)
    }

    /// Highest bit first, the result uncomplemented.
    fn plain(width: u32, polynomial: u64, from_ones: bool, data: &[u8]) -> u64 {
        let mut register = if from_ones { ones(width) } else { 0 };
        for bit in data.iter().flat_map(|byte| (0..8).rev().map(move |at| u64::from(byte >> at & 1))) {
            let out = register >> (width - 1) & 1;
            register = register << 1 & ones(width);
            if out ^ bit == 1 {
                register ^= polynomial;
            }
        }
        register
    }

    /// Lowest bit first, the result complemented.
    fn reflected(width: u32, polynomial: u64, from_ones: bool, data: &[u8]) -> u64 {
        let polynomial = polynomial.reverse_bits() >> (64 - width);
        let mut register = if from_ones { ones(width) } else { 0 };
        for bit in data.iter().flat_map(|byte| (0..8).map(move |at| u64::from(byte >> at & 1))) {
            let out = register & 1;
            register >>= 1;
            if out ^ bit == 1 {
                register ^= polynomial;
            }
        }
        register ^ ones(width)
    }

    fn checksum(from_ones: bool, data: &[u8]) -> u64 {
        let mut sum: u32 = if from_ones { 0xffff } else { 0 };
        for pair in data.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            if sum > 0xffff {
                sum -= 0xffff;
            }
        }
        u64::from(!(sum as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Sum; 5] = [Sum::T10Crc, Sum::IpChecksum, Sum::Crc32, Sum::Crc32c, Sum::Crc64Xp10];

    #[test]
    fn the_catalogued_values_of_123456789() {
        let of = |sum, from_ones| Guard { sum, from_ones }.of(b"123456789");
        assert_eq!(of(Sum::T10Crc, false), 0xd0db);
        assert_eq!(of(Sum::Crc32, true), 0xcbf4_3926);
        assert_eq!(of(Sum::Crc32c, true), 0xe306_9283);
        assert_eq!(of(Sum::Crc64Xp10, true), 0xae8b_1486_0a79_9888);
        // RFC 1071, 3: 0001 f203 f4f5 f6f7 sum to ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Guard { sum: Sum::IpChecksum, from_ones: false }.of(&bytes), !0xddf2 & 0xffff);
    }

    #[test]
    fn a_checksum_of_nothing_but_zeros_depends_on_its_seed_alone() {
        let of = |from_ones| Guard { sum: Sum::IpChecksum, from_ones }.of(&[0; 512]);
        assert_eq!((of(false), of(true)), (0xffff, 0));
    }

    proptest! {
        #[test]
        fn each_guard_is_what_its_definition_gives(
            data in prop::collection::vec(any::<u8>(), 0..700),
            from_ones in any::<bool>(),
        ) {
            for sum in ALL {
                let guard = Guard { sum, from_ones };
                prop_assert_eq!(guard.of(&data), oracle::guard(guard, &data), "{:?}", guard);
            }
        }

        #[test]
        fn so_is_that_of_a_whole_block(byte in any::<u8>(), step in any::<u8>(), from_ones in any::<bool>()) {
            for bytes in [512, 520, 4048, 4096, 4160] {
                let at = |at: usize| byte.wrapping_add(step.wrapping_mul(at as u8));
                let data: Vec<u8> = (0..bytes).map(at).collect();
                for sum in ALL {
                    let guard = Guard { sum, from_ones };
                    prop_assert_eq!(guard.of(&data), oracle::guard(guard, &data), "{:?}", guard);
                }
            }
        }
    }
}
