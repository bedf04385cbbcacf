//! `ibv_post_send`: the list, `bad_wr`, the queue's depth, and the ownership of memory.

use super::common::*;
use crate::check::{Outcome, ensure, one_of, same, same_bytes};
use crate::rig::{Kind, Link, Op, QpCap, Rig, SideSpec, State, Status, Wr, waits_of_this_thread};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::POST_SEND, says, test);
    vec![
        row(
            "post_send/list-is-posted-in-order",
            "The entries of the linked list are posted one by one, in order",
            list_is_posted_in_order,
        ),
        row(
            "post_send/mixed-list-completes-in-order",
            "Work requests of different opcodes complete in the order in which they were posted",
            mixed_list_completes_in_order,
        ),
        row(
            "post_send/stops-at-the-bad-one",
            "At a bad work request posting stops: those before it are posted, bad_wr points at it, those behind are \
             not posted",
            stops_at_the_bad_one,
        ),
        row(
            "post_send/refusal-changes-nothing",
            "A refused work request is EINVAL and changes nothing in the queue pair",
            refusal_changes_nothing,
        ),
        row(
            "post_send/full-queue-is-enomem",
            "A full send queue is ENOMEM, and bad_wr points at the first that did not fit",
            full_queue_is_enomem,
        ),
        row(
            "post_send/depth-is-what-was-granted",
            "As many work requests can be outstanding as were asked for at creation",
            depth_is_what_was_granted,
        ),
        row(
            "post_send/completions-give-slots-back",
            "A queue takes as many again once the completions were polled",
            completions_give_slots_back,
        ),
        row(
            "post_send/signaled-gives-back-unsignaled",
            "A signaled completion gives back the slots of all unsignaled work requests before it",
            signaled_gives_back_unsignaled,
        ),
        row("post_send/wr-id-comes-back", "The completion holds the 64 bits of wr_id", wr_id_comes_back),
        row(
            "post_send/request-can-be-reused-at-once",
            "The work request and its scatter/gather list can be reused when the call returned",
            request_can_be_reused_at_once,
        ),
        row(
            "post_send/unknown-opcode-is-refused",
            "An opcode that isn't one is an invalid value in wr",
            unknown_opcode_is_refused,
        ),
        row(
            "post_send/deregistered-mr-fails-the-wr",
            "A work request whose memory region was deregistered meanwhile completes with an error",
            deregistered_mr_fails_the_wr,
        ),
        row(
            "post_send/deregistered-mr-spares-inline",
            "The exception is inline data: it was copied when it was posted",
            deregistered_mr_spares_inline,
        ),
        row(
            "post_send/no-context-switch",
            "Posting does not cause a context switch: the thread never gives up its CPU for it",
            no_context_switch,
        )
        .differs(
            Kind::SoftUdp,
            "voluntary context switches",
            "a post may wait for the wire's own thread, for one turn of it",
            "one lock guards the socket and what is behind it",
        ),
        row(
            "post_send/asynchronous",
            "Posting does not wait: a send that can't be received yet is taken, and completes later",
            asynchronous,
        ),
    ]
}

fn ids(wcs: &[crate::rig::Wc]) -> Vec<u64> {
    wcs.iter().map(|wc| wc.id).collect()
}

fn list_is_posted_in_order(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let mut list = Vec::new();
    for at in 0..6 {
        pair.b.recv(at)?;
        pair.a.mr.put(at as usize, &[at as u8]);
        list.push(Wr::send(10 + at).sge(pair.a.mr.sge(0..at as usize + 1)));
    }
    pair.a.qp.post_send(&list)?;
    same("wr_ids sent", ids(&pair.a.scq.wait_all_ok::<6>()?), (10..16).collect())?;
    let received = pair.b.rcq.wait_all_ok::<6>()?;
    same("wr_ids received", ids(&received), (0..6).collect())?;
    same("lengths received", received.map(|wc| wc.bytes), [1, 2, 3, 4, 5, 6])
}

