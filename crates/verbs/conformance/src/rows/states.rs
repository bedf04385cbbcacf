//! The handling of work requests in each state: the list at the top of `ibv_post_send`.

use super::common::*;
use crate::check::{During, Failure, Outcome, ensure, one_of, same, same_bytes};
use crate::rig::{AsyncKind, Element, Link, Recv, Rig, SOON, SideSpec, State, Status, Transport, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    let mut rows = Vec::new();
    for transport in [RC, UC, UD] {
        rows.extend(of_transport(transport));
    }
    rows.extend([
        row(
            "states/refusal-for-the-state-sets-bad-wr",
            "When a send is refused for the state, bad_wr points at it",
            refusal_sets_bad_wr,
        )
        .rxe(
            "bad_wr",
            "bad_wr is NULL",
            "rxe's user library queues first and asks the kernel then, whose refusal it passes on without a place",
        ),
        row(
            "states/refused-send-is-never-sent",
            "A send that was refused, or ignored, for the state is not sent later either",
            refused_is_never_sent,
        )
        .rxe(
            "the first completion",
            "a send that was refused in INIT or RTR is sent when the queue pair gets to RTS",
            "rxe's user library leaves it in the queue when the kernel refuses",
        ),
        row(
            "states/sqd-sends-start-with-rts",
            "What was posted in SQD is processed when the queue pair is back in RTS",
            sqd_sends_start_with_rts,
        )
        .rxe(
            "not within",
            "held sends start at the next post",
            "rxe_modify_qp() doesn't run the requester after SQD to RTS",
        ),
        row("states/sqd-still-receives", "SQD holds the send queue only: messages are received", sqd_still_receives),
        row(
            "states/sqd-lets-the-rest-finish",
            "What was sent before SQD is finished before the queue counts as drained",
            sqd_lets_the_rest_finish,
        )
        .rxe(
            "draining:",
            "a send that the peer isn't ready for counts as not begun: the queue drains without it, or never",
            "req_next_wqe() goes by whether a packet is out, and hands out nothing new in SQD",
        ),
        row("states/sqd-to-err-flushes", "What SQD holds is flushed by ERR", sqd_to_err_flushes),
        row(
            "states/error-flushes-both-queues-in-order",
            "ERR completes everything posted, sends and receives, with WR_FLUSH_ERR, each queue in its order",
            error_flushes_both_queues,
        ),
        row("states/rtr-receives-but-does-not-send", "A queue pair in RTR receives", rtr_receives),
        row(
            "states/reset-forgets-what-was-posted",
            "RESET drops what was posted, without completions; the queue pair can be connected again",
            reset_forgets,
        ),
        row(
            "states/err-to-reset-and-again",
            "A queue pair that failed works again after RESET, INIT, RTR, RTS",
            err_to_reset_and_again,
        ),
    ]);
    rows
}

fn of_transport(transport: Transport) -> Vec<Row> {
    let t = name(transport);
    let row = |rule: String, says, test: fn(&Rig, Transport) -> Outcome| {
        Row::new(rule, page::POST_SEND, says, move |rig: &Rig| test(rig, transport))
    };
    let mut rows = vec![
        row(
            format!("states/{t}-reset-refuses-sends"),
            "In RESET a send is refused at once, or silently ignored",
            |rig, transport| not_yet(rig, transport, State::Reset),
        ),
        row(
            format!("states/{t}-init-refuses-sends"),
            "In INIT a send is refused at once, or silently ignored",
            |rig, transport| not_yet(rig, transport, State::Init),
        ),
        row(
            format!("states/{t}-rtr-refuses-sends"),
            "In RTR a send is refused at once, or silently ignored",
            |rig, transport| not_yet(rig, transport, State::Rtr),
        ),
        row(format!("states/{t}-rts-sends"), "In RTS sends are posted and processed", rts_sends),
        row(
            format!("states/{t}-sqd-holds-sends"),
            "In SQD sends are posted and not processed; back in RTS they are, in order",
            sqd_holds,
        ),
        row(
            format!("states/{t}-err-flushes-sends"),
            "In ERR sends are posted and complete with WR_FLUSH_ERR",
            err_flushes,
        ),
        row(
            format!("states/{t}-err-flushes-receives"),
            "In ERR receives are posted and complete with WR_FLUSH_ERR",
            err_flushes_receives,
        )
        .rxe(
            "not within",
            "receives posted in ERR lie there until the queue pair is destroyed",
            "rxe's user library puts them into shared memory without a word to the kernel, which looks there once, on \
             the way to ERR",
        ),
    ];
    if transport != RC {
        let (seen, does, why) = RXE_NO_SQE;
        let sqe = [
            row(
                format!("states/{t}-failed-send-is-sqe"),
                "A failed send moves the queue pair to SQE",
                failed_send_is_sqe,
            ),
            row(
                format!("states/{t}-sqe-flushes-sends"),
                "In SQE sends are posted and complete with WR_FLUSH_ERR",
                sqe_flushes,
            ),
            row(
                format!("states/{t}-sqe-still-receives"),
                "SQE stops the send queue only: messages are received",
                sqe_receives,
            ),
            row(
                format!("states/{t}-sqe-to-rts-sends-again"),
                "From SQE back in RTS the queue pair sends again",
                sqe_to_rts,
            ),
        ];
        rows.extend(sqe.map(|row| row.rxe(seen, does, why)));
    }
    rows
}

