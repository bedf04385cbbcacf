//! The inline data of a work request that configures a key.
//!
//! Guarantees: reading any posted bytes returns a valid configuration, or an `errno`.

use crate::queues::wr::SendWr;
use crate::signature::domain::{BlockSignature, Domain, Protection, T10, copied};
use crate::signature::guard::{Guard, Sum};
use crate::signature::types::{
    block_size, crc_type, mkey_conf_flags, mlx5dv_mkey, sig_block_attr_flags, t10dif_bg_type, t10dif_flags,
};
use std::ffi::c_int;

/// Which setters were called: `Fields::setters`.
pub(crate) struct Setters;

impl Setters {
    pub(crate) const ACCESS: u32 = 1 << 0;
    pub(crate) const LIST: u32 = 1 << 1;
    pub(crate) const INTERLEAVED: u32 = 1 << 2;
    pub(crate) const SIGNATURE: u32 = 1 << 3;
}

/// All fields but the layout's entries, which follow.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Fields {
    /// The key, by its address.
    pub(crate) mkey: u64,
    pub(crate) conf_flags: u32,
    pub(crate) setters: u32,
    pub(crate) access: u32,
    /// The number of rounds through the entries.
    pub(crate) repeat: u32,
    pub(crate) entries: u32,
    pub(crate) sig_flags: u32,
    pub(crate) memory: DomainFields,
    pub(crate) wire: DomainFields,
    pub(crate) check_mask: u8,
    pub(crate) copy_mask: u8,
    pub(crate) reserved: [u8; 6],
}

/// A domain; kind 0 means none.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DomainFields {
    pub(crate) kind: u32,
    pub(crate) block_size: u32,
    pub(crate) sub_type: u32,
    pub(crate) flags: u32,
    pub(crate) seed: u64,
    pub(crate) app_tag: u32,
    pub(crate) ref_tag: u32,
}

/// A part of a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct LayoutPart {
    pub(crate) addr: u64,
    pub(crate) bytes: u32,
    pub(crate) skip: u32,
    pub(crate) lkey: u32,
    pub(crate) reserved: u32,
}

const FIELD_BYTES: usize = size_of::<Fields>();
pub(crate) const ENTRY_BYTES: usize = size_of::<LayoutPart>();
/// Entries that fit with any `max_inline_data`: a work request's usual size.
const ENTRIES_LEAST: u32 = 4;
/// Bytes of `max_inline_data` per entry.
const INLINE_BYTES_AN_ENTRY: u32 = 16;

const _: () = assert!(FIELD_BYTES == 104 && ENTRY_BYTES == 24 && FIELD_BYTES.is_multiple_of(8));

/// Entries that fit into a work request of a queue pair with that room for inline data.
pub(crate) fn entries_max(max_inline_data: u32) -> u32 {
    (max_inline_data / INLINE_BYTES_AN_ENTRY).max(ENTRIES_LEAST)
}

/// The most bytes of such a work request.
pub(crate) fn bytes_max(max_inline_data: u32) -> usize {
    FIELD_BYTES + entries_max(max_inline_data) as usize * ENTRY_BYTES
}

impl DomainFields {
    pub(crate) const T10DIF: u32 = 1;
    pub(crate) const CRC: u32 = 2;

    fn domain(&self) -> Result<Option<Domain>, c_int> {
        let protection = match self.kind {
            0 => return Ok(None),
            Self::T10DIF => Protection::T10(self.t10()?),
            Self::CRC => Protection::Crc(self.crc()?),
            _ => return Err(libc::EINVAL),
        };
        let block_bytes = match self.block_size {
            block_size::B512 => 512,
            block_size::B520 => 520,
            block_size::B4048 => 4048,
            block_size::B4096 => 4096,
            block_size::B4160 => 4160,
            _ => return Err(libc::EINVAL),
        };
        Ok(Some(Domain { protection, block_bytes }))
    }

    fn t10(&self) -> Result<T10, c_int> {
        let sum = match self.sub_type {
            t10dif_bg_type::CRC => Sum::T10Crc,
            t10dif_bg_type::CSUM => Sum::IpChecksum,
            _ => return Err(libc::EINVAL),
        };
        let known = t10dif_flags::REF_REMAP | t10dif_flags::APP_ESCAPE | t10dif_flags::APP_REF_ESCAPE;
        if self.flags & !u32::from(known) != 0 {
            return Err(libc::EINVAL);
        }
        let has = |flag: u16| self.flags & u32::from(flag) != 0;
        let app_ref_escape = has(t10dif_flags::APP_REF_ESCAPE);
        Ok(T10 {
            guard: Guard { sum, from_ones: self.is_from_ones(0xffff)? },
            app_tag: self.app_tag as u16,
            ref_tag: self.ref_tag,
            ref_remap: has(t10dif_flags::REF_REMAP),
            // If both are set, a driver takes the narrower one.
            app_escape: has(t10dif_flags::APP_ESCAPE) && !app_ref_escape,
            app_ref_escape,
        })
    }