fn mixed_list_completes_in_order(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.recv(1)?;
    pair.b.recv(2)?;
    let ops = [Op::Write, Op::Send, Op::Read, Op::FetchAdd, Op::WriteImm, Op::CmpSwap, Op::Write];
    let list: Vec<Wr> = (0..).zip(ops).map(|(id, op)| pair.any(id, op)).collect();
    pair.a.qp.post_send(&list)?;
    same("wr_ids", ids(&pair.a.scq.wait_all_ok::<7>()?), (0..7).collect())?;
    pair.b.rcq.wait_all_ok::<2>()?;
    Ok(())
}

/// More scatter/gather entries than the queue pair was created for.
fn too_many_sges(pair: &crate::rig::Pair, id: u64) -> Wr {
    let entries = pair.a.qp.granted().send_sge + 1;
    (0..entries).fold(Wr::send(id), |wr, _| wr.sge(pair.a.mr.sge(0..1)))
}

fn stops_at_the_bad_one(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    for id in 0..4 {
        pair.b.recv(id)?;
    }
    let list = [small(&pair, 10), small(&pair, 11), too_many_sges(&pair, 12), small(&pair, 13)];
    refused_at(pair.a.qp.post_send(&list), libc::EINVAL, 2)?;
    same("wr_ids sent", ids(&pair.a.scq.wait_all_ok::<2>()?), vec![10, 11])?;
    pair.b.rcq.wait_all_ok::<2>()?;
    pair.a.scq.quiet()?;
    pair.b.rcq.quiet()
}

fn refusal_changes_nothing(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let before = pair.a.qp.query()?;
    refused_at(pair.a.qp.post_send(&[too_many_sges(&pair, 1)]), libc::EINVAL, 0)?;
    same("changed attributes", before.changes(&pair.a.qp.query()?), vec![])?;
    pair.exchange()?;
    pair.a.scq.quiet()
}

fn shallow() -> SideSpec<'static> {
    SideSpec { cap: QpCap { send_wr: 8, ..QpCap::default() }, ..SideSpec::default() }
}

/// Fills `a`'s send queue in SQD, where nothing is processed; returns how many were taken.
fn fill(pair: &crate::rig::Pair) -> Outcome<usize> {
    to_sqd(&pair.a.qp)?;
    let room = pair.a.qp.granted().send_wr.max(pair.a.qp.query()?.cap().max_send_wr) as usize;
    let list: Vec<Wr> = (0..room as u64 + 64).map(|id| Wr::write(id, pair.remote(0))).collect();
    let refused = pair.a.qp.post_send(&list);
    let taken = refused.err().and_then(|refused| refused.bad).unwrap_or(list.len());
    refused_at(refused, libc::ENOMEM, taken)?;
    Ok(taken)
}

fn full_queue_is_enomem(rig: &Rig) -> Outcome {
    let pair = rig.pair_with(RC, shallow(), Link::default())?;
    let taken = fill(&pair)?;
    ensure(taken < 72, "a list that is longer than the queue was not taken whole")?;
    refused_at(pair.a.qp.send(Wr::write(99, pair.remote(0))), libc::ENOMEM, 0)?;
    pair.a.qp.expect_state(State::Sqd)?;
    // The work requests before the one at `bad_wr` were posted, and no others.
    to_rts_again(&pair.a.qp)?;
    // Some devices start held work requests only at the next post.
    let behind = pair.a.qp.send(Wr::write(99, pair.remote(0))).is_ok();
    let want: Vec<u64> = (0..taken as u64).chain(behind.then_some(99)).collect();
    same("wr_ids that complete", ids(&pair.a.scq.wait(want.len())?), want)?;
    pair.a.scq.quiet()
}

fn depth_is_what_was_granted(rig: &Rig) -> Outcome {
    let pair = rig.pair_with(RC, shallow(), Link::default())?;
    let granted = pair.a.qp.granted().send_wr;
    ensure(granted >= 8, format_args!("8 work requests were granted, not {granted}"))?;
    let taken = fill(&pair)?;
    ensure(taken >= granted as usize, format_args!("{granted} were taken, not {taken}"))
}

fn completions_give_slots_back(rig: &Rig) -> Outcome {
    let pair = rig.pair_with(RC, shallow(), Link::default())?;
    let depth = pair.a.qp.granted().send_wr as usize;
    let list: Vec<Wr> = (0..depth as u64).map(|id| Wr::write(id, pair.remote(0))).collect();
    for _ in 0..5 {
        pair.a.qp.post_send(&list)?;
        same("wr_ids", ids(&pair.a.scq.wait(depth)?), (0..depth as u64).collect())?;
    }
    pair.a.scq.quiet()
}

