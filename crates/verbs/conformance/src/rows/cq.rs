//! Completion queues: polling, size, overrun, and sharing.

use super::common::*;
use crate::check::{Outcome, ensure, same};
use crate::rig::{AsyncKind, Cq, Element, Qp, QpCap, Recv, Rig, State, Status, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let poll = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POLL_CQ, says, test);
    let create = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::CREATE_CQ, says, test);
    let resize = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::RESIZE_CQ, says, test);
    vec![
        poll("cq/empty-is-0", "Polling an empty CQ returns 0", empty_is_0),
        poll("cq/at-most-as-asked", "Polling returns at most num_entries, in order; the rest stays", at_most_as_asked),
        poll("cq/each-once", "A completion that was polled is gone", each_once),
        poll("cq/shared-by-both-queues", "Sends and receives may complete into one CQ", shared_by_both_queues),
        poll("cq/shared-by-qps", "Queue pairs may share a CQ: qp_num tells them apart", shared_by_qps),
        poll(
            "cq/failure-tells-wr-id-status-qp",
            "An unsuccessful completion has wr_id, status and qp_num",
            failure_tells,
        ),
        poll(
            "cq/overrun-is-an-event",
            "A CQ that gets more completions than it holds raises IBV_EVENT_CQ_ERR",
            overrun_is_an_event,
        ),
        poll(
            "cq/overrun-fails-its-queue-pairs",
            "A queue pair that can't complete into its CQ any more is in ERR",
            overrun_fails_its_qps,
        ),
        create(
            "cq/holds-what-was-asked",
            "A CQ holds at least as many completions as were asked for",
            holds_what_was_asked,
        ),
        create("cq/not-none", "A CQ of no or fewer entries is refused", not_none),
        create("cq/not-more-than-max-cqe", "A CQ of more than max_cqe entries is refused", not_more_than_max),
        create("cq/not-destroyed-under-a-qp", "A CQ with queue pairs is EBUSY", not_destroyed_under_a_qp),
        resize("cq/grows", "A resized CQ keeps its completions and holds more", grows),
        resize(
            "cq/smaller-keeps-what-is-in-it",
            "Resized to less, the CQ has at least the asked size, and its completions stay",
            smaller_keeps,
        ),
        resize(
            "cq/below-its-content-loses-nothing",
            "A size below the completions in the CQ is refused or ignored: they stay",
            below_its_content,
        ),
    ]
}

fn empty_is_0(rig: &Rig) -> Outcome {
    let cq = rig.cq(16)?;
    for _ in 0..3 {
        same("completions", cq.poll(8)?.len(), 0)?;
    }
    Ok(())
}

fn at_most_as_asked(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let list: Vec<Wr> = (0..8).map(|id| Wr::write(id, pair.remote(0))).collect();
    pair.a.qp.post_send(&list)?;
    let mut deadline = crate::rig::Deadline::new("eight completions");
    let mut seen: Vec<u64> = Vec::new();
    while seen.len() < 8 {
        // `poll` fails if it gets more than it requested.
        let some = pair.a.scq.poll(3)?;
        if some.is_empty() {
            deadline.pause(|| format!("{seen:?}"))?;
        }
        seen.extend(some.iter().map(|wc| wc.id));
    }
    same("wr_ids", seen, (0..8).collect())
}

fn each_once(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.exchange()?;
    pair.a.scq.quiet()?;
    pair.b.rcq.quiet()
}

/// An RC queue pair with `cq` for both of its queues.
fn on(rig: &Rig, cq: &Cq) -> Outcome<Qp> {
    Ok(Qp::on(rig.pd(), RC, cq, QpCap { send_wr: 64, ..QpCap::default() })?)
}

/// A queue pair like [`on`]'s, in ERR, with this many flushed receives in `cq`: wr_ids from 0.
fn flushing(rig: &Rig, cq: &Cq, receives: u64) -> Outcome<Qp> {
    let qp = on(rig, cq)?;
    qp.to_init()?;
    for id in 0..receives {
        qp.recv(Recv::new(id))?;
    }
    qp.to_err()?;
    Ok(qp)
}

fn shared_by_both_queues(rig: &Rig) -> Outcome {
    let cq = rig.cq(16)?;
    let qp = flushing(rig, &cq, 1)?;
    qp.send(Wr::send(1))?;
    let mut ids: Vec<u64> = cq.wait(2)?.iter().map(|wc| wc.id).collect();
    ids.sort_unstable();
    same("wr_ids", ids, vec![0, 1])
}

fn shared_by_qps(rig: &Rig) -> Outcome {
    let cq = rig.cq(16)?;
    let qps = [flushing(rig, &cq, 2)?, flushing(rig, &cq, 2)?, flushing(rig, &cq, 2)?];
    let mut want: Vec<u32> = qps.iter().flat_map(|qp| [qp.number(); 2]).collect();
    let mut seen: Vec<u32> = cq.wait(6)?.iter().map(|wc| wc.qpn).collect();
    want.sort_unstable();
    seen.sort_unstable();
    same("qp_num", seen, want)
}

