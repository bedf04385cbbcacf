//! Protection information of blocks, in memory and on the wire. Devices accept every value of these
//! types.

use verbline_softnic::mlx5dv::{
    block_size, crc_type, mlx5dv_sig, mlx5dv_sig_block_attr, mlx5dv_sig_block_domain, mlx5dv_sig_crc,
    mlx5dv_sig_t10dif, sig_block_attr_flags, sig_type, t10dif_bg_type, t10dif_flags,
};

/// Data bytes per block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSize {
    /// 512.
    B512,
    /// 520.
    B520,
    /// 4048.
    B4048,
    /// 4096.
    B4096,
    /// 4160.
    B4160,
}

impl BlockSize {
    /// The size in bytes.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            BlockSize::B512 => 512,
            BlockSize::B520 => 520,
            BlockSize::B4048 => 4048,
            BlockSize::B4096 => 4096,
            BlockSize::B4160 => 4160,
        }
    }

    fn raw(self) -> u32 {
        match self {
            BlockSize::B512 => block_size::B512,
            BlockSize::B520 => block_size::B520,
            BlockSize::B4048 => block_size::B4048,
            BlockSize::B4096 => block_size::B4096,
            BlockSize::B4160 => block_size::B4160,
        }
    }
}

/// The initial value of a guard. Devices take no other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Seed {
    /// 0, usual for T10-DIF.
    #[default]
    Zeros,
    /// All ones, usual for CRC-32, CRC-32C and CRC-64.
    Ones,
}

/// The checksum in T10-DIF's guard; both kinds are two bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum T10Guard {
    /// CRC-16/T10-DIF.
    #[default]
    Crc,
    /// The Internet checksum.
    IpChecksum,
}

/// Blocks exempt from checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Escape {
    /// None: all blocks are checked.
    #[default]
    Never,
    /// Blocks whose application tag is 0xffff (types 1 and 2).
    AppTag,
    /// Blocks whose application tag is 0xffff and whose reference tag is 0xffffffff (type 3).
    AppAndRefTag,
}

/// T10-DIF: eight bytes behind each block, guard, application tag and reference tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct T10Dif {
    /// The guard's checksum.
    pub guard: T10Guard,
    /// The guard's initial value.
    pub seed: Seed,
    /// Application tag of every block.
    pub app_tag: u16,
    /// Reference tag of the key's first block.
    pub ref_tag: u32,
    /// Whether each block's reference tag is the previous one plus 1.
    pub ref_increments: bool,
    /// Blocks exempt from checks.
    pub escape: Escape,
}

impl T10Dif {
    /// Type 1, and 2: reference tags count up from the low half of the first block's address.
    pub fn type_1(app_tag: u16, ref_tag: u32) -> T10Dif {
        let (guard, seed) = (T10Guard::Crc, Seed::Zeros);
        T10Dif { guard, seed, app_tag, ref_tag, ref_increments: true, escape: Escape::AppTag }
    }
}

/// Kinds of CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrcKind {
    /// CRC-32 of Fibre Channel and Ethernet: four bytes.
    Crc32,
    /// CRC-32C of iSCSI: four bytes.
    Crc32c,
    /// CRC-64 of XP10: eight bytes.
    Crc64Xp10,
}

/// A CRC alone behind each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Crc {
    /// The kind of CRC.
    pub kind: CrcKind,
    /// The CRC's initial value.
    pub seed: Seed,
}

/// The protection information of one side, memory or wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// T10-DIF behind each block of this size.
    T10Dif(BlockSize, T10Dif),
    /// A CRC behind each block of this size.
    Crc(BlockSize, Crc),
}

impl Domain {
    /// Data bytes per block.
    pub(crate) fn block_size(&self) -> BlockSize {
        let (Domain::T10Dif(size, _) | Domain::Crc(size, _)) = self;
        *size
    }

    /// Protection bytes behind each block.
    pub(crate) fn protection_bytes(&self) -> u32 {
        match self {
            Domain::T10Dif(..) | Domain::Crc(_, Crc { kind: CrcKind::Crc64Xp10, .. }) => 8,
            Domain::Crc(..) => 4,
        }
    }

    /// Whether both sides have the same field layout, a condition for copying parts.
    fn is_alike(&self, other: &Domain) -> bool {
        let kinds = match (self, other) {
            (Domain::T10Dif(..), Domain::T10Dif(..)) => true,
            (Domain::Crc(_, one), Domain::Crc(_, other)) => one.kind == other.kind,
            _ => false,
        };
        kinds && self.block_size() == other.block_size()
    }

    /// Calls `f` with the domain in the form that the device takes.
    fn with_raw<T>(&self, f: impl FnOnce(&mlx5dv_sig_block_domain) -> T) -> T {
        match self {
            Domain::T10Dif(size, dif) => {
                let dif = dif.raw();
                let sig = mlx5dv_sig { dif: &raw const dif };
                let (sig_type, block_size) = (sig_type::T10DIF, size.raw());
                f(&mlx5dv_sig_block_domain { sig_type, sig, block_size, comp_mask: 0 })
            }
            Domain::Crc(size, crc) => {
                let crc = crc.raw();
                let sig = mlx5dv_sig { crc: &raw const crc };
                let (sig_type, block_size) = (sig_type::CRC, size.raw());
                f(&mlx5dv_sig_block_domain { sig_type, sig, block_size, comp_mask: 0 })
            }
        }
    }
}

