//! `[nvme.namespace.N]` in the plan: a namespace's store, its block format, and its names.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use verbline::prelude::*;
use verbline_nvme::protection::ProtectionType;

use crate::layout::Layout;

/// The greatest number of a namespace.
pub(crate) const NSID_MAX: u32 = 2048;

/// `[nvme.namespace.N]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamespaceSettings {
    pub(crate) memory: Option<String>,
    pub(crate) file: Option<PathBuf>,
    pub(crate) create_bytes: Option<u64>,
    pub(crate) page_cache: bool,
    pub(crate) null_bytes: Option<u64>,
    pub(crate) block_bytes: u32,
    pub(crate) protection: Option<ProtectionKey>,
    pub(crate) read_only: bool,
    pub(crate) uuid: Option<Name<16>>,
    pub(crate) nguid: Option<Name<16>>,
    pub(crate) eui64: Option<Name<8>>,
}

impl Keys for NamespaceSettings {
    const KEYS: &'static [AppKey] = &[
        AppKey::text("memory", "a region's NAME", "keeps the blocks; one of the target's stages owns it")
            .optional("none"),
        AppKey::text("file", "a path", "a file or block device that keeps the blocks").optional("none"),
        AppKey::integer("create_bytes", 0..=i64::MAX as u64, "makes the file, so long, if it is not there")
            .unit("bytes")
            .optional("it is there"),
        AppKey::flag("page_cache", "the file goes through the page cache; else past it, where it can").or_flag(false),
        AppKey::integer("null_bytes", 512..=i64::MAX as u64, "nothing is kept: so long, and reads as zeros")
            .unit("bytes")
            .optional("none"),
        AppKey::integer("block_bytes", 512..=4096, "a block's data: 512, 1024, 2048 or 4096").or(4096).unit("bytes"),
        AppKey::choice("protection", &["type1", "type2", "type3"], "protection information behind each block")
            .optional("none"),
        AppKey::flag("read_only", "whether hosts may not write").or_flag(false),
        AppKey::text("uuid", "32 hex digits", "its name").optional("its blocks'"),
        AppKey::text("nguid", "32 hex digits", "a name of IEEE's kind, beside it").optional("none"),
        AppKey::text("eui64", "16 hex digits", "a shorter name of IEEE's kind").optional("none"),
    ];
}

/// A name of this many bytes, in hexadecimal digits; dashes between them are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<const BYTES: usize>(pub(crate) [u8; BYTES]);

impl<'de, const BYTES: usize> Deserialize<'de> for Name<BYTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u8>> =
            text.chars().filter(|digit| *digit != '-').map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        let digits = digits.filter(|digits| digits.len() == 2 * BYTES && digits.iter().any(|digit| *digit != 0));
        let no = || D::Error::custom(format!("`{text}` is no name: write {} hexadecimal digits, not all 0", 2 * BYTES));
        let digits = digits.ok_or_else(no)?;
        Ok(Name(std::array::from_fn(|at| digits[2 * at] << 4 | digits[2 * at + 1])))
    }
}

/// `protection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProtectionKey {
    Type1,
    Type2,
    Type3,
}

impl NamespaceSettings {
    /// The layout of its blocks in the store.
    pub(crate) fn layout(&self) -> Layout {
        let kind = self.protection.map(|key| match key {
            ProtectionKey::Type1 => ProtectionType::Type1,
            ProtectionKey::Type2 => ProtectionType::Type2,
            ProtectionKey::Type3 => ProtectionType::Type3,
        });
        Layout::new(self.block_bytes, kind, self.file.is_some())
    }
}

/// The place of the blocks, compared regardless of the name used for it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place<'a> {
    Region(&'a str),
    File {
        device: u64,
        inode: u64,
    },
    Device(u64),
    /// A file that does not exist yet.
    New(PathBuf),
}

impl NamespaceSettings {
    fn place(&self) -> Option<Place<'_>> {
        if let Some(region) = &self.memory {
            return Some(Place::Region(region));
        }
        let path = self.file.as_ref()?;
        Some(match std::fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => Place::Device(found.rdev()),
            Ok(found) => Place::File { device: found.dev(), inode: found.ino() },
            Err(_) => Place::New(path.clone()),
        })
    }

    fn check(&self, number: &str) -> Result<(), String> {
        if !number.parse().is_ok_and(|number: u32| (1..=NSID_MAX).contains(&number)) {
            return Err(format!("`{number}` numbers no namespace: write 1 to {NSID_MAX}"));
        }
        if let Some(plain) = number.parse::<u32>().ok().map(|number| number.to_string()).filter(|plain| plain != number)
        {
            return Err(format!("`{number}` is another way to write {plain}: write [nvme.namespace.{plain}]"));
        }
        let block = self.block_bytes;
        if !block.is_power_of_two() || !(512..=4096).contains(&block) {
            return Err(format!("namespace {number}: blocks of {block} bytes; write 512, 1024, 2048 or 4096"));
        }
        if self.file.is_none() && (self.create_bytes.is_some() || self.page_cache) {
            return Err(format!("namespace {number}: `create_bytes` and `page_cache` go with `file`"));
        }
        if self.protection.is_some() && self.null_bytes.is_some() {
            return Err(format!("namespace {number}: `null_bytes` keep nothing, so no `protection` either"));
        }
        if let Some(bytes) = self.null_bytes.filter(|bytes| *bytes < block.into()) {
            return Err(format!("namespace {number}: {bytes} `null_bytes` are less than a block of {block}"));
        }
        match (&self.memory, &self.file, self.null_bytes) {
            (Some(_), None, None) | (None, Some(_), None) | (None, None, Some(_)) => Ok(()),
            _ => Err(format!(
                "namespace {number} is kept nowhere, or twice: write `memory = \"REGION\"`, `file = \"PATH\"` or \
                 `null_bytes`"
            )),
        }
    }
}

/// Checks each namespace, and that no two share blocks or a name.
pub(crate) fn check_namespaces(all: &BTreeMap<String, NamespaceSettings>) -> Result<(), String> {
    let mut before: Vec<(&String, Option<Place<'_>>, &NamespaceSettings)> = Vec::new();
    for (number, space) in all {
        space.check(number)?;
        let place = space.place();
        for (other, their_place, theirs) in &before {
            if place.is_some() && place == *their_place {
                let name = space.memory.as_ref().map(|region| format!("region.{region}"));
                let name = name.unwrap_or_else(|| format!("{:?}", space.file.as_deref().unwrap_or("".as_ref())));
                let why = match space.read_only && theirs.read_only {
                    true => "a place has one namespace",
                    false => "their hosts would write over each other's blocks",
                };
                return Err(format!(
                    "namespaces {other} and {number} are both kept in {name}: {why}; give each its own"
                ));
            }
            let shared = [
                ("uuid", space.uuid.is_some() && space.uuid == theirs.uuid),
                ("nguid", space.nguid.is_some() && space.nguid == theirs.nguid),
                ("eui64", space.eui64.is_some() && space.eui64 == theirs.eui64),
            ];
            if let Some((key, _)) = shared.iter().find(|(_, is_shared)| *is_shared) {
                return Err(format!("namespaces {other} and {number} have one `{key}`: hosts would take them for one"));
            }
        }
        before.push((number, place, space));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of tables are not registered one by one.
    #[test]
    fn every_key_of_a_namespace_is_declared() {
        assert_eq!(verbline::plan::undeclared::<NamespaceSettings>(), [""; 0]);
    }
}
