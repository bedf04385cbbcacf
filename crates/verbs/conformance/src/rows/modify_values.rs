//! `ibv_modify_qp(3)`: the effect of single attributes at their valid values, and the errors of
//! refusals.

use super::common::*;
use super::modify::at;
use crate::check::{During, Failure, Outcome, ensure, same, same_bytes};
use crate::rig::{AttrMask, Cap, Rig, SideSpec, State, Wr, errno_name};
use crate::suite::Row;

/// IBV_MTU_256.
const SMALLEST_MTU: u32 = 1;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::MODIFY_QP, says, test);
    vec![
        row("modify_values/refusal-is-an-errno", "It returns 0, or the value of errno", refusal_is_an_errno),
        row("modify_values/cur-state-is-assumed", "RC: cur_qp_state is assumed to be the state", cur_state_is_assumed),
        row(
            "modify_values/path-mtu-below-the-ports",
            "path_mtu may be less than the port's: longer messages go in more packets",
            path_mtu_below_the_ports,
        ),
        row(
            "modify_values/sq-draining-means-nothing",
            "sq_draining is irrelevant: whatever it is, nothing of it is modified",
            sq_draining_means_nothing,
        ),
        row(
            "modify_values/sqd-notify-0-is-silent",
            "en_sqd_async_notify of 0, given, asks for no event",
            sqd_notify_0_is_silent,
        )
        .rxe(
            "expected no SQ_DRAINED",
            "SQ_DRAINED is raised either way",
            "rxe doesn't look at en_sqd_async_notify",
        ),
        row("modify_values/resize-is-told", "A device with IBV_DEVICE_RESIZE_MAX_WR resizes", resize_is_told)
            .needs(Cap::ResizeQp),
        row("modify_values/rate-limit-is-told", "A device that paces RC takes a rate_limit", rate_limit_is_told)
            .needs(Cap::RateLimit(RC)),
    ]
}

fn refusal_is_an_errno(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Rtr)?;
    let value = side.qp.modify_value(&side.qp.attr(0).to(State::Rts));
    same("without what it needs", errno_name(value), errno_name(libc::EINVAL))?;
    ensure(value == libc::EINVAL, format_args!("the value is the errno itself, not {value}"))?;
    let valid = side.qp.attr(0).to(State::Rts).sq_psn(0).rd_atomic(1).retry_cnt(1).rnr_retry(1).timeout(1);
    same("with it", side.qp.modify_value(&valid), 0)
}

fn cur_state_is_assumed(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Sqd)?;
    let assumed = side.qp.attr(0).to(State::Rts).cur_state(State::Rts);
    // From SQD to SQD this attribute may be given, from RTS it may not.
    super::modify::is_refused(&side.qp, "timeout as from RTS", &assumed.clone().timeout(9))?;
    side.qp.modify(&assumed.min_rnr_timer(9)).during("as from RTS")?;
    side.qp.expect_state(State::Rts)?;
    same("min_rnr_timer", side.qp.query()?.field("min_rnr_timer"), 9)
}

fn path_mtu_below_the_ports(rig: &Rig) -> Outcome {
    for transport in [RC, UC] {
        let pair = rig.unconnected(transport, SideSpec::default())?;
        let link = crate::rig::Link::default();
        for (side, peer) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            side.to_init(&link)?;
            let connect = AttrMask::AV | AttrMask::DEST_QPN | AttrMask::RQ_PSN;
            let attr = side.qp.attr(peer.qp.number()).to(State::Rtr).path_mtu(SMALLEST_MTU).with(connect);
            let attr = if transport == RC { attr.dest_rd_atomic(4).min_rnr_timer(1) } else { attr };
            side.qp.modify(&attr).during(transport)?;
            side.to_rts(&link)?;
            same("path_mtu", side.qp.query()?.field("path_mtu"), SMALLEST_MTU.into())?;
        }
        let bytes = 3000;
        pair.a.mr.put(0, &pattern(bytes));
        let wc = deliver(&pair, Wr::send(1).sge(pair.a.mr.sge(0..bytes)))?;
        same("byte_len", wc.bytes as usize, bytes).during(transport)?;
        same_bytes(transport, &pair.b.mr.take(0, bytes), &pattern(bytes))?;
    }
    Ok(())
}

fn sq_draining_means_nothing(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Rts)?;
    side.qp.modify(&side.qp.attr(0).sq_draining().min_rnr_timer(9))?;
    let now = side.qp.query()?;
    ensure(!now.sq_draining(), "nothing drains")?;
    same("min_rnr_timer, beside it", now.field("min_rnr_timer"), 9)
}

fn sqd_notify_0_is_silent(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.exchange()?;
    pair.a.qp.modify(&pair.a.qp.attr(0).to(State::Sqd).sqd_silent())?;
    rig.context().no_async(crate::rig::AsyncKind::SQ_DRAINED)
}

/// Some drivers report the capability and refuse: the page only promises that it can be checked.
fn resize_is_told(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Rts)?;
    let depth = side.qp.granted().send_wr * 2;
    match side.qp.modify(&side.qp.attr(0).send_wr(depth)) {
        Ok(()) => ensure(side.qp.query()?.cap().max_send_wr >= depth, "the queue is as deep as asked"),
        Err(refused) => Err(Failure::Lacks(format!("it has IBV_DEVICE_RESIZE_MAX_WR, and {refused}"))),
    }
}

fn rate_limit_is_told(rig: &Rig) -> Outcome {
    let side = at(rig, RC, State::Rts)?;
    match side.qp.modify(&side.qp.attr(0).to(State::Rts).with(AttrMask::RATE_LIMIT)) {
        Ok(()) => same("rate_limit", side.qp.query()?.field("rate_limit"), 1000),
        Err(refused) => Err(Failure::Lacks(format!("it paces RC, and {refused}"))),
    }
}
