//! Alternate paths of RC connections, and their migration (`ibv_modify_qp(3)`).

use super::common::*;
use super::modify::{at, is_refused};
use crate::check::{Failure, Outcome, same};
use crate::rig::{AsyncKind, AttrMask, Cap, Element, Pair, Rig, Side, State};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::MODIFY_QP, says, test);
    vec![
        row(
            "modify_rc/alternate-path-needs-its-capability",
            "A device without alternate paths refuses IBV_QP_ALT_PATH",
            alternate_path_needs_its_capability,
        ),
        row(
            "modify_rc/alternate-path-is-set",
            "A device with IBV_DEVICE_AUTO_PATH_MIG takes an alternate path, and tells it",
            alternate_path_is_set,
        )
        .needs(Cap::AlternatePath),
        row(
            "modify_rc/migration-is-armed-by-both-ends",
            "A connection is armed for path migration once both ends asked, and not when one did",
            migration_is_armed_by_both_ends,
        )
        .needs(Cap::AlternatePath),
        row(
            "modify_rc/migrates-when-told",
            "Told to be MIGRATED, an armed connection goes by its alternate path, of which an event tells",
            migrates_when_told,
        )
        .needs(Cap::AlternatePath),
        row(
            "modify_rc/grh-on-the-alternate-path-too",
            "With IBV_QPF_GRH_REQUIRED an alternate path without GRH is refused, too",
            grh_on_the_alternate_path,
        )
        .needs(Cap::GrhRequired)
        .needs(Cap::AlternatePath),
    ]
}

fn alternate_path_needs_its_capability(rig: &Rig) -> Outcome {
    if rig.context().has(Cap::AlternatePath) {
        return Err(Failure::Lacks("it has alternate paths: the rule is about devices without".to_owned()));
    }
    let side = at(rig, RC, State::Rts)?;
    is_refused(&side.qp, "IBV_QP_ALT_PATH", &side.qp.attr(0).to(State::Rts).with(AttrMask::ALT_PATH)).map(drop)
}

fn alternate_path_is_set(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Rts)?;
    let before = side.qp.query()?;
    side.qp.modify(&side.qp.attr(0).to(State::Rts).alternate(ALTERNATE_TIMEOUT, ALTERNATE_HOPS))?;
    let now = side.qp.query()?;
    let path = |name: &str| now.field(&format!("alt_{name}"));
    same("alt_ah_attr's GID", path("ah_attr.grh.dgid (low half)"), before.field("ah_attr.grh.dgid (low half)"))?;
    same("alt_ah_attr's hop limit", path("ah_attr.grh.hop_limit"), ALTERNATE_HOPS.into())?;
    same("alt_pkey_index", path("pkey_index"), 0)?;
    same("alt_port_num", path("port_num"), 1)?;
    same("alt_timeout", path("timeout"), ALTERNATE_TIMEOUT.into())?;
    same("the primary path's hop limit", now.field("ah_attr.grh.hop_limit"), before.field("ah_attr.grh.hop_limit"))
}

/// `enum ibv_mig_state`.
const MIGRATED: u32 = 0;
const REARM: u32 = 1;
const ARMED: u64 = 2;

const ALTERNATE_TIMEOUT: u8 = 16;
const ALTERNATE_HOPS: u8 = 9;

fn rearm(side: &Side) -> Outcome {
    let attr = side.qp.attr(0).to(State::Rts).alternate(ALTERNATE_TIMEOUT, ALTERNATE_HOPS).migration(REARM);
    Ok(side.qp.modify(&attr)?)
}

fn migration_state(side: &Side) -> Outcome<u64> {
    Ok(side.qp.query()?.field("path_mig_state"))
}

/// Both ends request to be armed, and a message each way confirms it.
fn armed(rig: &Rig) -> Outcome<Pair> {
    let pair = rig.pair(RC)?;
    rearm(&pair.a)?;
    rearm(&pair.b)?;
    pair.exchange()?;
    Ok(pair)
}

fn migration_is_armed_by_both_ends(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    rearm(&pair.a)?;
    pair.exchange()?;
    same("path_mig_state of the end that asked alone", migration_state(&pair.a)?, REARM.into())?;
    same("path_mig_state of its peer", migration_state(&pair.b)?, MIGRATED.into())?;
    let pair = armed(rig)?;
    for side in [&pair.a, &pair.b] {
        same("path_mig_state", migration_state(side)?, ARMED)?;
    }
    Ok(())
}

fn migrates_when_told(rig: &Rig) -> Outcome {
    let pair = armed(rig)?;
    pair.a.qp.modify(&pair.a.qp.attr(0).to(State::Rts).migration(MIGRATED))?;
    rig.context().wait_async_soon(AsyncKind::PATH_MIG, Element::Qp(&pair.a.qp))?;
    pair.exchange()?;
    rig.context().wait_async_soon(AsyncKind::PATH_MIG, Element::Qp(&pair.b.qp))?;
    for side in [&pair.a, &pair.b] {
        let now = side.qp.query()?;
        same("path_mig_state", now.field("path_mig_state"), MIGRATED.into())?;
        same("the primary path's hop limit", now.field("ah_attr.grh.hop_limit"), ALTERNATE_HOPS.into())?;
        same("timeout", now.field("timeout"), ALTERNATE_TIMEOUT.into())?;
    }
    Ok(())
}

fn grh_on_the_alternate_path(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Rts)?;
    let attr = side.qp.attr(0).to(State::Rts).alternate_without_grh();
    is_refused(&side.qp, "alt_ah_attr without GRH", &attr).map(drop)
}
