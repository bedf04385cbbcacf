//! Failures between two queue pairs, and their effect on other work requests.

use super::common::*;
use crate::check::{During, Failure, Outcome, ensure, one_of, same};
use crate::rig::{Access, Kind, Link, Op, Recv, Rig, SideSpec, State, Status, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    let modify = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::MODIFY_QP, says, test);
    vec![
        row(
            "errors/failure-flushes-what-is-behind",
            "A failed work request flushes all behind it, in order",
            flushes_behind,
        ),
        row("errors/failure-is-err-on-rc", "A failed send moves an RC queue pair to ERR", failure_is_err),
        row("errors/failure-flushes-receives-too", "On RC the receives are flushed as well", flushes_receives),
        row(
            "errors/before-the-failure-all-is-well",
            "What was posted before the failing one completes",
            before_is_well,
        )
        .may_lack(
            Kind::Rxe,
            "completions: not within",
            "what is under way when a later work request fails never completes, if its answer comes after that",
            "rxe drops answers to a queue pair that failed, and completes nothing without one",
        ),
        row(
            "errors/waited-for-its-receive",
            "A send that waited for its receive fails on it as any other",
            waited_fails,
        ),
        row(
            "errors/uc-without-receive-loses-the-message",
            "A UC SEND that finds no receive is lost, and completes",
            uc_without_receive,
        ),
        modify(
            "errors/too-many-reads-for-the-peer",
            "RDMA READ of a peer with max_dest_rd_atomic 0 is REM_INV_REQ_ERR",
            no_reads_at_the_peer,
        ),
        modify(
            "errors/no-reads-of-ones-own",
            "RDMA READ by a queue pair with max_rd_atomic 0 is never sent: it is refused or LOC_QP_OP_ERR",
            no_reads_of_ones_own,
        )
        .rxe("not within", "the READ waits for ever", "rxe_requester() waits for a resource that there isn't"),
        row(
            "errors/uc-protection-error-stays-silent",
            "A UC RDMA WRITE that the peer's memory refuses is dropped: the sender completes, the peer is unharmed",
            uc_write_refused,
        ),
        row(
            "errors/error-state-of-the-responder",
            "A remote access error is fatal for the responder's queue pair too",
            responder_fails,
        ),
        row("errors/errors-stay-with-their-qp", "A queue pair that fails leaves others alone", errors_stay),
        row(
            "errors/failed-receive-ends-the-queue",
            "After a receive that failed, the receives behind it are flushed",
            failed_receive_flushes,
        ),
    ]
}

fn flushes_behind(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let list = [failing(&pair, 1), small(&pair, 2), small(&pair, 3).unsignaled(), pair.any(4, Op::Write)];
    pair.a.qp.post_send(&list)?;
    let wcs = pair.a.scq.wait(4)?;
    same("the first", (wcs[0].id, wcs[0].status), (1, Status::LOC_PROT_ERR))?;
    flushed(&wcs[1..], &[2, 3, 4])?;
    pair.b.rcq.quiet()
}

fn failure_is_err(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.qp.send(failing(&pair, 1))?;
    same("the completion", pair.a.scq.wait_one()?.status, Status::LOC_PROT_ERR)?;
    pair.a.qp.expect_state(State::Err)
}

fn flushes_receives(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.recv(1)?;
    pair.a.recv(2)?;
    pair.a.qp.send(failing(&pair, 3))?;
    pair.a.scq.wait_one()?;
    flushed(&pair.a.rcq.wait(2)?, &[1, 2])
}

fn before_is_well(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.recv(1)?;
    pair.a.qp.post_send(&[small(&pair, 10), pair.any(11, Op::Write), failing(&pair, 12)])?;
    let wcs = pair.a.scq.wait(3)?;
    let seen: Vec<_> = wcs.iter().map(|wc| (wc.id, wc.status)).collect();
    same("the completions", seen, vec![(10, Status::SUCCESS), (11, Status::SUCCESS), (12, Status::LOC_PROT_ERR)])?;
    same("the receive", pair.b.rcq.wait_ok()?.id, 1)
}

