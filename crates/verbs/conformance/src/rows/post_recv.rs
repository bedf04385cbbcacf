//! `ibv_post_recv(3)`: the other list.

use super::common::*;
use crate::check::{During, Outcome, ensure, same};
use crate::rig::{Link, QpCap, Recv, Rig, SideSpec, State, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_RECV, says, test);
    vec![
        row("post_recv/list-is-posted-in-order", "The entries of the list are posted in order", list_in_order),
        row(
            "post_recv/stops-at-the-bad-one",
            "At a bad work request posting stops: those before it are posted, bad_wr points at it",
            stops_at_the_bad_one,
        ),
        row(
            "post_recv/full-queue-is-enomem",
            "A full receive queue is ENOMEM, and bad_wr points at the first that did not fit",
            full_queue_is_enomem,
        ),
        row("post_recv/reset-refuses", "In RESET a receive can't be posted", reset_refuses).rxe(
            "bad_wr: expected Some(0), got None",
            "it is refused, but bad_wr is not set",
            "rxe's user library returns before it looks at the list",
        ),
        row(
            "post_recv/init-accepts",
            "In INIT receives can be posted; they are used once the queue pair receives",
            init_accepts,
        ),
        row(
            "post_recv/receive-of-no-memory",
            "A receive without entries takes a message of no bytes",
            receive_of_no_memory,
        ),
        row(
            "post_recv/separate-queues",
            "Sends and receives are queues of their own: one being full doesn't stop the other",
            separate_queues,
        ),
    ]
}

fn list_in_order(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let list: Vec<Recv> = (0..5).map(|id| Recv::new(id).sge(pair.b.mr.all())).collect();
    pair.b.qp.post_recv(&list)?;
    for id in 0..5 {
        pair.a.qp.send(small(&pair, id))?;
    }
    pair.a.scq.wait_all_ok::<5>()?;
    same("wr_ids", pair.b.rcq.wait_all_ok::<5>()?.map(|wc| wc.id), [0, 1, 2, 3, 4])
}

fn stops_at_the_bad_one(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let entries = pair.b.qp.granted().recv_sge as usize + 1;
    let bad = (0..entries).fold(Recv::new(2), |recv, at| recv.sge(pair.b.mr.sge(at..at + 1)));
    let good = |id| Recv::new(id).sge(pair.b.mr.all());
    refused_at(pair.b.qp.post_recv(&[good(0), good(1), bad, good(3)]), libc::EINVAL, 2)?;
    pair.b.recv(4)?;
    for id in 0..3 {
        pair.a.qp.send(small(&pair, id))?;
    }
    same("wr_ids", pair.b.rcq.wait_all_ok::<3>()?.map(|wc| wc.id), [0, 1, 4])
}

fn full_queue_is_enomem(rig: &Rig) -> Outcome {
    let cap = QpCap { recv_wr: 8, ..QpCap::default() };
    let pair = rig.pair_with(RC, SideSpec { cap, ..SideSpec::default() }, Link::default())?;
    let granted = pair.b.qp.granted().recv_wr.max(pair.b.qp.query()?.cap().max_recv_wr) as usize;
    ensure(granted >= 8, format_args!("8 receives were granted, not {granted}"))?;
    let list: Vec<Recv> = (0..granted as u64 + 64).map(Recv::new).collect();
    let refused = pair.b.qp.post_recv(&list);
    let taken = refused.err().and_then(|refused| refused.bad).unwrap_or(list.len());
    refused_at(refused, libc::ENOMEM, taken)?;
    ensure(taken >= granted, format_args!("{granted} were taken, not {taken}"))?;
    // A message frees space for one.
    pair.a.qp.send(Wr::send(1))?;
    same("the first", pair.b.rcq.wait_ok()?.id, 0)?;
    pair.b.qp.recv(Recv::new(99)).map_err(crate::check::Failure::from).during("one more after a completion")
}

fn reset_refuses(rig: &Rig) -> Outcome {
    let side = rig.side(RC, SideSpec::default())?;
    refused_at(side.qp.recv(Recv::new(1).sge(side.mr.all())), libc::EINVAL, 0)
}

fn init_accepts(rig: &Rig) -> Outcome {
    for transport in [RC, UC, UD] {
        let pair = rig.unconnected(transport, SideSpec::default())?;
        let link = Link::default();
        pair.b.to_init(&link)?;
        pair.b.recv(7)?;
        pair.b.rcq.quiet()?;
        pair.b.qp.expect_state(State::Init)?;
        pair.b.to_rtr(pair.a.qp.number(), &link)?;
        pair.a.to_init(&link)?;
        pair.a.to_rtr(pair.b.qp.number(), &link)?;
        pair.a.to_rts(&link)?;
        pair.a.qp.send(small(&pair, 1))?;
        same("the receive", pair.b.rcq.wait_ok()?.id, 7).during(transport)?;
        pair.a.scq.wait_ok()?;
    }
    Ok(())
}

fn receive_of_no_memory(rig: &Rig) -> Outcome {
    for transport in [RC, UC] {
        let pair = rig.pair(transport)?;
        pair.b.qp.recv(Recv::new(1))?;
        pair.a.qp.send(Wr::send(2))?;
        same("byte_len", pair.b.rcq.wait_ok()?.bytes, 0).during(transport)?;
        pair.a.scq.wait_ok()?;
    }
    Ok(())
}

fn separate_queues(rig: &Rig) -> Outcome {
    let cap = QpCap { recv_wr: 4, send_wr: 4, ..QpCap::default() };
    let pair = rig.pair_with(RC, SideSpec { cap, ..SideSpec::default() }, Link::default())?;
    while pair.a.qp.recv(Recv::new(1)).is_ok() {}
    pair.exchange()
}