    fn crc(&self) -> Result<Guard, c_int> {
        let (sum, ones) = match self.sub_type {
            crc_type::CRC32 => (Sum::Crc32, u64::from(u32::MAX)),
            crc_type::CRC32C => (Sum::Crc32c, u64::from(u32::MAX)),
            crc_type::CRC64_XP10 => (Sum::Crc64Xp10, u64::MAX),
            _ => return Err(libc::EINVAL),
        };
        Ok(Guard { sum, from_ones: self.is_from_ones(ones)? })
    }

    /// A seed is 0 or all ones.
    fn is_from_ones(&self, ones: u64) -> Result<bool, c_int> {
        match self.seed {
            0 => Ok(false),
            seed if seed == ones => Ok(true),
            _ => Err(libc::EINVAL),
        }
    }
}

impl LayoutPart {
    /// The words of the inline data.
    pub(crate) fn words(self) -> [u64; ENTRY_BYTES / 8] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [self.addr, pair(self.bytes, self.skip), pair(self.lkey, self.reserved)]
    }
}

impl Fields {
    /// Writes the fields to the front of the inline data, which has room.
    pub(crate) fn write(&self, words: &mut [u64]) {
        // SAFETY: integers without padding (their size is asserted above), so they are these words.
        let fields = unsafe { std::mem::transmute::<Fields, [u64; FIELD_BYTES / 8]>(*self) };
        words[..fields.len()].copy_from_slice(&fields);
    }
}

/// The checked contents of a work request.
pub(crate) struct Configuration<'a> {
    pub(crate) mkey: *mut mlx5dv_mkey,
    /// New rights, if they change.
    pub(crate) access: Option<u32>,
    /// A new layout, if it changes.
    pub(crate) layout: Option<NewLayout<'a>>,
    pub(crate) signature: NewSignature,
}

/// A layout, in entries.
#[derive(Clone, Copy)]
pub(crate) struct NewLayout<'a> {
    pub(crate) repeat: u32,
    pub(crate) is_interleaved: bool,
    bytes: &'a [u8],
}

/// The change of the block signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewSignature {
    Kept,
    Reset,
    /// `None`: no signature in either domain.
    Set(Option<BlockSignature>),
}

impl NewLayout<'_> {
    pub(crate) fn entries(&self) -> impl Iterator<Item = LayoutPart> {
        let (entries, _) = self.bytes.as_chunks::<ENTRY_BYTES>();
        // SAFETY: the bytes are there, and are integers, for which every bit pattern is valid.
        entries.iter().map(|bytes| unsafe { bytes.as_ptr().cast::<LayoutPart>().read_unaligned() })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }
}

/// Reads the inline data of a work request.
pub(crate) fn read(wr: SendWr<'_>) -> Result<Configuration<'_>, c_int> {
    let (Some(bytes), true) = (wr.inline_bytes(), wr.is_inline()) else { return Err(libc::EINVAL) };
    let (Some(front), Some(rest)) = (bytes.get(..FIELD_BYTES), bytes.get(FIELD_BYTES..)) else {
        return Err(libc::EINVAL);
    };
    // SAFETY: the bytes are there, and are integers, for which every bit pattern is valid.
    let fields = unsafe { front.as_ptr().cast::<Fields>().read_unaligned() };
    let has = |setter| fields.setters & setter != 0;
    let is_interleaved = has(Setters::INTERLEAVED);
    let layout = (is_interleaved || has(Setters::LIST)).then_some(NewLayout {
        repeat: fields.repeat,
        is_interleaved,
        bytes: rest,
    });
    if rest.len() != fields.entries as usize * ENTRY_BYTES || (layout.is_none() && !rest.is_empty()) {
        return Err(libc::EINVAL);
    }
    let reset = fields.conf_flags & mkey_conf_flags::RESET_SIG_ATTR != 0;
    let signature = match (has(Setters::SIGNATURE), reset) {
        (true, _) => NewSignature::Set(signature(&fields)?),
        (false, true) => NewSignature::Reset,
        (false, false) => NewSignature::Kept,
    };
    let access = has(Setters::ACCESS).then_some(fields.access);
    Ok(Configuration { mkey: fields.mkey as *mut mlx5dv_mkey, access, layout, signature })
}

fn signature(fields: &Fields) -> Result<Option<BlockSignature>, c_int> {
    let (memory, wire) = (fields.memory.domain()?, fields.wire.domain()?);
    let copy_mask = (fields.sig_flags & sig_block_attr_flags::COPY_MASK != 0).then_some(fields.copy_mask);
    let alike = memory.zip(wire).and_then(|(memory, wire)| copied(&memory, &wire)).is_some();
    if copy_mask.is_some() && !alike {
        return Err(libc::EINVAL);
    }
    let some = memory.is_some() || wire.is_some();
    Ok(some.then_some(BlockSignature { memory, wire, check_mask: fields.check_mask, copy_mask }))
}
