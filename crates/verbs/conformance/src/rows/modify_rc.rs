//! `ibv_modify_qp(3)` for RC, and rules common to all transports.

use super::common::*;
use super::modify::{self, Page, at, is_refused};
use crate::check::{During, Failure, Outcome, ensure, same};
use crate::rig::{Access, AsyncKind, Attr, AttrMask, Cap, Element, Link, Rig, State, Status, Wr};
use crate::suite::Row;

/// The page's lists for RC.
pub(super) const PAGE: Page = Page {
    init: &[AttrMask::PKEY_INDEX, AttrMask::PORT, AttrMask::ACCESS_FLAGS],
    rtr: &[
        AttrMask::AV,
        AttrMask::PATH_MTU,
        AttrMask::DEST_QPN,
        AttrMask::RQ_PSN,
        AttrMask::MAX_DEST_RD_ATOMIC,
        AttrMask::MIN_RNR_TIMER,
    ],
    rts: &[AttrMask::SQ_PSN, AttrMask::MAX_QP_RD_ATOMIC, AttrMask::RETRY_CNT, AttrMask::RNR_RETRY, AttrMask::TIMEOUT],
};

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::MODIFY_QP, says, test);
    let mut rows = modify::rows(RC, &PAGE);
    rows.extend(values());
    rows.extend([
        row(
            "modify_rc/without-state-stays",
            "Without IBV_QP_STATE attributes change and the state doesn't",
            without_state_stays,
        ),
        row(
            "modify_rc/unknown-mask-bit",
            "A bit that is no attribute makes the mask invalid: none of the attributes is modified",
            unknown_mask_bit,
        ),
        row(
            "modify_rc/access-flags-take-effect",
            "qp_access_flags, changed in RTS, decide about remote operations from then on",
            access_flags_take_effect,
        ),
        row(
            "modify_rc/sqd-notify-raises-the-event",
            "EN_SQD_ASYNC_NOTIFY asks for IBV_EVENT_SQ_DRAINED once the send queue is drained",
            sqd_notify_raises_the_event,
        ),
        row(
            "modify_rc/sqd-without-notify-is-silent",
            "Without EN_SQD_ASYNC_NOTIFY no event is raised",
            sqd_without_notify_is_silent,
        )
        .rxe(
            "expected no SQ_DRAINED",
            "SQ_DRAINED is raised either way",
            "rxe doesn't look at en_sqd_async_notify",
        ),
        row(
            "modify_rc/resize-needs-its-capability",
            "A device without IBV_DEVICE_RESIZE_MAX_WR refuses IBV_QP_CAP",
            resize_needs_its_capability,
        ),
        row(
            "modify_rc/grh-where-the-port-requires-it",
            "With IBV_QPF_GRH_REQUIRED an address vector without GRH is refused",
            grh_where_required,
        )
        .needs(Cap::GrhRequired),
        row(
            "modify_rc/lid-is-an-address",
            "Without IBV_QPF_GRH_REQUIRED an address vector may be a LID alone",
            lid_is_an_address,
        )
        .needs(Cap::Lids),
        Row::new(
            "modify_rc/query-tells-what-was-set",
            page::QUERY_QP,
            "ibv_query_qp returns the attributes as they were set",
            query_tells_what_was_set,
        ),
        Row::new(
            "modify_rc/query-after-reset",
            page::QUERY_QP,
            "A queue pair that was reset is as one that was just created",
            query_after_reset,
        ),
    ]);
    rows
}