/// `a` has gone only as far as `state`; `b` waits for messages.
fn not_yet(rig: &Rig, transport: Transport, state: State) -> Outcome {
    let pair = rig.unconnected(transport, SideSpec::default())?;
    let link = Link::default();
    pair.b.to_init(&link)?;
    pair.b.to_rtr(pair.a.qp.number(), &link)?;
    pair.b.recv(1)?;
    if state != State::Reset {
        pair.a.to_init(&link)?;
    }
    if state == State::Rtr {
        pair.a.to_rtr(pair.b.qp.number(), &link)?;
    }
    if let Err(refused) = pair.a.qp.send(small(&pair, 2)) {
        same("errno", crate::rig::errno_name(refused.errno), "EINVAL".to_owned())?;
    }
    pair.a.scq.quiet()?;
    pair.b.rcq.quiet()?;
    pair.a.qp.expect_state(state)
}

fn refusal_sets_bad_wr(rig: &Rig) -> Outcome {
    let pair = rig.unconnected(RC, SideSpec::default())?;
    pair.a.to_init(&Link::default())?;
    match pair.a.qp.post_send(&[small(&pair, 1), small(&pair, 2)]) {
        Ok(()) => Err(Failure::Lacks("it ignores sends in INIT silently, as the page allows".to_owned())),
        Err(refused) => same("bad_wr", refused.bad, Some(0)),
    }
}

fn refused_is_never_sent(rig: &Rig) -> Outcome {
    let pair = rig.unconnected(RC, SideSpec::default())?;
    let link = Link::default();
    for (side, peer) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        side.to_init(&link)?;
        // Refused or not: see `not_yet`.
        let _ = side.qp.send(Wr::write(1, peer.mr.remote(0)));
        side.to_rtr(peer.qp.number(), &link)?;
    }
    pair.a.to_rts(&link)?;
    pair.a.qp.send(Wr::write(2, pair.remote(0)))?;
    same("the first completion", pair.a.scq.wait_ok()?.id, 2)?;
    pair.a.scq.quiet()
}

fn rts_sends(rig: &Rig, transport: Transport) -> Outcome {
    let pair = rig.pair(transport)?;
    pair.a.qp.expect_state(State::Rts)?;
    pair.exchange()
}

fn sqd_holds(rig: &Rig, transport: Transport) -> Outcome {
    let pair = rig.pair(transport)?;
    for id in 0..3 {
        pair.b.recv(id)?;
    }
    to_sqd(&pair.a.qp)?;
    pair.a.qp.post_send(&[small(&pair, 10), small(&pair, 11)])?;
    pair.a.scq.quiet()?;
    pair.b.rcq.quiet()?;
    to_rts_again(&pair.a.qp)?;
    pair.a.qp.send(small(&pair, 12))?;
    same("wr_ids", pair.a.scq.wait_all_ok::<3>()?.map(|wc| wc.id), [10, 11, 12])?;
    same("receives", pair.b.rcq.wait_all_ok::<3>()?.map(|wc| wc.id), [0, 1, 2])
}

fn err_flushes(rig: &Rig, transport: Transport) -> Outcome {
    let pair = rig.pair(transport)?;
    pair.b.recv(1)?;
    pair.a.qp.to_err()?;
    pair.a.qp.post_send(&[small(&pair, 2), small(&pair, 3).unsignaled()])?;
    flushed(&pair.a.scq.wait(2)?, &[2, 3])?;
    pair.b.rcq.quiet()
}

fn err_flushes_receives(rig: &Rig, transport: Transport) -> Outcome {
    let pair = rig.pair(transport)?;
    pair.a.recv(0)?;
    pair.a.qp.to_err()?;
    // The transition to ERR is over: later posts are made in ERR.
    flushed(&pair.a.rcq.wait(1)?, &[0])?;
    pair.a.recv(1)?;
    pair.a.recv(2)?;
    flushed(&pair.a.rcq.wait_for(2, SOON)?, &[1, 2])
}

fn failed_send_is_sqe(rig: &Rig, transport: Transport) -> Outcome {
    let pair = rig.pair(transport)?;
    to_sqe(&pair)
}

fn sqe_flushes(rig: &Rig, transport: Transport) -> Outcome {
    let pair = rig.pair(transport)?;
    pair.b.recv(1)?;
    // The second is already behind the failing one.
    pair.a.qp.post_send(&[failing(&pair, 1), small(&pair, 2)])?;
    let wcs = pair.a.scq.wait(2)?;
    same("the first's status", wcs[0].status, Status::LOC_PROT_ERR)?;
    flushed(&wcs[1..], &[2])?;
    pair.a.qp.expect_state(State::Sqe)?;
    pair.a.qp.send(small(&pair, 3))?;
    flushed(&pair.a.scq.wait(1)?, &[3])?;
    pair.b.rcq.quiet()
}

