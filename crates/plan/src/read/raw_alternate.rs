//! A port's alternate path: another way to the same peer, for when the first fails.

use crate::diag::source::Span;
use crate::limits::{LID_MAX, PKEY_MAX, PORT_NUM_MAX, TIMER_CODE_MAX};
use crate::read::reader::{Field, Reader};

#[derive(Debug)]
pub(crate) struct RawAlternate {
    pub(crate) gid: Option<Field<String>>,
    pub(crate) lid: Option<Field<u32>>,
    pub(crate) port: Option<Field<u32>>,
    pub(crate) gid_index: Option<Field<u32>>,
    pub(crate) pkey: Option<Field<u32>>,
    pub(crate) timeout: Option<Field<u32>>,
}

impl RawAlternate {
    pub(crate) fn read(reader: &mut Reader<'_>) -> RawAlternate {
        RawAlternate {
            gid: reader.optional_text("alternate_gid"),
            lid: reader.optional_number("alternate_lid", 1..=LID_MAX),
            port: reader.optional_number("alternate_port", 1..=PORT_NUM_MAX),
            gid_index: reader.optional_number("alternate_gid_index", 0..=255),
            pkey: reader.optional_number("alternate_pkey", 1..=PKEY_MAX),
            timeout: reader.optional_number("alternate_timeout", 0..=TIMER_CODE_MAX),
        }
    }

    /// Those that the plan gives, and where; that of the GID first.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, Span)> {
        let gid = self.gid.as_ref().map(|field| ("alternate_gid", field.span));
        let others = [
            ("alternate_lid", &self.lid),
            ("alternate_port", &self.port),
            ("alternate_gid_index", &self.gid_index),
            ("alternate_pkey", &self.pkey),
            ("alternate_timeout", &self.timeout),
        ];
        gid.into_iter().chain(others.into_iter().filter_map(|(key, field)| Some((key, field.as_ref()?.span))))
    }
}
