//! `ibv_modify_qp(3)` for UC.

use super::common::*;
use super::modify::{self, Page, at, is_refused};
use crate::check::{During, Outcome, same};
use crate::rig::{Access, Attr, AttrMask, Rig, Side, State};
use crate::suite::Row;

/// The page's lists for UC.
pub(super) const PAGE: Page = Page {
    init: &[AttrMask::PKEY_INDEX, AttrMask::PORT, AttrMask::ACCESS_FLAGS],
    rtr: &[AttrMask::AV, AttrMask::PATH_MTU, AttrMask::DEST_QPN, AttrMask::RQ_PSN],
    rts: &[AttrMask::SQ_PSN],
};

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::MODIFY_QP, says, test);
    let mut rows = modify::rows(UC, &PAGE);
    rows.extend([
        row(
            "modify_uc/cur-state-is-assumed",
            "cur_qp_state is assumed to be the state: what may be given on the way is judged from it",
            cur_state_is_assumed,
        ),
        sqe_row("modify_uc/sqe-to-rts-takes-access-flags", "UC, SQE to RTS: qp_access_flags may be given", |side| {
            side.qp.attr(0).to(State::Rts).access(Access::REMOTE_READ)
        }),
        sqe_row("modify_uc/sqe-to-rts-takes-cur-state", "UC, SQE to RTS: cur_qp_state may be given", |side| {
            side.qp.attr(0).to(State::Rts).cur_state(State::Sqe)
        }),
        row("modify_uc/sqd-to-sqd-takes-av", "UC, SQD to SQD: IBV_QP_AV may be given", sqd_to_sqd_takes_av).rxe(
            "ibv_modify_qp answered EINVAL",
            "IBV_QP_AV is refused",
            "kernel limit: uverbs adds IBV_QP_PORT to IBV_QP_AV in SQD, which the kernel's table allows for RC only",
        ),
        Row::new(
            "modify_uc/query-tells-what-was-set",
            page::QUERY_QP,
            "ibv_query_qp returns the attributes as they were set",
            query_tells_what_was_set,
        ),
    ]);
    rows
}

/// A row that no kernel device in a guest can show: written out, independent of the table that the
/// software RNIC follows.
fn sqe_row(rule: &str, says: &str, attr: fn(&Side) -> Attr) -> Row {
    let (seen, does, why) = RXE_NO_SQE;
    let test = move |rig: &Rig| {
        let side = at(rig, UC, State::Sqe)?;
        side.qp.modify(&attr(&side))?;
        side.qp.expect_state(State::Rts)
    };
    Row::new(rule, page::MODIFY_QP, says, test).rxe(seen, does, why)
}

/// The queue pair is in RTS, but `cur_state` names another state. mlx5_ib_modify_qp() and
/// rxe_qp_chk_attr() go by that.
fn cur_state_is_assumed(rig: &Rig) -> Outcome {
    let side = at(rig, UC, State::Rts)?;
    let assumed = |state| side.qp.attr(0).to(State::Rts).cur_state(state);
    // From SQE no path_mig_state may be given, and from RTR sq_psn must be.
    let too_much = assumed(State::Sqe).access(Access::REMOTE_READ).with(AttrMask::PATH_MIG_STATE);
    is_refused(&side.qp, "path_mig_state as from SQE", &too_much)?;
    is_refused(&side.qp, "no sq_psn as from RTR", &assumed(State::Rtr))?;
    is_refused(&side.qp, "as from INIT, where no idea may be given", &assumed(State::Init))?;
    for (state, access) in [(State::Sqe, Access::REMOTE_READ), (State::Sqd, Access::REMOTE_WRITE)] {
        side.qp.modify(&assumed(state).access(access)).during(format_args!("as from {state}"))?;
        side.qp.expect_state(State::Rts)?;
        same("qp_access_flags", side.qp.query()?.field("qp_access_flags"), access.0.into())?;
    }
    Ok(())
}

fn sqd_to_sqd_takes_av(rig: &Rig) -> Outcome {
    let side = at(rig, UC, State::Sqd)?;
    side.qp.modify(&side.qp.attr(side.qp.number()).to(State::Sqd).with(AttrMask::AV))?;
    side.qp.expect_state(State::Sqd)
}

fn query_tells_what_was_set(rig: &Rig) -> Outcome {
    let side = at(rig, UC, State::Rts)?;
    let now = side.qp.query()?;
    same("dest_qp_num", now.field("dest_qp_num"), side.qp.number().into())?;
    same("path_mtu", now.field("path_mtu"), rig.port().attr.active_mtu.into())?;
    same("rq_psn", now.field("rq_psn"), 0x1234)?;
    same("sq_psn", now.field("sq_psn"), 0x1234)?;
    same("the state", now.state(), Some(State::Rts))
}