fn uc_without_receive(rig: &Rig) -> Outcome {
    let pair = rig.pair(UC)?;
    pair.a.qp.send(small(&pair, 1))?;
    pair.a.scq.wait_ok()?;
    rig.settle();
    pair.b.recv(2)?;
    pair.b.rcq.quiet()?;
    pair.a.qp.send(small(&pair, 3).imm(3))?;
    pair.a.scq.wait_ok()?;
    let wc = pair.b.rcq.wait_ok()?;
    same("what arrived", (wc.id, wc.imm), (2, Some(3)))
}

fn no_reads_at_the_peer(rig: &Rig) -> Outcome {
    let link = Link { dest_rd_atomic: 0, ..Link::default() };
    let pair = rig.pair_with(RC, SideSpec::default(), link)?;
    pair.a.qp.send(pair.any(1, Op::Read))?;
    same("the status", pair.a.scq.wait_one()?.status, Status::REM_INV_REQ_ERR)
}

fn waited_fails(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.qp.post_send(&[small(&pair, 1), small(&pair, 2), small(&pair, 3)])?;
    pair.b.recv(1)?;
    same("the first", pair.a.scq.wait_ok()?.id, 1)?;
    pair.b.qp.recv(Recv::new(2).sge(pair.b.mr.sge(0..7)))?;
    let wcs = pair.a.scq.wait(2)?;
    ensure(wcs[0].id == 2 && !wcs[0].ok(), "the second fails: its receive is too short")?;
    flushed(&wcs[1..], &[3])?;
    same("the first receive", pair.b.rcq.wait_ok()?.id, 1)?;
    ensure(!pair.b.rcq.wait_one()?.ok(), "the second receive fails")
}

fn no_reads_of_ones_own(rig: &Rig) -> Outcome {
    let link = Link { rd_atomic: 0, ..Link::default() };
    let pair = rig.pair_with(RC, SideSpec::default(), link)?;
    match pair.a.qp.send(pair.any(1, Op::Read)) {
        Err(refused) => same("errno", refused.errno, libc::EINVAL),
        Ok(()) => {
            let status = pair.a.scq.wait_for(1, crate::rig::SOON)?[0].status;
            one_of("the status", status, &[Status::LOC_QP_OP_ERR, Status::REM_INV_REQ_ERR])
        }
    }
}

fn uc_write_refused(rig: &Rig) -> Outcome {
    let spec = SideSpec { mr_access: Access::LOCAL_WRITE, ..SideSpec::default() };
    let pair = rig.pair_with(UC, spec, Link::default())?;
    pair.a.mr.fill(0x77);
    pair.a.qp.send(Wr::write(1, pair.remote(1000)).sge(pair.a.mr.sge(0..8)))?;
    pair.a.scq.wait_ok()?;
    pair.exchange()?;
    same("the peer's memory", pair.b.mr.number(1000), 0)
}

fn responder_fails(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.recv(1)?;
    let remote = pair.remote(0);
    pair.a.qp.send(Wr::write(2, remote.with_rkey(remote.rkey ^ 0x00ff_ff00)).sge(pair.a.mr.sge(0..8)))?;
    same("the status", pair.a.scq.wait_one()?.status, Status::REM_ACCESS_ERR)?;
    flushed(&pair.b.rcq.wait(1)?, &[1])?;
    pair.b.qp.expect_state(State::Err)
}

fn errors_stay(rig: &Rig) -> Outcome {
    let (bad, good) = (rig.pair(RC)?, rig.pair(RC)?);
    bad.a.qp.send(failing(&bad, 1))?;
    bad.a.scq.wait_one()?;
    for transport in [RC, UC, UD] {
        rig.pair(transport)?.exchange().during(transport)?;
    }
    good.exchange()
}

fn failed_receive_flushes(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.qp.recv(Recv::new(1).sge(pair.b.mr.sge(0..1)))?;
    pair.b.recv(2)?;
    pair.b.recv(3)?;
    pair.a.qp.send(small(&pair, 4))?;
    let wcs = pair.b.rcq.wait(3)?;
    ensure(wcs[0].id == 1 && !wcs[0].ok(), "the first receive fails: it is too short")?;
    flushed(&wcs[1..], &[2, 3])?;
    match pair.a.scq.wait_one()?.status {
        Status::SUCCESS => Err(Failure::new("the sender hears of it")),
        _ => Ok(()),
    }
}