/// Invalid values of attributes. Each is refused and changes nothing.
fn values() -> Vec<Row> {
    let row = |rule: &str, says: &str, from: State, attr: fn(&Rig, Attr) -> Attr| {
        let rule = format!("modify_rc/invalid-{rule}");
        let says = format!("An invalid attribute is refused and none is modified: {says}");
        Row::new(rule, page::MODIFY_QP, says, move |rig| invalid(rig, from, attr))
    };
    let unchecked = |row: Row, why, does| row.rxe("changed attributes", does, why);
    vec![
        row("state", "a state that there isn't", State::Init, |_, attr| attr.state_number(42)),
        row("port", "a port that there isn't", State::Reset, |_, attr| attr.port(9)),
        row("port-0", "port 0: ports count from 1", State::Reset, |_, attr| attr.port(0)),
        unchecked(
            row("pkey-index", "an entry beyond the P_Key table", State::Reset, |rig, attr| {
                attr.pkey_index(rig.port().attr.pkeys)
            }),
            "rxe_qp_chk_attr() doesn't look at pkey_index: its ports have one P_Key",
            "any index is taken",
        ),
        row("path-mtu-too-large", "a path MTU above the port's", State::Init, |rig, attr| {
            attr.path_mtu(rig.port().attr.max_mtu + 1)
        }),
        unchecked(
            row("path-mtu-0", "a path MTU of 0", State::Init, |_, attr| attr.path_mtu(0)),
            "rxe_qp_chk_attr() checks only that it isn't above the port's",
            "an MTU of 0 is taken",
        ),
        row("gid-index", "an entry beyond the GID table", State::Init, |_, attr| attr.gid_index(u8::MAX)),
        row("path-port", "a path through another port than the queue pair's", State::Init, |_, attr| attr.path_port(9)),
        unchecked(
            row("max-dest-rd-atomic", "more than max_qp_rd_atom", State::Init, |rig, attr| {
                attr.dest_rd_atomic(over(rig.context().attr().max_qp_rd_atom))
            }),
            "rxe_qp_chk_attr() doesn't look at max_dest_rd_atomic",
            "any number is taken",
        ),
        row("max-rd-atomic", "more than max_qp_init_rd_atom", State::Rtr, |rig, attr| {
            attr.rd_atomic(over(rig.context().attr().max_qp_init_rd_atom))
        }),
        row("timeout", "a time-out that isn't 5 bits", State::Rtr, |_, attr| attr.timeout(32)),
        unchecked(
            row("retry-cnt", "a retry count that isn't 3 bits", State::Rtr, |_, attr| attr.retry_cnt(8)),
            "rxe_qp_chk_attr() doesn't look at retry_cnt",
            "8 is taken",
        ),
        unchecked(
            row("rnr-retry", "an RNR retry count that isn't 3 bits", State::Rtr, |_, attr| attr.rnr_retry(8)),
            "rxe_qp_chk_attr() doesn't look at rnr_retry",
            "8 is taken",
        ),
        unchecked(
            row("min-rnr-timer", "an RNR timer that isn't 5 bits", State::Init, |_, attr| attr.min_rnr_timer(32)),
            "rxe_qp_chk_attr() doesn't look at min_rnr_timer",
            "32 is taken",
        ),
    ]
}

/// One more than a limit, capped by the attribute's 8 bits.
fn over(limit: i32) -> u8 {
    u8::try_from(limit).unwrap_or(u8::MAX).saturating_add(1)
}

/// The next step from `from` with all required attributes, one of them made invalid by `spoil`.
fn invalid(rig: &Rig, from: State, spoil: fn(&Rig, Attr) -> Attr) -> Outcome {
    let side = at(rig, RC, from)?;
    let (to, required) = match from {
        State::Reset => (State::Init, PAGE.init),
        State::Init => (State::Rtr, PAGE.rtr),
        _ => (State::Rts, PAGE.rts),
    };
    let mask = required.iter().fold(AttrMask::STATE, |all, &bit| all | bit);
    let attr = side.qp.attr(side.qp.number()).to(to);
    is_refused(&side.qp, "the invalid value", &spoil(rig, attr).masked(mask))?;
    // That value alone was the reason.
    side.qp.modify(&side.qp.attr(side.qp.number()).to(to).masked(mask)).during("with a valid value")?;
    side.qp.expect_state(to)
}

fn without_state_stays(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Rts)?;
    side.qp.modify(&side.qp.attr(0).min_rnr_timer(9).access(Access::REMOTE_READ))?;
    side.qp.expect_state(State::Rts)?;
    let now = side.qp.query()?;
    same("min_rnr_timer", now.field("min_rnr_timer"), 9)?;
    same("qp_access_flags", now.field("qp_access_flags"), Access::REMOTE_READ.0.into())
}

fn unknown_mask_bit(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Rts)?;
    let attr = side.qp.attr(0).min_rnr_timer(9);
    let mask = attr.mask | AttrMask(1 << 30);
    is_refused(&side.qp, "bit 30", &attr.masked(mask)).map(drop)
}

fn access_flags_take_effect(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let write = |id| Wr::write(id, pair.remote(0)).sge(pair.a.mr.sge(0..8));
    pair.a.qp.send(write(1))?;
    pair.a.scq.wait_ok()?;
    pair.b.qp.modify(&pair.b.qp.attr(0).to(State::Rts).access(Access::REMOTE_READ))?;
    pair.a.qp.send(Wr::read(2, pair.remote(0)).sge(pair.a.mr.sge(0..8)))?;
    pair.a.scq.wait_ok().during("a READ, which is still let in")?;
    pair.a.qp.send(write(3))?;
    let status = pair.a.scq.wait_one()?.status;
    crate::check::one_of("the status of a WRITE", status, &[Status::REM_ACCESS_ERR, Status::REM_INV_REQ_ERR])
}

