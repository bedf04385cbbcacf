//! The shape of a region in the file.

use crate::choices::Pages;
use crate::head::Head;
use crate::limits::{LISTED_MAX, REGION_BYTES_MAX};
use crate::read::{Field, Reader};

/// What `pages` may say.
pub(crate) const PAGES: [(&str, Pages); 4] =
    [("auto", Pages::Auto), ("4KiB", Pages::Small4K), ("2MiB", Pages::Huge2M), ("1GiB", Pages::Huge1G)];

#[derive(Debug)]
pub(crate) struct RawRegion {
    pub(crate) head: Head,
    pub(crate) device: Option<Field<String>>,
    pub(crate) bytes: Option<Field<u32>>,
    pub(crate) pages: Field<Pages>,
    pub(crate) rights: Vec<Field<String>>,
}

pub(crate) fn read(head: Head, reader: &mut Reader<'_>) -> RawRegion {
    RawRegion {
        head,
        device: reader.text("device", "\"NAME\", the device to register it with"),
        bytes: reader.number("bytes", 1..=REGION_BYTES_MAX, "1048576"),
        pages: reader.choice_or_first("pages", &PAGES),
        rights: reader.texts("rights", LISTED_MAX),
    }
}
