//! Completion channels: `ibv_get_cq_event(3)`, acknowledgement, and destruction.

use super::common::*;
use crate::check::{Failure, Outcome, ensure, same};
use crate::rig::{Channel, Cq, Link, Notify, Pair, Qp, QpCap, Recv, Rig, SideSpec};
use crate::suite::Row;
use std::collections::HashSet;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::GET_CQ_EVENT, says, test);
    vec![
        row(
            "channel/event-names-its-cq-and-context",
            "An event hands back the CQ and the cq_context that it was created with",
            event_names_cq_and_context,
        ),
        row(
            "channel/non-blocking-is-eagain",
            "On a non-blocking descriptor without an event, ibv_get_cq_event fails with EAGAIN",
            non_blocking_is_eagain,
        ),
        row(
            "channel/descriptor-tells-of-events",
            "The descriptor is readable when there is an event, and not when there is none",
            descriptor_tells,
        ),
        row(
            "channel/blocks-by-default",
            "A channel's descriptor is blocking until it is told otherwise",
            blocks_by_default,
        ),
        row("channel/blocks-until-an-event", "On a blocking descriptor it waits for the event", blocks_until_an_event),
        row("channel/shared-by-several-cqs", "Several CQs share a channel: each event says whose it is", shared),
        row(
            "channel/several-acknowledged-in-one-call",
            "ibv_ack_cq_events takes several events at once",
            several_acknowledged,
        ),
        row(
            "channel/acknowledging-late-is-fine",
            "Events may be acknowledged long after they were got, with others in between",
            acknowledging_late,
        ),
        row(
            "channel/destroy-waits-for-acknowledgement",
            "ibv_destroy_cq waits until every event that was got is acknowledged",
            destroy_waits,
        ),
        row(
            "channel/destroy-drops-unread-events",
            "ibv_destroy_cq does not wait for events that nobody got: they are gone with the CQ",
            destroy_drops_unread,
        ),
        row(
            "channel/not-destroyed-under-a-cq",
            "A channel with CQs is EBUSY; without them it can be destroyed",
            not_destroyed_under_a_cq,
        ),
        Row::new(
            "channel/comp-vector-has-bounds",
            page::CREATE_CQ,
            "comp_vector is below num_comp_vectors; above, creation fails",
            comp_vector_has_bounds,
        ),
    ]
}

/// A pair with its CQs on a channel. Giving `b`'s receives a CQ of the row's own would be more
/// trouble.
fn wired(rig: &Rig) -> Outcome<(Channel, Pair)> {
    let channel = rig.far().channel()?;
    let spec = SideSpec { channel: Some(&channel), ..SideSpec::default() };
    let pair = rig.pair_with(RC, spec, Link::default())?;
    Ok((channel, pair))
}

fn event_names_cq_and_context(rig: &Rig) -> Outcome {
    let channel = rig.channel()?;
    let cq = Cq::create_with(rig.context(), 16, Some(&channel), 0xc0ffee, 0)?;
    let pair = flushing(rig, &cq)?;
    let event = channel.wait_ack(&cq)?;
    ensure(event.is(&cq), "the event is the CQ's")?;
    same("cq_context", event.cookie, 0xc0ffee)?;
    flushed(&cq.wait(1)?, &[1])?;
    drop(pair);
    Ok(())
}

/// A queue pair on `cq`, which is armed for the next completion and gets a flushed receive.
fn flushing(rig: &Rig, cq: &Cq) -> Outcome<Qp> {
    let qp = Qp::on(rig.pd(), RC, cq, QpCap::default())?;
    qp.to_init()?;
    qp.recv(Recv::new(1))?;
    cq.arm(Notify::Next)?;
    qp.to_err()?;
    Ok(qp)
}

fn non_blocking_is_eagain(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig)?;
    ensure(channel.try_event(&[&pair.a.scq])?.is_none(), "there is no event yet")?;
    pair.b.rcq.arm(Notify::Next)?;
    pair.exchange()?;
    channel.wait_ack(&pair.b.rcq)?;
    ensure(channel.try_event(&[&pair.b.rcq])?.is_none(), "there is no second event")
}

fn descriptor_tells(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig)?;
    ensure(!channel.is_readable(), "the descriptor isn't readable before")?;
    pair.b.rcq.arm(Notify::Next)?;
    ensure(!channel.is_readable(), "asking makes it not readable")?;
    pair.exchange()?;
    ensure(channel.becomes_readable(), "it becomes readable with the event")?;
    channel.wait_ack(&pair.b.rcq)?;
    ensure(!channel.is_readable(), "it isn't readable after the event was got")
}

