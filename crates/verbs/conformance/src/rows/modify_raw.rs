//! `ibv_modify_qp(3)` for RAW_PACKET, and the refusal of devices without it.

use super::common::*;
use super::modify::{self, Page};
use crate::check::{Failure, Outcome, one_of};
use crate::rig::{AttrMask, Cap, Rig, SideSpec, Transport};
use crate::suite::Row;

/// The page's lists for RAW_PACKET.
pub(super) const PAGE: Page = Page { init: &[AttrMask::PORT], rtr: &[], rts: &[] };

pub(super) fn rows() -> Vec<Row> {
    let mut rows = modify::few_rows(Transport::RawPacket, &PAGE);
    rows.push(Row::new(
        "modify_raw/no-raw-packet-where-there-is-none",
        page::CREATE_QP,
        "A device whose max_raw_ethy_qp is 0 refuses to create a RAW_PACKET queue pair",
        none_where_there_is_none,
    ));
    rows
}

fn none_where_there_is_none(rig: &Rig) -> Outcome {
    if rig.context().has(Cap::RawPacket) {
        return Err(Failure::Lacks("it has RAW_PACKET queue pairs: the rule is about devices without".to_owned()));
    }
    match rig.create_refused(Transport::RawPacket, SideSpec::default())? {
        None => Err(Failure::new("expected a refusal, a RAW_PACKET queue pair was created")),
        Some(refused) => one_of("errno", refused.errno, &[libc::EOPNOTSUPP, libc::EINVAL, libc::ENOSYS, libc::EPERM]),
    }
}
