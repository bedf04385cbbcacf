//! Events and polling: an event means that there are completions, but not how many.

use super::super::common::*;
use super::wired::{leave_one, wired};
use crate::check::{During, Outcome, same};
use crate::rig::{Notify, Rig, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::NOTIFY, says, test);
    vec![
        row(
            "notify/event-takes-no-completion",
            "The event tells of the completion and doesn't take it: it is polled after",
            event_takes_no_completion,
        ),
        row(
            "notify/one-event-many-completions",
            "One event may stand for many completions: who polls until empty finds them all",
            one_event_many_completions,
        ),
        row(
            "notify/drained-partly-stays-silent",
            "What was left in the CQ raises no event when asked again: it must be polled",
            drained_partly,
        ),
        row(
            "notify/poll-after-asking-closes-the-gap",
            "A completion between the last poll and the request raises nothing, and is found by polling once more",
            poll_after_asking,
        ),
    ]
}

fn event_takes_no_completion(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Next)?;
    pair.b.recv(7)?;
    pair.a.qp.send(small(&pair, 8))?;
    channel.wait_ack(&pair.b.rcq)?;
    let found = pair.b.rcq.poll(4)?;
    same("completions right after the event", found.iter().map(|wc| wc.id).collect(), vec![7])?;
    pair.a.scq.wait_ok()?;
    pair.b.rcq.quiet()
}

fn one_event_many_completions(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    for id in 0..10 {
        pair.b.recv(id)?;
    }
    pair.b.rcq.arm(Notify::Next)?;
    let list: Vec<Wr> = (0..10).map(|id| small(&pair, id)).collect();
    pair.a.qp.post_send(&list)?;
    pair.a.scq.wait_all_ok::<10>()?;
    channel.wait_ack(&pair.b.rcq)?;
    let wcs = pair.b.rcq.wait_all_ok::<10>()?;
    same("the receives", wcs.map(|wc| wc.id), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])?;
    channel.quiet()
}

fn drained_partly(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Next)?;
    for id in 0..10 {
        leave_one(&pair, small(&pair, id))?;
    }
    channel.wait_ack(&pair.b.rcq)?;
    pair.b.rcq.wait_all_ok::<2>()?;
    pair.b.rcq.arm(Notify::Next)?;
    channel.quiet()?;
    pair.b.rcq.wait_all_ok::<8>().during("the rest")?;
    Ok(())
}

fn poll_after_asking(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    same("completions at first", pair.b.rcq.poll(1)?.len(), 0)?;
    leave_one(&pair, small(&pair, 1))?;
    pair.b.rcq.arm(Notify::Next)?;
    channel.quiet()?;
    same("completions after asking", pair.b.rcq.poll(4)?.len(), 1)?;
    deliver(&pair, small(&pair, 2))?;
    channel.wait_ack(&pair.b.rcq).map(drop)
}
