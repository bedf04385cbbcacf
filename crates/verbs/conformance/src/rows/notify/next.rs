//! The next completion: every kind raises an event after a request for the next one, and nothing
//! else does.

use super::super::common::*;
use super::wired::{each, leave_one, wired};
use crate::check::{During, Outcome, same};
use crate::rig::{Notify, Rig, Status, Transport};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::NOTIFY, says, test);
    let mut rows = Vec::new();
    for transport in [RC, UC, UD] {
        rows.extend([
            each(transport, "next-send", "The next completion of a send raises an event", next_send),
            each(transport, "next-receive", "The next completion of a receive raises an event", next_receive),
        ]);
    }
    rows.extend([
        row("notify/nothing-unasked", "Without a request there is no event", nothing_unasked),
        row("notify/next-failed-send", "An unsuccessful send completion is a next completion", next_failed_send),
        row(
            "notify/next-flushed-receive",
            "An unsuccessful receive completion is a next completion",
            next_flushed_receive,
        ),
        row(
            "notify/next-is-solicited-ones-too",
            "A solicited completion is a next completion as well",
            next_is_solicited_too,
        ),
        row(
            "notify/waited-for-its-receive",
            "A message that waited for its receive raises an event as any other",
            waited_solicited_raises,
        ),
        row(
            "notify/existing-completions-raise-nothing",
            "Completions that were in the CQ before the request raise no event; the next one does",
            existing_raise_nothing,
        ),
        row(
            "notify/each-cq-on-its-own",
            "A request is for one CQ: completions in another raise nothing",
            each_cq_on_its_own,
        ),
        row(
            "notify/cq-without-channel",
            "Every CQ can be asked, one without a channel too; nothing comes of it",
            cq_without_channel,
        ),
        row(
            "notify/unsignaled-sends-raise-nothing",
            "What makes no completion raises no event",
            unsignaled_raise_nothing,
        ),
    ]);
    rows
}

fn nothing_unasked(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.exchange()?;
    channel.quiet()
}

fn next_send(rig: &Rig, transport: Transport) -> Outcome {
    let (channel, pair) = wired(rig, transport)?;
    pair.a.scq.arm(Notify::Next)?;
    pair.exchange()?;
    channel.wait_ack(&pair.a.scq)?;
    channel.quiet()
}

fn next_receive(rig: &Rig, transport: Transport) -> Outcome {
    let (channel, pair) = wired(rig, transport)?;
    pair.b.rcq.arm(Notify::Next)?;
    pair.exchange()?;
    channel.wait_ack(&pair.b.rcq)?;
    channel.quiet()
}

fn next_failed_send(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.a.scq.arm(Notify::Next)?;
    pair.a.qp.send(failing(&pair, 1).unsignaled())?;
    channel.wait_ack(&pair.a.scq)?;
    same("the completion", pair.a.scq.wait_one()?.status, Status::LOC_PROT_ERR)
}

fn next_flushed_receive(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.recv(1)?;
    pair.b.rcq.arm(Notify::Next)?;
    pair.b.qp.to_err()?;
    channel.wait_ack(&pair.b.rcq)?;
    flushed(&pair.b.rcq.wait(1)?, &[1])
}

fn next_is_solicited_too(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Next)?;
    deliver(&pair, small(&pair, 1).solicited())?;
    channel.wait_ack(&pair.b.rcq)?;
    channel.quiet()
}

fn waited_solicited_raises(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Solicited)?;
    pair.a.qp.post_send(&[small(&pair, 1), small(&pair, 2).solicited()])?;
    pair.b.recv(1)?;
    pair.b.rcq.wait_ok()?;
    channel.quiet().during("the plain one")?;
    pair.b.recv(2)?;
    channel.wait_ack(&pair.b.rcq)?;
    pair.a.scq.wait_all_ok::<2>().map(drop)
}

fn existing_raise_nothing(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    leave_one(&pair, small(&pair, 1))?;
    leave_one(&pair, small(&pair, 2))?;
    pair.b.rcq.arm(Notify::Next)?;
    channel.quiet()?;
    leave_one(&pair, small(&pair, 3))?;
    channel.wait_ack(&pair.b.rcq)?;
    pair.b.rcq.wait_all_ok::<3>()?;
    Ok(())
}

fn each_cq_on_its_own(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.a.rcq.arm(Notify::Next)?;
    pair.b.scq.arm(Notify::Next)?;
    pair.exchange()?;
    channel.quiet()
}

fn cq_without_channel(rig: &Rig) -> Outcome {
    let pair = rig.pair(RC)?;
    for notify in [Notify::Next, Notify::Solicited] {
        pair.a.scq.arm(notify)?;
        pair.b.rcq.arm(notify)?;
        pair.exchange()?;
    }
    Ok(())
}

fn unsignaled_raise_nothing(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.a.scq.arm(Notify::Next)?;
    pair.b.recv(1)?;
    pair.a.qp.send(small(&pair, 2).unsignaled())?;
    pair.b.rcq.wait_ok()?;
    channel.quiet()
}