fn signaled_gives_back_unsignaled(rig: &Rig) -> Outcome {
    let pair = rig.pair_with(RC, shallow(), Link::default())?;
    let depth = u64::from(pair.a.qp.granted().send_wr);
    let write = |id| Wr::write(id, pair.remote(0));
    let list: Vec<Wr> = (1..depth).map(|id| write(id).unsignaled()).chain([write(0)]).collect();
    for _ in 0..3 {
        pair.a.qp.post_send(&list)?;
        same("the only completion", pair.a.scq.wait_ok()?.id, 0)?;
    }
    pair.a.scq.quiet()
}

fn wr_id_comes_back(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    for id in [u64::MAX, 0, 0x8000_0000_0000_0001] {
        pair.b.recv(!id)?;
        pair.a.qp.send(small(&pair, id))?;
        same("the send's wr_id", pair.a.scq.wait_ok()?.id, id)?;
        same("the receive's wr_id", pair.b.rcq.wait_ok()?.id, !id)?;
    }
    Ok(())
}

fn request_can_be_reused_at_once(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    to_sqd(&pair.a.qp)?;
    let text = pattern(64);
    pair.a.mr.put(0, &text);
    // Held, so that all of it is still to be done when `post_send` overwrites the request and the
    // list.
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(pair.a.mr.sge(0..24)).sge(pair.a.mr.sge(24..64)))?;
    to_rts_again(&pair.a.qp)?;
    pair.a.qp.send(Wr::write(2, pair.remote(100)))?;
    same("wr_ids", ids(&pair.a.scq.wait_all_ok::<2>()?), vec![1, 2])?;
    same_bytes("what was written", &pair.b.mr.take(0, 64), &text)
}

fn unknown_opcode_is_refused(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    pair.b.recv(1)?;
    never_works(&pair, pair.any(2, Op::Nonsense), &[Status::LOC_QP_OP_ERR])?;
    pair.b.rcq.quiet()
}

fn deregistered_mr_fails_the_wr(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let gone = rig.mr(4096)?;
    to_sqd(&pair.a.qp)?;
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(gone.all()))?;
    gone.deregister()?;
    to_rts_again(&pair.a.qp)?;
    // A second post, because some devices start held work requests only then. It is flushed.
    pair.a.qp.send(Wr::write(2, pair.remote(0)))?;
    let wcs = pair.a.scq.wait(2)?;
    same("the first", wcs[0].id, 1)?;
    one_of("the first's status", wcs[0].status, &[Status::LOC_PROT_ERR, Status::LOC_QP_OP_ERR])?;
    flushed(&wcs[1..], &[2])
}

fn deregistered_mr_spares_inline(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let gone = rig.mr(4096)?;
    gone.put(0, b"inline");
    to_sqd(&pair.a.qp)?;
    pair.a.qp.send(Wr::write(1, pair.remote(0)).sge(gone.sge(0..6)).inline())?;
    gone.deregister()?;
    to_rts_again(&pair.a.qp)?;
    pair.a.qp.send(Wr::write(2, pair.remote(100)))?;
    pair.a.scq.wait_all_ok::<2>()?;
    same_bytes("what was written", &pair.b.mr.take(0, 6), b"inline")
}

fn no_context_switch(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    let list: Vec<Wr> = (0..8).map(|id| Wr::write(id, pair.remote(0)).sge(pair.a.mr.sge(0..300))).collect();
    let mut switches = 0;
    for _ in 0..200 {
        let before = waits_of_this_thread();
        pair.a.qp.post_send(&list)?;
        switches += waits_of_this_thread() - before;
        pair.a.scq.wait_all_ok::<8>()?;
    }
    same("voluntary context switches in 200 posts", switches, 0)
}

fn asynchronous(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    // No receive is posted, and the peer is retried for ever.
    pair.a.qp.send(small(&pair, 1))?;
    pair.a.scq.quiet()?;
    pair.b.recv(2)?;
    same("the send", pair.a.scq.wait_ok()?.id, 1)?;
    same("the receive", pair.b.rcq.wait_ok()?.id, 2)
}
