//! Shared receive queues.

use super::common::*;
use crate::check::{Failure, Outcome, ensure, same, same_bytes};
use crate::rig::{AsyncKind, Cap, Element, Link, Mr, Pair, Recv, Rig, SideSpec, Srq, Status, Transport, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, seed, says, test: fn(&Rig) -> Outcome| Row::new(rule, seed, says, test).needs(Cap::Srq);
    vec![
        row(
            "srq/feeds-a-qp",
            page::CREATE_SRQ,
            "Messages to a queue pair take their receives from its SRQ",
            feeds_a_qp,
        ),
        row("srq/shared-by-qps", page::CREATE_SRQ, "Several queue pairs take from one SRQ, in order", shared_by_qps),
        row("srq/feeds-uc-and-ud", page::CREATE_SRQ, "UC and UD queue pairs may have an SRQ too", feeds_uc_and_ud),
        row(
            "srq/write-with-imm-takes-from-it",
            page::CREATE_SRQ,
            "An RDMA WRITE WITH IMMEDIATE takes its receive from the SRQ",
            write_with_imm,
        ),
        row(
            "srq/list-stops-at-the-bad-one",
            page::POST_SRQ_RECV,
            "At a bad work request posting stops: those before it are posted, bad_wr points at it",
            list_stops,
        ),
        row(
            "srq/full-queue-is-enomem",
            page::POST_SRQ_RECV,
            "A full SRQ is ENOMEM, and bad_wr points at the first that did not fit",
            full_queue,
        ),
        row(
            "srq/query-tells-its-size",
            page::CREATE_SRQ,
            "The queried attributes are at least the asked ones",
            query_tells,
        ),
        row(
            "srq/limit-raises-an-event-once",
            page::MODIFY_SRQ,
            "When fewer receives than the limit are left, IBV_EVENT_SRQ_LIMIT_REACHED is raised, once",
            limit_raises_once,
        ),
        row(
            "srq/limit-is-cleared-by-its-event",
            page::MODIFY_SRQ,
            "The event disarms the limit: it is 0 then and can be set again",
            limit_is_cleared,
        ),
        row("srq/no-limit-no-event", page::MODIFY_SRQ, "Without a limit no event is raised", no_limit_no_event),
        row(
            "srq/limit-above-its-size-is-refused",
            page::MODIFY_SRQ,
            "A limit above max_wr is refused and nothing changes",
            limit_above,
        ),
        row("srq/grows", page::MODIFY_SRQ, "Resized, the SRQ keeps what is posted and takes more", grows)
            .needs(Cap::SrqResize),
        row(
            "srq/resize-needs-its-capability",
            page::MODIFY_SRQ,
            "A device without IBV_DEVICE_SRQ_RESIZE refuses to resize",
            resize_needs_its_capability,
        ),
        row(
            "srq/qp-of-an-srq-takes-no-receives",
            page::POST_RECV,
            "A queue pair with an SRQ has no receive queue of its own: posting to it is refused",
            qp_takes_no_receives,
        ),
        row(
            "srq/survives-the-error-of-a-qp",
            page::CREATE_SRQ,
            "A queue pair that goes to ERR leaves the SRQ's receives to the others",
            survives_error,
        ),
        row(
            "srq/last-wqe-reached",
            page::ASYNC_EVENT,
            "IBV_EVENT_QP_LAST_WQE_REACHED tells that a failed queue pair takes nothing from its SRQ any more",
            last_wqe_reached,
        )
        .rxe(
            "expected QP_LAST_WQE_REACHED",
            "the event isn't raised",
            "rxe has no place that raises IB_EVENT_QP_LAST_WQE_REACHED",
        ),
        row(
            "srq/not-destroyed-under-a-qp",
            page::CREATE_SRQ,
            "An SRQ with queue pairs is EBUSY",
            not_destroyed_under_a_qp,
        ),
    ]
}

fn shared_pair(rig: &Rig, transport: Transport, srq: &Srq) -> Outcome<Pair> {
    rig.pair_with(transport, SideSpec { srq: Some(srq), ..SideSpec::default() }, Link::default())
}

/// An SRQ, and an RC pair on it.
fn served(rig: &Rig) -> Outcome<(Srq, Pair)> {
    let srq = Srq::create(rig.far().pd(), 16, 2)?;
    let pair = shared_pair(rig, RC, &srq)?;
    Ok((srq, pair))
}

/// Posts a receive of a quarter of `mr`.
fn post(srq: &Srq, mr: &Mr, id: u64) -> Outcome {
    let quarter = mr.len() / 4;
    let at = (id as usize % 4) * quarter;
    Ok(srq.post(&[Recv::new(id).sge(mr.sge(at..at + quarter))])?)
}