impl T10Dif {
    fn raw(&self) -> mlx5dv_sig_t10dif {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        mlx5dv_sig_t10dif {
            bg_type: match self.guard {
                T10Guard::Crc => t10dif_bg_type::CRC,
                T10Guard::IpChecksum => t10dif_bg_type::CSUM,
            },
            bg: if self.seed == Seed::Ones { u16::MAX } else { 0 },
            app_tag: self.app_tag,
            ref_tag: self.ref_tag,
            flags: flag(self.ref_increments, t10dif_flags::REF_REMAP)
                | flag(self.escape == Escape::AppTag, t10dif_flags::APP_ESCAPE)
                | flag(self.escape == Escape::AppAndRefTag, t10dif_flags::APP_REF_ESCAPE),
        }
    }
}

impl Crc {
    fn raw(&self) -> mlx5dv_sig_crc {
        let (type_, ones) = match self.kind {
            CrcKind::Crc32 => (crc_type::CRC32, u64::from(u32::MAX)),
            CrcKind::Crc32c => (crc_type::CRC32C, u64::from(u32::MAX)),
            CrcKind::Crc64Xp10 => (crc_type::CRC64_XP10, u64::MAX),
        };
        mlx5dv_sig_crc { type_, seed: if self.seed == Seed::Ones { ones } else { 0 } }
    }
}

/// Bytes of the protection information, one bit each; the highest bit is the guard's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask(pub u8);

impl Mask {
    /// No bytes.
    pub const NONE: Mask = Mask(0);
    /// All bytes, for every kind of protection information.
    pub const ALL: Mask = Mask(0xff);
    /// T10-DIF's guard.
    pub const GUARD: Mask = Mask(0xc0);
    /// T10-DIF's application tag.
    pub const APP_TAG: Mask = Mask(0x30);
    /// T10-DIF's reference tag.
    pub const REF_TAG: Mask = Mask(0x0f);

    /// The bytes of both masks.
    #[must_use]
    pub const fn and(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }
}

/// A copy mask for two sides that have no bytes to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a copy mask needs blocks of the same size and kind in memory and on the wire; here memory has {memory:?} and the \
     wire {wire:?}: leave the mask out, and what can be copied is"
)]
pub struct CopyMaskError {
    /// The protection information in memory.
    pub memory: Option<Domain>,
    /// The protection information on the wire.
    pub wire: Option<Domain>,
}

/// The handling of the blocks that move through a key. At least one side carries protection
/// information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSignature {
    pub(crate) memory: Option<Domain>,
    pub(crate) wire: Option<Domain>,
    pub(crate) check: Mask,
    pub(crate) copy: Option<Mask>,
}

impl BlockSignature {
    /// Protection information in memory only: it is checked and stripped from sent blocks, and
    /// added to received ones.
    pub fn in_memory(memory: Domain) -> BlockSignature {
        BlockSignature { memory: Some(memory), wire: None, check: Mask::ALL, copy: None }
    }

    /// Protection information on the wire only: it is added to sent blocks, and checked and
    /// stripped from received ones.
    pub fn on_the_wire(wire: Domain) -> BlockSignature {
        BlockSignature { memory: None, wire: Some(wire), check: Mask::ALL, copy: None }
    }

    /// Protection information on both sides: incoming fields are checked, fields alike on both
    /// sides are copied, and the rest is generated.
    pub fn on_both(memory: Domain, wire: Domain) -> BlockSignature {
        BlockSignature { memory: Some(memory), wire: Some(wire), check: Mask::ALL, copy: None }
    }

    /// Checks these incoming bytes instead of all.
    #[must_use]
    pub fn checking(self, check: Mask) -> BlockSignature {
        BlockSignature { check, ..self }
    }

    /// Copies these bytes, right or wrong, instead of all bytes that both sides have alike.
    pub fn copying(self, copy: Mask) -> Result<BlockSignature, CopyMaskError> {
        let (memory, wire) = (self.memory, self.wire);
        match (memory, wire) {
            (Some(ours), Some(theirs)) if ours.is_alike(&theirs) => Ok(BlockSignature { copy: Some(copy), ..self }),
            _ => Err(CopyMaskError { memory, wire }),
        }
    }

    /// Calls `f` with the attributes in the form that the device takes.
    pub(crate) fn with_raw<T>(&self, f: impl FnOnce(&mlx5dv_sig_block_attr) -> T) -> T {
        with_domain(self.memory, |mem| {
            with_domain(self.wire, |wire| {
                let flags = if self.copy.is_some() { sig_block_attr_flags::COPY_MASK } else { 0 };
                let copy_mask = self.copy.map_or(0, |mask| mask.0);
                f(&mlx5dv_sig_block_attr { mem, wire, flags, check_mask: self.check.0, copy_mask, comp_mask: 0 })
            })
        })
    }

    /// Bytes in memory for `data_bytes` of data; `None` if these are not whole blocks or the result
    /// exceeds 64 bits.
    pub fn memory_bytes(&self, data_bytes: u64) -> Option<u64> {
        bytes(self.memory, data_bytes)
    }

    /// Bytes on the wire for `data_bytes` of data; `None` if these are not whole blocks or the
    /// result exceeds 64 bits.
    pub fn wire_bytes(&self, data_bytes: u64) -> Option<u64> {
        bytes(self.wire, data_bytes)
    }
}

fn with_domain<T>(domain: Option<Domain>, f: impl FnOnce(*const mlx5dv_sig_block_domain) -> T) -> T {
    match domain {
        None => f(std::ptr::null()),
        Some(domain) => domain.with_raw(|raw| f(std::ptr::from_ref(raw))),
    }
}

fn bytes(domain: Option<Domain>, data_bytes: u64) -> Option<u64> {
    let Some(domain) = domain else { return Some(data_bytes) };
    let block_bytes = u64::from(domain.block_size().bytes());
    let blocks = data_bytes.is_multiple_of(block_bytes).then(|| data_bytes / block_bytes)?;
    blocks.checked_mul(block_bytes + u64::from(domain.protection_bytes()))
}