fn blocks_by_default(rig: &Rig) -> Outcome {
    ensure(rig.channel()?.came_blocking(), "O_NONBLOCK is not set when a channel is created")
}

fn blocks_until_an_event(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig)?;
    pair.b.rcq.arm(Notify::Next)?;
    let event = channel.block_while(&pair.b.rcq, || pair.exchange())?;
    ensure(event.is(&pair.b.rcq), "the event is the CQ's")?;
    pair.b.rcq.ack(1);
    Ok(())
}

fn shared(rig: &Rig) -> Outcome {
    rig.is_alone("a channel is of one device")?;
    let (channel, pair) = wired(rig)?;
    let cqs = [&pair.a.scq, &pair.b.rcq];
    for cq in cqs {
        cq.arm(Notify::Next)?;
    }
    pair.exchange()?;
    let mut whose = HashSet::new();
    for _ in cqs {
        ensure(channel.becomes_readable(), "there is an event for each CQ")?;
        let event = channel.try_event(&cqs)?.ok_or_else(|| Failure::new("expected an event, got none"))?;
        let at = cqs.iter().position(|cq| event.is(cq)).ok_or_else(|| Failure::new("an event of another CQ"))?;
        cqs[at].ack(1);
        whose.insert(at);
    }
    same("CQs with an event", whose.len(), 2)?;
    channel.quiet()
}

fn several_acknowledged(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig)?;
    for _ in 0..5 {
        pair.b.rcq.arm(Notify::Next)?;
        pair.exchange()?;
        channel.wait(&pair.b.rcq)?;
    }
    pair.b.rcq.ack(5);
    pair.b.qp.try_destroy()?;
    // Would wait for ever if one of the five were missing.
    Ok(pair.b.rcq.try_destroy()?)
}

fn acknowledging_late(rig: &Rig) -> Outcome {
    rig.is_alone("a channel is of one device")?;
    let (channel, pair) = wired(rig)?;
    for _ in 0..3 {
        pair.a.scq.arm(Notify::Next)?;
        pair.b.rcq.arm(Notify::Next)?;
        pair.exchange()?;
        for _ in 0..2 {
            ensure(channel.becomes_readable(), "there is an event for each CQ")?;
            channel.try_event(&[&pair.a.scq, &pair.b.rcq])?;
        }
    }
    pair.b.rcq.ack(2);
    pair.a.scq.ack(3);
    pair.b.rcq.ack(1);
    pair.a.qp.try_destroy()?;
    pair.b.qp.try_destroy()?;
    pair.a.scq.try_destroy()?;
    Ok(pair.b.rcq.try_destroy()?)
}

fn destroy_waits(rig: &Rig) -> Outcome {
    let channel = rig.channel()?;
    let cq = rig.cq_on(&channel, 16)?;
    let qp = flushing(rig, &cq)?;
    channel.wait(&cq)?;
    qp.try_destroy()?;
    cq.destroy_while(|destroying| {
        destroying.hangs()?;
        cq.ack(1);
        Ok(())
    })
}

fn destroy_drops_unread(rig: &Rig) -> Outcome {
    let channel = rig.channel()?;
    let cq = rig.cq_on(&channel, 16)?;
    let qp = flushing(rig, &cq)?;
    ensure(channel.becomes_readable(), "there is an event")?;
    qp.try_destroy()?;
    cq.try_destroy()?;
    ensure(channel.try_event(&[])?.is_none(), "the event is gone with its CQ")?;
    ensure(!channel.is_readable(), "the descriptor isn't readable any more")
}

fn not_destroyed_under_a_cq(rig: &Rig) -> Outcome {
    let channel = rig.channel()?;
    let cq = rig.cq_on(&channel, 16)?;
    refused_with("destroying the channel of a CQ", channel.try_destroy(), libc::EBUSY)?;
    cq.try_destroy()?;
    Ok(channel.try_destroy()?)
}

fn comp_vector_has_bounds(rig: &Rig) -> Outcome {
    let channel = rig.channel()?;
    let vectors = rig.context().comp_vectors();
    ensure(vectors > 0, "there is a completion vector")?;
    Cq::create_with(rig.context(), 16, Some(&channel), 0, vectors - 1)?;
    match Cq::create_with(rig.context(), 16, Some(&channel), 0, vectors) {
        Ok(_) => Err(Failure::new(format!("expected a refusal of comp_vector {vectors}, a CQ was created"))),
        Err(_) => Ok(()),
    }
}