fn feeds_a_qp(rig: &Rig) -> Outcome {
    let (srq, pair) = served(rig)?;
    post(&srq, &pair.b.mr, 0)?;
    pair.a.mr.put(0, b"for all!");
    pair.a.qp.send(small(&pair, 1))?;
    pair.a.scq.wait_ok()?;
    let wc = pair.b.rcq.wait_ok()?;
    same("the receive", (wc.id, wc.bytes, wc.qpn), (0, 8, pair.b.qp.number()))?;
    same_bytes("received", &pair.b.mr.take(0, 8), b"for all!")
}

fn shared_by_qps(rig: &Rig) -> Outcome {
    let srq = Srq::create(rig.far().pd(), 16, 2)?;
    let pairs = [shared_pair(rig, RC, &srq)?, shared_pair(rig, RC, &srq)?];
    let mr = rig.far().mr(4096)?;
    for id in 0..4 {
        post(&srq, &mr, id)?;
    }
    for id in 0..4_usize {
        let pair = &pairs[id % 2];
        pair.a.qp.send(small(pair, 9))?;
        pair.a.scq.wait_ok()?;
        let wc = pair.b.rcq.wait_ok()?;
        same("the receive", (wc.id, wc.qpn), (id as u64, pair.b.qp.number()))?;
    }
    Ok(())
}

fn feeds_uc_and_ud(rig: &Rig) -> Outcome {
    for transport in [UC, UD] {
        let srq = Srq::create(rig.far().pd(), 16, 2)?;
        let pair = shared_pair(rig, transport, &srq)?;
        post(&srq, &pair.b.mr, 0)?;
        pair.a.mr.put(0, b"for all!");
        pair.a.qp.send(small(&pair, 1))?;
        pair.a.scq.wait_ok()?;
        let wc = pair.b.rcq.wait_ok()?;
        same(transport, (wc.id, wc.bytes as usize), (0, pair.header() + 8))?;
        same_bytes(transport, &pair.b.mr.take(pair.header(), 8), b"for all!")?;
    }
    Ok(())
}

fn write_with_imm(rig: &Rig) -> Outcome {
    let (srq, pair) = served(rig)?;
    post(&srq, &pair.b.mr, 3)?;
    pair.a.qp.send(pair.any(1, crate::rig::Op::WriteImm))?;
    pair.a.scq.wait_ok()?;
    let wc = pair.b.rcq.wait_ok()?;
    same("the receive", (wc.id, wc.imm), (3, Some(7)))
}

fn list_stops(rig: &Rig) -> Outcome {
    let srq = Srq::create(rig.far().pd(), 16, 1)?;
    let pair = shared_pair(rig, RC, &srq)?;
    let entries = srq.query()?.sges as usize + 1;
    let good = |id| Recv::new(id).sge(pair.b.mr.sge(0..64));
    let bad = (0..entries).fold(Recv::new(1), |recv, at| recv.sge(pair.b.mr.sge(at..at + 1)));
    refused_at(srq.post(&[good(0), bad, good(2)]), libc::EINVAL, 1)?;
    srq.post(&[good(3)])?;
    for want in [0, 3] {
        pair.a.qp.send(small(&pair, 9))?;
        pair.a.scq.wait_ok()?;
        same("the receive", pair.b.rcq.wait_ok()?.id, want)?;
    }
    Ok(())
}

fn full_queue(rig: &Rig) -> Outcome {
    let srq = Srq::create(rig.far().pd(), 8, 1)?;
    let size = srq.query()?.depth as usize;
    ensure(size >= 8, format_args!("8 receives were granted, not {size}"))?;
    let list: Vec<Recv> = (0..size as u64 + 64).map(Recv::new).collect();
    let refused = srq.post(&list);
    let taken = refused.err().and_then(|refused| refused.bad).unwrap_or(list.len());
    refused_at(refused, libc::ENOMEM, taken)?;
    ensure(taken >= size, format_args!("{size} were taken, not {taken}"))
}

fn query_tells(rig: &Rig) -> Outcome {
    let srq = Srq::create(rig.far().pd(), 20, 3)?;
    let attr = srq.query()?;
    ensure(attr.depth >= 20 && attr.sges >= 3, format_args!("20 of 3 entries were granted, not {attr:?}"))?;
    same("srq_limit", attr.limit, 0)
}

/// Takes a message from `a` to `b` through the SRQ.
fn take_one(pair: &Pair) -> Outcome {
    pair.a.qp.send(small(pair, 1))?;
    pair.a.scq.wait_ok()?;
    pair.b.rcq.wait_ok().map(drop)
}

fn limit_raises_once(rig: &Rig) -> Outcome {
    let (srq, pair) = served(rig)?;
    for id in 0..6 {
        post(&srq, &pair.b.mr, id)?;
    }
    srq.set_limit(5)?;
    same("srq_limit", srq.query()?.limit, 5)?;
    // Five are left: not fewer than the limit.
    take_one(&pair)?;
    rig.far().context().no_async(AsyncKind::SRQ_LIMIT_REACHED)?;
    take_one(&pair)?;
    rig.far().context().wait_async(AsyncKind::SRQ_LIMIT_REACHED, Element::Srq(&srq))?;
    take_one(&pair)?;
    rig.far().context().no_async(AsyncKind::SRQ_LIMIT_REACHED)
}