fn sqd_notify_raises_the_event(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.exchange()?;
    pair.a.qp.modify(&pair.a.qp.attr(0).to(State::Sqd).sqd_notify())?;
    rig.context().wait_async(AsyncKind::SQ_DRAINED, Element::Qp(&pair.a.qp))?;
    rig.context().no_async(AsyncKind::SQ_DRAINED)?;
    pair.a.qp.expect_state(State::Sqd)
}

fn sqd_without_notify_is_silent(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.exchange()?;
    to_sqd(&pair.a.qp)?;
    rig.context().no_async(AsyncKind::SQ_DRAINED)
}

fn resize_needs_its_capability(rig: &Rig) -> Outcome {
    if rig.context().has(Cap::ResizeQp) {
        return Err(Failure::Lacks("it has IBV_DEVICE_RESIZE_MAX_WR: the rule is about devices without".to_owned()));
    }
    for state in [State::Init, State::Rts] {
        let side = at(rig, RC, state)?;
        let depth = side.qp.granted().send_wr;
        is_refused(&side.qp, "IBV_QP_CAP", &side.qp.attr(0).send_wr(depth * 2))?;
        is_refused(&side.qp, "IBV_QP_CAP and state", &side.qp.attr(0).to(state).send_wr(depth * 2))?;
    }
    Ok(())
}

fn grh_where_required(rig: &Rig) -> Outcome {
    for transport in [RC, UC] {
        let side = at(rig, transport, State::Init)?;
        let required = if transport == RC { PAGE.rtr } else { super::modify_uc::PAGE.rtr };
        let mask = required.iter().fold(AttrMask::STATE, |all, &bit| all | bit);
        let attr = side.qp.attr(side.qp.number()).to(State::Rtr).without_grh().masked(mask);
        is_refused(&side.qp, "ah_attr without GRH", &attr).during(transport)?;
    }
    Ok(())
}

fn lid_is_an_address(rig: &Rig) -> Outcome {
    rig.is_alone("a LID is a device's of this process")?;
    let pair = rig.unconnected(RC, crate::rig::SideSpec::default())?;
    let link = Link::default();
    let mask = PAGE.rtr.iter().fold(AttrMask::STATE, |all, &bit| all | bit);
    for (side, peer) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        side.to_init(&link)?;
        side.qp.modify(&side.qp.attr(peer.qp.number()).to(State::Rtr).without_grh().masked(mask))?;
        side.to_rts(&link)?;
    }
    pair.exchange()
}

fn query_tells_what_was_set(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Reset)?;
    let attr = side
        .qp
        .attr(0x1234)
        .access(Access::REMOTE_WRITE)
        .port(1)
        .pkey_index(0)
        .with(AttrMask::AV)
        .path_mtu(rig.port().attr.active_mtu)
        .dest_qpn(0x1234)
        .rq_psn(0x11_1111)
        .sq_psn(0x22_2222)
        .rd_atomic(8)
        .dest_rd_atomic(2)
        .min_rnr_timer(7)
        .timeout(11)
        .retry_cnt(5)
        .rnr_retry(4);
    for (to, required) in [(State::Init, PAGE.init), (State::Rtr, PAGE.rtr), (State::Rts, PAGE.rts)] {
        let mask = required.iter().fold(AttrMask::STATE, |all, &bit| all | bit);
        side.qp.modify(&attr.clone().to(to).masked(mask))?;
    }
    let now = side.qp.query()?;
    let wants = [
        ("qp_access_flags", Access::REMOTE_WRITE.0.into()),
        ("port_num", 1),
        ("pkey_index", 0),
        ("path_mtu", rig.port().attr.active_mtu.into()),
        ("dest_qp_num", 0x1234),
        ("rq_psn", 0x11_1111),
        ("sq_psn", 0x22_2222),
        ("max_rd_atomic", 8),
        ("max_dest_rd_atomic", 2),
        ("min_rnr_timer", 7),
        ("timeout", 11),
        ("retry_cnt", 5),
        ("rnr_retry", 4),
        ("ah_attr.is_global", 1),
        ("ah_attr.grh.sgid_index", rig.port().gid_index.into()),
        ("ah_attr.port_num", 1),
    ];
    for (field, want) in wants {
        same(field, now.field(field), want)?;
    }
    same("the state", now.state(), Some(State::Rts))
}

fn query_after_reset(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        pair.exchange()?;
        pair.a.qp.to_reset()?;
        same("the state", pair.a.qp.state()?, State::Reset).during(transport)?;
        let cap = pair.a.qp.query()?.cap();
        ensure(cap.max_send_wr >= 16 && cap.max_recv_wr >= 16, "the queues keep their depths")?;
        pair.b.qp.to_reset()?;
        pair.connect().during(transport)?;
        pair.exchange().during(transport)?;
    }
    Ok(())
}