fn failure_tells(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.a.qp.send(failing(&pair, 77))?;
    let wc = pair.a.scq.wait_one()?;
    same("the completion", (wc.id, wc.status, wc.qpn), (77, Status::LOC_PROT_ERR, pair.a.qp.number()))
}

fn overrun_is_an_event(rig: &Rig) -> Outcome {
    let cq = rig.cq(2)?;
    let side = rig.pair(RC)?;
    let (one, two) = (on(rig, &cq)?, on(rig, &cq)?);
    for qp in [&one, &two] {
        qp.to_init()?;
        for id in 0..16 {
            qp.recv(Recv::new(id))?;
        }
    }
    ensure(cq.depth() < 32, "two queue pairs can fill the CQ")?;
    one.to_err()?;
    two.to_err()?;
    rig.context().wait_async(AsyncKind::CQ_ERR, Element::Cq(&cq))?;
    // Other queue pairs go on.
    side.exchange()
}

fn overrun_fails_its_qps(rig: &Rig) -> Outcome {
    let pair = overrunning_pair(rig)?;
    rig.far().context().wait_async(AsyncKind::CQ_ERR, Element::Cq(&pair.b.rcq))?;
    let mut deadline = crate::rig::Deadline::new("ERR");
    while pair.b.qp.state()? != State::Err {
        deadline.pause(|| format!("{:?}", pair.b.qp.state()))?;
    }
    Ok(())
}

fn holds_what_was_asked(rig: &Rig) -> Outcome {
    for depth in [1, 2, 3, 100, 1000] {
        let cq = rig.cq(depth)?;
        ensure(cq.depth() >= depth, format_args!("{depth} were granted, not {}", cq.depth()))?;
    }
    let cq = rig.cq(32)?;
    let _qps = [flushing(rig, &cq, 16)?, flushing(rig, &cq, 16)?];
    same("completions", cq.wait(32)?.len(), 32)
}

fn refused(rig: &Rig, depth: i32) -> Outcome {
    let created = Cq::create_with(rig.context(), depth, None, 0, 0);
    refused_with(format_args!("a CQ of {depth} entries"), created, libc::EINVAL)
}

fn not_none(rig: &Rig) -> Outcome {
    refused(rig, 0)?;
    refused(rig, -1)
}

fn not_more_than_max(rig: &Rig) -> Outcome {
    refused(rig, rig.context().attr().max_cqe + 1)
}

fn not_destroyed_under_a_qp(rig: &Rig) -> Outcome {
    let cq = rig.cq(16)?;
    let qp = on(rig, &cq)?;
    refused_with("destroying the CQ of a queue pair", cq.try_destroy(), libc::EBUSY)?;
    qp.try_destroy()?;
    Ok(cq.try_destroy()?)
}

/// A CQ of this depth with completions 0 to 5, the first of them polled.
fn with_five(rig: &Rig, depth: u32) -> Outcome<(Cq, Qp)> {
    let cq = rig.cq(depth)?;
    let qp = flushing(rig, &cq, 6)?;
    same("the first", cq.wait_one()?.id, 0)?;
    Ok((cq, qp))
}

fn the_five(cq: &Cq) -> Outcome {
    let ids: Vec<u64> = cq.wait(5)?.iter().map(|wc| wc.id).collect();
    same("wr_ids", ids, vec![1, 2, 3, 4, 5])
}

fn grows(rig: &Rig) -> Outcome {
    let (cq, qp) = with_five(rig, 8)?;
    let before = cq.depth();
    cq.resize(before * 4)?;
    ensure(cq.depth() >= before * 4, format_args!("{} were granted, not {}", before * 4, cq.depth()))?;
    the_five(&cq)?;
    for id in 0..before.into() {
        qp.send(Wr::send(id))?;
    }
    let _more = [flushing(rig, &cq, 8)?, flushing(rig, &cq, 8)?];
    same("completions", cq.wait(before as usize + 16)?.len(), before as usize + 16)
}

fn smaller_keeps(rig: &Rig) -> Outcome {
    let (cq, _qp) = with_five(rig, 500)?;
    cq.resize(20)?;
    ensure(cq.depth() >= 20, format_args!("20 were granted, not {}", cq.depth()))?;
    the_five(&cq)
}

fn below_its_content(rig: &Rig) -> Outcome {
    let cq = rig.cq(500)?;
    let _qps = [flushing(rig, &cq, 16)?, flushing(rig, &cq, 16)?];
    same("the first's status", cq.wait_one()?.status, Status::WR_FLUSH_ERR)?;
    // Either answer is right: the page says "may not do anything".
    let _ = cq.resize(1);
    same("the rest", cq.wait(31)?.len(), 31)
}
