//! Asynchronous events that no other theme raises, and how to get them.

use super::common::*;
use crate::check::{Failure, Outcome, ensure, same};
use crate::rig::{AsyncKind, Element, Link, Op, Rig, SideSpec, State, Status, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::ASYNC_EVENT, says, test);
    vec![
        row(
            "async_event/none-is-eagain",
            "On a non-blocking descriptor without an event it fails with EAGAIN",
            none_is_eagain,
        ),
        row(
            "async_event/descriptor-tells-of-events",
            "The descriptor is readable when there is an event, and not when there is none",
            descriptor_tells,
        ),
        row(
            "async_event/communication-established",
            "The first message that arrives in RTR raises IBV_EVENT_COMM_EST",
            communication_established,
        )
        .rxe("expected COMM_EST", "the event isn't raised", "rxe has no place that raises IB_EVENT_COMM_EST"),
        row(
            "async_event/access-error-of-the-responder",
            "A remote access error raises IBV_EVENT_QP_ACCESS_ERR at the responder",
            access_error,
        )
        .rxe(
            "expected QP_ACCESS_ERR",
            "the event isn't raised",
            "rxe has no place that raises IB_EVENT_QP_ACCESS_ERR",
        ),
        row(
            "async_event/request-error-of-the-responder",
            "A request that the responder's queue pair can't serve raises IBV_EVENT_QP_REQ_ERR there",
            request_error,
        )
        .rxe(
            "expected QP_REQ_ERR",
            "the event isn't raised",
            "rxe has no place that raises IB_EVENT_QP_REQ_ERR",
        ),
        row(
            "async_event/lost-completion-is-fatal",
            "A queue pair whose completion is lost raises IBV_EVENT_QP_FATAL and is in ERR",
            lost_completion,
        )
        .rxe(
            "expected QP_FATAL",
            "only the CQ's event is raised",
            "rxe has no place that raises IB_EVENT_QP_FATAL",
        ),
        row(
            "async_event/drained-event-names-its-qp",
            "IBV_EVENT_SQ_DRAINED names the queue pair that was drained, of several",
            drained_names_its_qp,
        ),
        row(
            "async_event/goes-with-its-object",
            "An event that nobody got is gone with its object",
            goes_with_its_object,
        ),
        row(
            "async_event/goes-to-its-context",
            "An event is raised on the context of its object only",
            goes_to_its_context,
        ),
    ]
}

fn none_is_eagain(rig: &Rig) -> Outcome {
    ensure(rig.context().try_async_event()?.is_none(), "there is no event")
}

/// A queue pair whose SQ_DRAINED is about to come.
fn draining(rig: &Rig) -> Outcome<crate::rig::Pair> {
    let pair = rig.pair(RC)?;
    pair.a.qp.modify(&pair.a.qp.attr(0).to(State::Sqd).sqd_notify())?;
    Ok(pair)
}

fn descriptor_tells(rig: &Rig) -> Outcome {
    ensure(!rig.context().has_async(), "the descriptor isn't readable before")?;
    let pair = draining(rig)?;
    rig.context().wait_async(AsyncKind::SQ_DRAINED, Element::Qp(&pair.a.qp))?;
    ensure(!rig.context().has_async(), "it isn't readable after the event was got")
}

fn communication_established(rig: &Rig) -> Outcome {
    let pair = rig.unconnected(RC, SideSpec::default())?;
    let link = Link::default();
    for (side, peer) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        side.to_init(&link)?;
        side.to_rtr(peer.qp.number(), &link)?;
    }
    pair.a.to_rts(&link)?;
    pair.exchange()?;
    rig.far().context().wait_async_soon(AsyncKind::COMM_EST, Element::Qp(&pair.b.qp)).map(drop)
}

fn access_error(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let remote = pair.remote(0);
    pair.a.qp.send(Wr::write(1, remote.with_rkey(remote.rkey ^ 0x00ff_ff00)).sge(pair.a.mr.sge(0..8)))?;
    ensure(!pair.a.scq.wait_one()?.ok(), "the work request fails")?;
    rig.far().context().wait_async_soon(AsyncKind::QP_ACCESS_ERR, Element::Qp(&pair.b.qp))?;
    pair.b.qp.expect_state(State::Err)
}

fn request_error(rig: &Rig) -> Outcome {
    let link = Link { dest_rd_atomic: 0, ..Link::default() };
    let pair = rig.pair_with(RC, SideSpec::default(), link)?;
    pair.a.qp.send(pair.any(1, Op::Read))?;
    same("the status", pair.a.scq.wait_one()?.status, Status::REM_INV_REQ_ERR)?;
    rig.far().context().wait_async_soon(AsyncKind::QP_REQ_ERR, Element::Qp(&pair.b.qp))?;
    pair.b.qp.expect_state(State::Err)
}

fn lost_completion(rig: &Rig) -> Outcome {
    let pair = overrunning_pair(rig)?;
    rig.far().context().wait_async_soon(AsyncKind::QP_FATAL, Element::Qp(&pair.b.qp))?;
    pair.b.qp.expect_state(State::Err)
}

fn drained_names_its_qp(rig: &Rig) -> Outcome {
    let pairs = [rig.pair(RC)?, rig.pair(RC)?, rig.pair(RC)?];
    for pair in &pairs {
        let qp = &pair.a.qp;
        qp.modify(&qp.attr(0).to(State::Sqd).sqd_notify())?;
        rig.context().wait_async(AsyncKind::SQ_DRAINED, Element::Qp(qp))?;
    }
    Ok(())
}

fn goes_with_its_object(rig: &Rig) -> Outcome {
    let pair = draining(rig)?;
    ensure(rig.context().async_becomes_readable(), "there is an event")?;
    pair.a.qp.try_destroy()?;
    match rig.context().try_async_event()? {
        None => Ok(()),
        Some(event) => {
            Err(Failure::new(format!("expected no event of a destroyed queue pair, got {:?}", event.kind())))
        }
    }
}

fn goes_to_its_context(rig: &Rig) -> Outcome {
    let other = rig.open_again()?;
    let pair = draining(rig)?;
    rig.context().wait_async(AsyncKind::SQ_DRAINED, Element::Qp(&pair.a.qp))?;
    other.context().no_async(AsyncKind::SQ_DRAINED)?;
    same("the device", other.context().name(), rig.context().name())
}
