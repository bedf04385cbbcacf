//! The Identify pages of namespaces.

use crate::bytes::{array, put, u16_at, u32_at, u64_at};
use crate::error::FieldError;
use crate::identify::PAGE_BYTES;
use crate::protection::{PROTECTION_BYTES, ProtectionType};
use crate::status::Status;

/// The most namespaces in a list.
pub const LISTED_MAX: usize = PAGE_BYTES / 4;
/// The NSID that stands for all namespaces.
pub const NSID_ALL: u32 = 0xFFFF_FFFF;

/// The page of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The size, in blocks.
    pub blocks: u64,
    /// A block has `1 << block_shift` bytes.
    pub block_shift: u8,
    /// Writes are refused.
    pub is_read_only: bool,
    /// The NGUID, if it has one.
    pub nguid: Option<[u8; 16]>,
    /// The EUI-64, if it has one.
    pub eui64: Option<[u8; 8]>,
    /// The type of the protection information behind each block, if there is any.
    pub protection: Option<ProtectionType>,
}

/// FLBAS and MC: metadata travels with the data.
const EXTENDED_FORMAT: u8 = 1 << 4;
const EXTENDED_METADATA: u8 = 1;
/// DPC: protection information may stand at the end of the metadata.
const PROTECTION_LAST: u8 = 1 << 4;

impl Namespace {
    /// Writes the page.
    pub fn write(&self, page: &mut [u8; PAGE_BYTES]) {
        page.fill(0);
        for at in [0, 8, 16] {
            put(page, at, &self.blocks.to_le_bytes()); // NSZE, NCAP, NUSE
        }
        if let Some(kind) = self.protection {
            page[26] = EXTENDED_FORMAT;
            page[27] = EXTENDED_METADATA;
            page[28] = PROTECTION_LAST | 1 << (kind.number() - 1);
            page[29] = kind.number(); // DPS
            put(page, 128, &(PROTECTION_BYTES as u16).to_le_bytes());
        }
        page[30] = 1; // NMIC: several controllers may use it.
        page[33] = 1; // DLFEAT: what was given back reads as zeros, and its guards as ones.
        page[99] = self.is_read_only.into();
        put(page, 104, &self.nguid.unwrap_or_default());
        put(page, 120, &self.eui64.unwrap_or_default());
        page[130] = self.block_shift;
    }

    /// Reads a page.
    ///
    /// # Errors
    /// The page is too short, the block size is out of range, or the blocks have metadata that is
    /// not protection information alone, or that does not travel with the data.
    pub fn read(page: &[u8]) -> Result<Namespace, FieldError> {
        if page.len() < PAGE_BYTES {
            return Err(FieldError::short("Identify Namespace", page.len()));
        }
        let format = 128 + 4 * usize::from(page[26] & 0x0F);
        let block_shift = page[format + 2];
        if !(9..=31).contains(&block_shift) {
            return Err(FieldError::new("LBADS", format + 2, block_shift, Status::INVALID_NAMESPACE));
        }
        let metadata_bytes = u16_at(page, format);
        let protection = ProtectionType::from_number(page[29] & 0x07);
        let is_known = match protection {
            Some(_) => u32::from(metadata_bytes) == PROTECTION_BYTES && page[26] & EXTENDED_FORMAT != 0,
            None => metadata_bytes == 0 && page[29] & 0x07 == 0,
        };
        if !is_known {
            return Err(FieldError::new("MS", format, metadata_bytes, Status::INVALID_NAMESPACE));
        }
        let (blocks, is_read_only) = (u64_at(page, 0), page[99] & 1 != 0);
        let nguid = Some(array(page, 104)).filter(|nguid| *nguid != [0; 16]);
        let eui64 = Some(array(page, 120)).filter(|eui64| *eui64 != [0; 8]);
        Ok(Namespace { blocks, block_shift, is_read_only, nguid, eui64, protection })
    }
}

/// Writes a list of the `nsids` above `after`. They must be in ascending order.
pub fn write_list(page: &mut [u8; PAGE_BYTES], nsids: impl Iterator<Item = u32>, after: u32) {
    page.fill(0);
    for (place, nsid) in nsids.filter(|nsid| *nsid > after).take(LISTED_MAX).enumerate() {
        put(page, 4 * place, &nsid.to_le_bytes());
    }
}

/// Reads the NSIDs of a list, up to the first 0.
pub fn read_list(page: &[u8]) -> impl Iterator<Item = u32> {
    page.chunks_exact(4).map(|bytes| u32_at(bytes, 0)).take_while(|nsid| *nsid != 0)
}

/// A globally unique name of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// IEEE Extended Unique Identifier.
    Eui64([u8; 8]),
    /// Namespace Globally Unique Identifier.
    Nguid([u8; 16]),
    /// Namespace UUID, like the Linux target's namespaces have.
    Uuid([u8; 16]),
}

const EUI64: u8 = 1;
const NGUID: u8 = 2;
const UUID: u8 = 3;
const COMMAND_SET: u8 = 4;

/// The globally unique names of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// The UUID, which every namespace has.
    pub uuid: [u8; 16],
    /// The NGUID, if it has one. NGUID and EUI-64 need a number assigned by IEEE.
    pub nguid: Option<[u8; 16]>,
    /// The EUI-64, if it has one.
    pub eui64: Option<[u8; 8]>,
}

/// Writes the identification descriptors of a namespace: its names and its command set, NVM.
pub fn write_descriptors(page: &mut [u8; PAGE_BYTES], names: &Names) {
    page.fill(0);
    let mut at = 0;
    let mut add = |kind: u8, value: &[u8]| {
        put(page, at, &[kind, value.len() as u8]);
        put(page, at + 4, value);
        at += 4 + value.len();
    };
    names.eui64.iter().for_each(|eui64| add(EUI64, eui64));
    names.nguid.iter().for_each(|nguid| add(NGUID, nguid));
    add(UUID, &names.uuid);
    add(COMMAND_SET, &[0]); // The NVM command set.
}

/// Reads the first name among the descriptors.
pub fn read_name(page: &[u8]) -> Option<Name> {
    let mut rest = page;
    while let [kind, len, _, _, behind @ ..] = rest {
        match (*kind, *len) {
            (0, _) => return None,
            (EUI64, 8) => return behind.first_chunk().copied().map(Name::Eui64),
            (NGUID, 16) => return behind.first_chunk().copied().map(Name::Nguid),
            (UUID, 16) => return behind.first_chunk().copied().map(Name::Uuid),
            (_, len) => rest = behind.get(usize::from(len)..)?,
        }
    }
    None
}
