//! The protection information of blocks in one domain, memory or wire.

use crate::signature::guard::{Guard, Sum};

/// The protection information behind each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    T10(T10),
    /// A guard alone. Its bytes lie lowest first.
    Crc(Guard),
}

/// T10-DIF: guard, application tag and reference tag, each highest byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct T10 {
    pub(crate) guard: Guard,
    pub(crate) app_tag: u16,
    /// The first block's reference tag.
    pub(crate) ref_tag: u32,
    /// Whether each block's reference tag is the last one's plus 1.
    pub(crate) ref_remap: bool,
    /// Whether a block with application tag 0xffff is exempt from checks.
    pub(crate) app_escape: bool,
    /// Whether a block with application tag 0xffff and reference tag 0xffffffff is exempt from
    /// checks.
    pub(crate) app_ref_escape: bool,
}

/// One domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    pub(crate) protection: Protection,
    /// Bytes of data per block.
    pub(crate) block_bytes: u64,
}

/// The bits of T10-DIF's parts in `check_mask` and `copy_mask`.
pub(crate) const GUARD_MASK: u8 = 0xc0;
pub(crate) const APP_TAG_MASK: u8 = 0x30;
pub(crate) const REF_TAG_MASK: u8 = 0x0f;
/// The bits of a four-byte guard.
pub(crate) const CRC32_MASK: u8 = 0xf0;

/// The most bytes of a block, protection information included.
pub(crate) const BLOCK_BYTES_MAX: usize = 4160 + 8;

impl Domain {
    /// Bytes of protection information per block.
    pub(crate) fn protection_bytes(&self) -> u64 {
        match self.protection {
            Protection::T10(_) => 8,
            Protection::Crc(guard) if guard.sum == Sum::Crc64Xp10 => 8,
            Protection::Crc(_) => 4,
        }
    }

    /// Bytes per block, protection information included.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.block_bytes + self.protection_bytes()
    }

    /// The bytes of `data_bytes` of data in this domain; `None` unless they are whole blocks and
    /// the result fits: a peer chooses the address that this may be called with.
    pub(crate) fn bytes_of(&self, data_bytes: u64) -> Option<u64> {
        let blocks = data_bytes.is_multiple_of(self.block_bytes).then(|| data_bytes / self.block_bytes)?;
        blocks.checked_mul(self.total_bytes())
    }

    /// The data among `bytes` of this domain; `None` unless they are whole blocks.
    pub(crate) fn data_of(&self, bytes: u64) -> Option<u64> {
        bytes.is_multiple_of(self.total_bytes()).then(|| bytes / self.total_bytes() * self.block_bytes)
    }

    /// The protection information behind a block, as a number whose bytes match those of a mask
    /// expanded by [`expand`](Self::expand).
    pub(crate) fn read(&self, bytes: &[u8]) -> u64 {
        let mut all = [0; 8];
        let len = bytes.len().min(8);
        all[..len].copy_from_slice(&bytes[..len]);
        match self.protection {
            Protection::T10(_) => u64::from_be_bytes(all),
            Protection::Crc(_) => u64::from_le_bytes(all),
        }
    }

    /// The inverse of [`read`](Self::read); the first `protection_bytes` count.
    pub(crate) fn write(&self, value: u64) -> [u8; 8] {
        match self.protection {
            Protection::T10(_) => value.to_be_bytes(),
            Protection::Crc(_) => value.to_le_bytes(),
        }
    }

    /// Expands each bit of a mask to a byte of the number.
    pub(crate) fn expand(&self, mask: u8) -> u64 {
        let mask = if self.protection_bytes() == 4 { mask >> 4 } else { mask };
        (0..8).filter(|at| mask >> at & 1 != 0).map(|at| 0xff << (8 * at)).sum()
    }

    pub(crate) fn guard(&self) -> Guard {
        match self.protection {
            Protection::T10(t10) => t10.guard,
            Protection::Crc(guard) => guard,
        }
    }

    /// The guard's bits in the number.
    pub(crate) fn guard_bits(&self) -> u64 {
        match self.protection {
            Protection::T10(_) => self.expand(GUARD_MASK),
            Protection::Crc(_) => self.expand(0xff),
        }
    }

    /// The correct protection information of block `index`.
    pub(crate) fn expected(&self, index: u64, guard: u64) -> u64 {
        match self.protection {
            Protection::T10(t10) => {
                let ref_tag = if t10.ref_remap { t10.ref_tag.wrapping_add(index as u32) } else { t10.ref_tag };
                guard << 48 | u64::from(t10.app_tag) << 32 | u64::from(ref_tag)
            }
            Protection::Crc(_) => guard,
        }
    }

    /// Whether a block with this field is exempt from checks.
    pub(crate) fn escapes(&self, field: u64) -> bool {
        let Protection::T10(t10) = self.protection else { return false };
        let app = field >> 32 & 0xffff == 0xffff;
        app && (t10.app_escape || (t10.app_ref_escape && field as u32 == u32::MAX))
    }
}

/// A key's effect on the blocks that move through it: at least one of the two domains is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockSignature {
    pub(crate) memory: Option<Domain>,
    pub(crate) wire: Option<Domain>,
    pub(crate) check_mask: u8,
    /// Replaces the default of [`copied`].
    pub(crate) copy_mask: Option<u8>,
}

/// The parts copied between the domains by default; `None` if their blocks differ in size or kind.
pub(crate) fn copied(one: &Domain, other: &Domain) -> Option<u8> {
    if one.block_bytes != other.block_bytes {
        return None;
    }
    match (one.protection, other.protection) {
        (Protection::T10(one), Protection::T10(other)) => {
            let part = |same: bool, mask: u8| if same { mask } else { 0 };
            let guard = part(one.guard == other.guard, GUARD_MASK);
            let app_tag = part(one.app_tag == other.app_tag, APP_TAG_MASK);
            Some(guard | app_tag | part(one.ref_tag == other.ref_tag, REF_TAG_MASK))
        }
        (Protection::Crc(one), Protection::Crc(other)) if one.sum == other.sum => {
            Some(if one.sum == Sum::Crc64Xp10 { 0xff } else { CRC32_MASK })
        }
        _ => None,
    }
}

impl BlockSignature {
    /// The bytes of `data_bytes` of data in memory; `None` unless they are whole blocks of both
    /// domains.
    pub(crate) fn memory_bytes(&self, data_bytes: u64) -> Option<u64> {
        bytes_of(self.wire, data_bytes)?;
        bytes_of(self.memory, data_bytes)
    }

    /// The same on the wire.
    pub(crate) fn wire_bytes(&self, data_bytes: u64) -> Option<u64> {
        bytes_of(self.memory, data_bytes)?;
        bytes_of(self.wire, data_bytes)
    }

    /// The bytes of data among `wire_bytes`; `None` unless they are whole blocks of both domains.
    pub(crate) fn data_bytes(&self, wire_bytes: u64) -> Option<u64> {
        let data_bytes = self.wire.map_or(Some(wire_bytes), |domain| domain.data_of(wire_bytes))?;
        bytes_of(self.memory, data_bytes).map(|_| data_bytes)
    }
}

fn bytes_of(domain: Option<Domain>, data_bytes: u64) -> Option<u64> {
    domain.map_or(Some(data_bytes), |domain| domain.bytes_of(data_bytes))
}
