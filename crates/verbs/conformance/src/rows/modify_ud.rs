//! `ibv_modify_qp(3)` for UD.

use super::common::*;
use super::modify::{self, Page, at};
use crate::check::{Outcome, same};
use crate::rig::{Attr, AttrMask, Rig, State, Wr};
use crate::suite::Row;

/// The page's lists for UD.
pub(super) const PAGE: Page =
    Page { init: &[AttrMask::PKEY_INDEX, AttrMask::PORT, AttrMask::QKEY], rtr: &[], rts: &[AttrMask::SQ_PSN] };

pub(super) fn rows() -> Vec<Row> {
    let mut rows = modify::rows(UD, &PAGE);
    rows.extend([
        Row::new(
            "modify_ud/qkey-takes-effect",
            page::MODIFY_QP,
            "The Q_Key, changed in RTS, is what messages must have from then on",
            qkey_takes_effect,
        ),
        Row::new(
            "modify_ud/query-tells-what-was-set",
            page::QUERY_QP,
            "ibv_query_qp returns the attributes as they were set",
            query_tells_what_was_set,
        ),
    ]);
    rows
}

fn qkey_takes_effect(rig: &Rig) -> Outcome {
    const OTHER: u32 = 0x2222_2222;
    let pair = rig.pair(UD)?;
    pair.b.qp.modify(&pair.b.qp.attr(0).to(State::Rts).qkey(OTHER))?;
    pair.b.recv(1)?;
    pair.a.qp.send(pair.send(2))?;
    pair.a.scq.wait_ok()?;
    pair.b.rcq.quiet()?;
    pair.a.qp.send(Wr::send(3).imm(3).to(&rig.ah()?, pair.b.qp.number(), OTHER))?;
    pair.a.scq.wait_ok()?;
    let wc = pair.b.rcq.wait_ok()?;
    same("what arrived", (wc.id, wc.imm), (1, Some(3)))
}

fn query_tells_what_was_set(rig: &Rig) -> Outcome {
    let side = at(rig, UD, State::Rts)?;
    let now = side.qp.query()?;
    same("qkey", now.field("qkey"), Attr::QKEY.into())?;
    same("port_num", now.field("port_num"), 1)?;
    same("pkey_index", now.field("pkey_index"), 0)?;
    same("sq_psn", now.field("sq_psn"), 0x1234)?;
    same("the state", now.state(), Some(State::Rts))
}