fn sqe_receives(rig: &Rig, transport: Transport) -> Outcome {
    // The reverse: the receiver's send queue fails.
    let pair = rig.pair(transport)?;
    let back = rig.far().ah()?;
    let mut wr = Wr::send(1).sge(out_of_bounds(&pair.b.mr));
    if transport == UD {
        wr = wr.to(&back, pair.a.qp.number(), crate::rig::Attr::QKEY);
    }
    pair.b.qp.send(wr)?;
    same("the failing send's status", pair.b.scq.wait_one()?.status, Status::LOC_PROT_ERR)?;
    pair.b.qp.expect_state(State::Sqe)?;
    pair.exchange()
}

fn sqe_to_rts(rig: &Rig, transport: Transport) -> Outcome {
    let pair = rig.pair(transport)?;
    to_sqe(&pair)?;
    to_rts_again(&pair.a.qp)?;
    pair.exchange()
}

fn sqd_sends_start_with_rts(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    to_sqd(&pair.a.qp)?;
    pair.a.qp.send(Wr::write(1, pair.remote(0)))?;
    to_rts_again(&pair.a.qp)?;
    same("the held send", pair.a.scq.wait_for(1, SOON)?[0].id, 1)
}

fn sqd_still_receives(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        to_sqd(&pair.b.qp)?;
        pair.exchange().during(transport)?;
    }
    Ok(())
}

fn sqd_lets_the_rest_finish(rig: &Rig) -> Outcome {
    drains_with_the_rest(rig).during("draining")
}

fn drains_with_the_rest(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    // It cannot finish before the peer posts a receive.
    pair.a.qp.send(small(&pair, 1))?;
    pair.a.qp.modify(&pair.a.qp.attr(0).to(State::Sqd).sqd_notify())?;
    ensure(pair.a.qp.query()?.sq_draining(), "sq_draining is set while a send is on its way")?;
    rig.context().no_async(AsyncKind::SQ_DRAINED)?;
    pair.b.recv(2)?;
    same("the send", pair.a.scq.wait_for(1, SOON)?[0].id, 1)?;
    rig.context().wait_async(AsyncKind::SQ_DRAINED, Element::Qp(&pair.a.qp))?;
    ensure(!pair.a.qp.query()?.sq_draining(), "sq_draining is clear when everything is done")
}

fn sqd_to_err_flushes(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    to_sqd(&pair.a.qp)?;
    pair.a.qp.post_send(&[small(&pair, 1), small(&pair, 2)])?;
    pair.a.qp.to_err()?;
    flushed(&pair.a.scq.wait(2)?, &[1, 2])
}

fn error_flushes_both_queues(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    for id in 0..4 {
        pair.a.recv(id)?;
    }
    to_sqd(&pair.a.qp)?;
    pair.a.qp.post_send(&[small(&pair, 10), small(&pair, 11), small(&pair, 12).unsignaled()])?;
    pair.a.qp.to_err()?;
    pair.a.qp.expect_state(State::Err)?;
    flushed(&pair.a.scq.wait(3)?, &[10, 11, 12])?;
    flushed(&pair.a.rcq.wait(4)?, &[0, 1, 2, 3])
}

fn rtr_receives(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.unconnected(transport, SideSpec::default())?;
        let link = Link::default();
        for (side, peer) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            side.to_init(&link)?;
            side.to_rtr(peer.qp.number(), &link)?;
        }
        pair.a.to_rts(&link)?;
        pair.exchange().during(transport)?;
        pair.b.qp.expect_state(State::Rtr)?;
    }
    Ok(())
}

fn reset_forgets(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    for id in 0..3 {
        pair.a.recv(id)?;
    }
    to_sqd(&pair.a.qp)?;
    pair.a.qp.send(small(&pair, 10))?;
    pair.a.qp.to_reset()?;
    pair.b.qp.to_reset()?;
    pair.a.scq.quiet()?;
    pair.a.rcq.quiet()?;
    pair.connect()?;
    pair.exchange()?;
    // The receives are gone, too: the next message takes the next one posted.
    pair.a.qp.recv(Recv::new(20).sge(pair.a.mr.all()))?;
    pair.b.qp.send(Wr::send(21))?;
    same("the receive", pair.a.rcq.wait_ok()?.id, 20)
}

fn err_to_reset_and_again(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.pair(transport)?;
        pair.a.mr.fill(1);
        pair.a.qp.send(failing(&pair, 1))?;
        ensure(!pair.a.scq.wait_one()?.ok(), "a wrong lkey fails")?;
        one_of("the state", pair.a.qp.state()?, &[State::Err, State::Sqe])?;
        pair.a.qp.to_reset()?;
        pair.b.qp.to_reset()?;
        pair.connect().during(transport)?;
        pair.exchange().during(transport)?;
        same_bytes("the rest of the memory", &pair.b.mr.take(pair.header() + 100, 8), &[0; 8])?;
    }
    Ok(())
}
