//! Attributes of a port's queue pairs, by their names in ibv_modify_qp(3). One that is left out is
//! not the plan's to say.

use crate::diag::source::Span;
use crate::limits::{
    HOP_LIMIT_MAX, PATH_MTU_MAX, PATH_MTU_MIN, PKEY_MAX, QKEY, QKEY_MAX, RD_ATOMIC_MAX, SERVICE_LEVEL_MAX,
    TRAFFIC_CLASS_MAX,
};
use crate::read::reader::{Field, Reader};

#[derive(Debug)]
pub(crate) struct RawAttributes {
    pub(crate) traffic_class: Option<Field<u32>>,
    pub(crate) hop_limit: Option<Field<u32>>,
    pub(crate) service_level: Option<Field<u32>>,
    pub(crate) path_mtu: Option<Field<u32>>,
    pub(crate) pkey: Option<Field<u32>>,
    pub(crate) qkey: Option<Field<u32>>,
    pub(crate) max_rd_atomic: Option<Field<u32>>,
    pub(crate) max_dest_rd_atomic: Option<Field<u32>>,
    pub(crate) rate_limit: Option<Field<u32>>,
}

impl RawAttributes {
    pub(crate) fn read(reader: &mut Reader<'_>) -> RawAttributes {
        RawAttributes {
            traffic_class: reader.optional_number("traffic_class", 0..=TRAFFIC_CLASS_MAX),
            hop_limit: reader.optional_number("hop_limit", 1..=HOP_LIMIT_MAX),
            service_level: reader.optional_number("service_level", 0..=SERVICE_LEVEL_MAX),
            path_mtu: reader.optional_number("path_mtu", PATH_MTU_MIN..=PATH_MTU_MAX),
            pkey: reader.optional_number("pkey", 1..=PKEY_MAX),
            qkey: reader.optional_number("qkey", 0..=QKEY_MAX),
            max_rd_atomic: reader.optional_number("max_rd_atomic", 1..=RD_ATOMIC_MAX),
            max_dest_rd_atomic: reader.optional_number("max_dest_rd_atomic", 1..=RD_ATOMIC_MAX),
            rate_limit: reader.optional_number("rate_limit", 1..=u32::MAX),
        }
    }

    /// What the plan gives, or what ports have that say none.
    pub(crate) fn qkey(&self) -> u32 {
        self.qkey.as_ref().map_or(QKEY, |field| field.value)
    }

    /// Those that the plan gives, and where.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, Span)> {
        let all = [
            ("traffic_class", &self.traffic_class),
            ("hop_limit", &self.hop_limit),
            ("service_level", &self.service_level),
            ("path_mtu", &self.path_mtu),
            ("pkey", &self.pkey),
            ("qkey", &self.qkey),
            ("max_rd_atomic", &self.max_rd_atomic),
            ("max_dest_rd_atomic", &self.max_dest_rd_atomic),
            ("rate_limit", &self.rate_limit),
        ];
        all.into_iter().filter_map(|(key, field)| Some((key, field.as_ref()?.span)))
    }
}