fn limit_is_cleared(rig: &Rig) -> Outcome {
    let (srq, pair) = served(rig)?;
    for id in 0..6 {
        post(&srq, &pair.b.mr, id)?;
    }
    for limit in [5, 4] {
        srq.set_limit(limit)?;
        take_one(&pair)?;
        take_one(&pair)?;
        rig.far().context().wait_async(AsyncKind::SRQ_LIMIT_REACHED, Element::Srq(&srq))?;
        same("srq_limit", srq.query()?.limit, 0)?;
    }
    Ok(())
}

fn no_limit_no_event(rig: &Rig) -> Outcome {
    let (srq, pair) = served(rig)?;
    post(&srq, &pair.b.mr, 0)?;
    take_one(&pair)?;
    rig.far().context().no_async(AsyncKind::SRQ_LIMIT_REACHED)
}

fn limit_above(rig: &Rig) -> Outcome {
    let srq = Srq::create(rig.far().pd(), 16, 2)?;
    srq.set_limit(3)?;
    let before = srq.query()?;
    ensure(srq.set_limit(before.depth + 1).is_err(), "a limit above max_wr is refused")?;
    same("the attributes", srq.query()?, before)
}

fn grows(rig: &Rig) -> Outcome {
    let srq = Srq::create(rig.far().pd(), 4, 1)?;
    let pair = shared_pair(rig, RC, &srq)?;
    post(&srq, &pair.b.mr, 7)?;
    srq.resize(200)?;
    let size = srq.query()?.depth;
    ensure(size >= 200, format_args!("200 receives were granted, not {size}"))?;
    let list: Vec<Recv> = (100..280).map(|id| Recv::new(id).sge(pair.b.mr.sge(0..64))).collect();
    srq.post(&list)?;
    for want in [7, 100, 101] {
        pair.a.qp.send(small(&pair, 1))?;
        pair.a.scq.wait_ok()?;
        same("the receive", pair.b.rcq.wait_ok()?.id, want)?;
    }
    Ok(())
}

fn resize_needs_its_capability(rig: &Rig) -> Outcome {
    if rig.far().context().has(Cap::SrqResize) {
        return Err(Failure::Lacks("it has IBV_DEVICE_SRQ_RESIZE: the rule is about devices without".to_owned()));
    }
    let srq = Srq::create(rig.far().pd(), 16, 1)?;
    let before = srq.query()?;
    ensure(srq.resize(64).is_err(), "resizing is refused")?;
    same("the attributes", srq.query()?, before)
}

fn qp_takes_no_receives(rig: &Rig) -> Outcome {
    let srq = Srq::create(rig.far().pd(), 16, 1)?;
    let pair = shared_pair(rig, RC, &srq)?;
    match pair.b.qp.recv(Recv::new(1).sge(pair.b.mr.all())) {
        Ok(()) => Err(Failure::new("expected a refusal, the receive was taken")),
        Err(refused) => same("errno", crate::rig::errno_name(refused.errno), "EINVAL".to_owned()),
    }
}

fn survives_error(rig: &Rig) -> Outcome {
    let srq = Srq::create(rig.far().pd(), 16, 2)?;
    let (bad, good) = (shared_pair(rig, RC, &srq)?, shared_pair(rig, RC, &srq)?);
    post(&srq, &good.b.mr, 0)?;
    post(&srq, &good.b.mr, 1)?;
    bad.b.qp.to_err()?;
    bad.b.rcq.quiet()?;
    for want in 0..2 {
        good.a.qp.send(small(&good, 1))?;
        good.a.scq.wait_ok()?;
        same("the receive", good.b.rcq.wait_ok()?.id, want)?;
    }
    Ok(())
}

fn last_wqe_reached(rig: &Rig) -> Outcome {
    let (srq, pair) = served(rig)?;
    post(&srq, &pair.b.mr, 0)?;
    take_one(&pair)?;
    pair.b.qp.to_err()?;
    rig.far().context().wait_async_soon(AsyncKind::QP_LAST_WQE_REACHED, Element::Qp(&pair.b.qp))?;
    // The sender of the next message gets no answer, but no receive of the SRQ is taken.
    post(&srq, &pair.b.mr, 1)?;
    pair.b.qp.send(Wr::send(2))?;
    same("a send of the failed queue pair", pair.b.scq.wait_one()?.status, Status::WR_FLUSH_ERR)?;
    pair.b.rcq.quiet()
}

fn not_destroyed_under_a_qp(rig: &Rig) -> Outcome {
    let (srq, pair) = served(rig)?;
    refused_with("destroying the SRQ of queue pairs", srq.try_destroy(), libc::EBUSY)?;
    pair.a.qp.try_destroy()?;
    pair.b.qp.try_destroy()?;
    Ok(srq.try_destroy()?)
}
