//! Protection information of blocks, in memory and on the wire: a device takes every value of these
//! types.

use verbline_softnic::mlx5dv::{
    block_size, crc_type, mlx5dv_sig, mlx5dv_sig_block_attr, mlx5dv_sig_block_domain, mlx5dv_sig_crc,
    mlx5dv_sig_t10dif, sig_block_attr_flags, sig_type, t10dif_bg_type, t10dif_flags,
};

/// Bytes of data a block.
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
    /// In bytes.
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

/// What a guard starts from. There is nothing else that devices take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Seed {
    /// 0, as T10-DIF has it.
    #[default]
    Zeros,
    /// All ones, as CRC-32, CRC-32C and CRC-64 usually have it.
    Ones,
}

/// The checksum in T10-DIF's guard: both are two bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum T10Guard {
    /// CRC-16/T10-DIF.
    #[default]
    Crc,
    /// The Internet checksum.
    IpChecksum,
}

/// Which blocks aren't checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Escape {
    /// All are.
    #[default]
    Never,
    /// Those whose application tag is 0xffff (types 1 and 2).
    AppTag,
    /// Those whose application tag is 0xffff and whose reference tag is 0xffffffff (type 3).
    AppAndRefTag,
}

/// T10-DIF: eight bytes behind each block, guard, application tag and reference tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct T10Dif {
    /// How the guard is made.
    pub guard: T10Guard,
    /// What it starts from.
    pub seed: Seed,
    /// Application tag of every block.
    pub app_tag: u16,
    /// Reference tag of the key's first block.
    pub ref_tag: u32,
    /// Whether each block's reference tag is the last one's and 1.
    pub ref_increments: bool,
    /// Which blocks aren't checked.
    pub escape: Escape,
}

impl T10Dif {
    /// Type 1, and 2: reference tags count up from the low half of the first block's address.
    pub fn type_1(app_tag: u16, ref_tag: u32) -> T10Dif {
        let (guard, seed) = (T10Guard::Crc, Seed::Zeros);
        T10Dif { guard, seed, app_tag, ref_tag, ref_increments: true, escape: Escape::AppTag }
    }
}

/// Which CRC.
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
    /// Which.
    pub kind: CrcKind,
    /// What it starts from.
    pub seed: Seed,
}

/// What the blocks of one side, memory or wire, carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// T10-DIF behind each block of that size.
    T10Dif(BlockSize, T10Dif),
    /// A CRC behind each block of that size.
    Crc(BlockSize, Crc),
}

impl Domain {
    /// Bytes of data a block.
    pub(crate) fn block_size(&self) -> BlockSize {
        let (Domain::T10Dif(size, _) | Domain::Crc(size, _)) = self;
        *size
    }

    /// Bytes behind each block.
    pub(crate) fn protection_bytes(&self) -> u32 {
        match self {
            Domain::T10Dif(..) | Domain::Crc(_, Crc { kind: CrcKind::Crc64Xp10, .. }) => 8,
            Domain::Crc(..) => 4,
        }
    }

    /// Whether the fields of both lie alike: only then can parts of them be copied.
    fn is_alike(&self, other: &Domain) -> bool {
        let kinds = match (self, other) {
            (Domain::T10Dif(..), Domain::T10Dif(..)) => true,
            (Domain::Crc(_, one), Domain::Crc(_, other)) => one.kind == other.kind,
            _ => false,
        };
        kinds && self.block_size() == other.block_size()
    }

    /// Calls `f` with what a device is told.
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

/// Bytes of the protection information, a bit each: the highest is the guard's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask(pub u8);

impl Mask {
    /// Nothing.
    pub const NONE: Mask = Mask(0);
    /// Everything, whatever the kind.
    pub const ALL: Mask = Mask(0xff);
    /// T10-DIF's guard.
    pub const GUARD: Mask = Mask(0xc0);
    /// T10-DIF's application tag.
    pub const APP_TAG: Mask = Mask(0x30);
    /// T10-DIF's reference tag.
    pub const REF_TAG: Mask = Mask(0x0f);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }
}

/// A copy mask where nothing can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a copy mask needs blocks of the same size and kind in memory and on the wire; here memory has {memory:?} and the \
     wire {wire:?}: leave the mask out, and what can be copied is"
)]
pub struct CopyMaskError {
    /// What memory has.
    pub memory: Option<Domain>,
    /// What the wire has.
    pub wire: Option<Domain>,
}

/// What a key does to the blocks that move through it. At least one side carries something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSignature {
    pub(crate) memory: Option<Domain>,
    pub(crate) wire: Option<Domain>,
    pub(crate) check: Mask,
    pub(crate) copy: Option<Mask>,
}

impl BlockSignature {
    /// Blocks carry it in memory and not on the wire: what is sent is checked and stripped, what
    /// comes gets it.
    pub fn in_memory(memory: Domain) -> BlockSignature {
        BlockSignature { memory: Some(memory), wire: None, check: Mask::ALL, copy: None }
    }

    /// Blocks carry it on the wire and not in memory: what is sent gets it, what comes is checked
    /// and stripped.
    pub fn on_the_wire(wire: Domain) -> BlockSignature {
        BlockSignature { memory: None, wire: Some(wire), check: Mask::ALL, copy: None }
    }

    /// Blocks carry something on both sides: what comes in is checked, what both have alike is
    /// copied, and the rest is made.
    pub fn on_both(memory: Domain, wire: Domain) -> BlockSignature {
        BlockSignature { memory: Some(memory), wire: Some(wire), check: Mask::ALL, copy: None }
    }

    /// Checks these bytes of what comes in, instead of all.
    #[must_use]
    pub fn checking(self, check: Mask) -> BlockSignature {
        BlockSignature { check, ..self }
    }

    /// Copies these bytes, right or wrong, instead of those that both sides have alike.
    pub fn copying(self, copy: Mask) -> Result<BlockSignature, CopyMaskError> {
        let (memory, wire) = (self.memory, self.wire);
        match (memory, wire) {
            (Some(ours), Some(theirs)) if ours.is_alike(&theirs) => Ok(BlockSignature { copy: Some(copy), ..self }),
            _ => Err(CopyMaskError { memory, wire }),
        }
    }

    /// Calls `f` with what a device is told.
    pub(crate) fn with_raw<T>(&self, f: impl FnOnce(&mlx5dv_sig_block_attr) -> T) -> T {
        with_domain(self.memory, |mem| {
            with_domain(self.wire, |wire| {
                let flags = if self.copy.is_some() { sig_block_attr_flags::COPY_MASK } else { 0 };
                let copy_mask = self.copy.map_or(0, |mask| mask.0);
                f(&mlx5dv_sig_block_attr { mem, wire, flags, check_mask: self.check.0, copy_mask, comp_mask: 0 })
            })
        })
    }

    /// How many bytes `data_bytes` of data are in memory, if they are whole blocks, and not more
    /// than 64 bits hold.
    pub fn memory_bytes(&self, data_bytes: u64) -> Option<u64> {
        bytes(self.memory, data_bytes)
    }

    /// How many bytes `data_bytes` of data are on the wire, if they are whole blocks, and not more
    /// than 64 bits hold.
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
