//! `ibv_req_notify_cq`: what raises an event, how often, and what doesn't.

use super::common::*;
use crate::check::{During, Outcome, ensure, same};
use crate::rig::{Cap, Channel, Link, Notify, Op, Pair, Recv, Rig, SideSpec, Status, Transport, Wr};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::NOTIFY, says, test);
    let no_send_error: (&str, &str, &str) = (
        "expected a completion event, got none",
        "a failed send raises no solicited event",
        "rxe_completer() posts send completions with solicited 0, whatever their status",
    );
    let mut rows = Vec::new();
    for transport in [RC, UC, UD] {
        let t = name(transport);
        let of = |rule: String, says, test: fn(&Rig, Transport) -> Outcome| {
            Row::new(rule, page::NOTIFY, says, move |rig: &Rig| test(rig, transport))
        };
        rows.extend([
            of(format!("notify/{t}-next-send"), "The next completion of a send raises an event", next_send),
            of(format!("notify/{t}-next-receive"), "The next completion of a receive raises an event", next_receive),
            of(
                format!("notify/{t}-solicited-send-raises"),
                "A SEND with SOLICITED raises an event for who asked for solicited ones",
                solicited_send_raises,
            ),
            of(
                format!("notify/{t}-plain-send-does-not"),
                "A SEND without SOLICITED raises none for who asked for solicited ones",
                plain_send_does_not,
            ),
            of(
                format!("notify/{t}-flush-counts-as-solicited"),
                "A flushed receive raises a solicited event: it is unsuccessful",
                flush_counts_as_solicited,
            ),
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
            "notify/failed-send-counts-as-solicited",
            "An unsuccessful send completion raises a solicited event",
            failed_send_counts_as_solicited,
        )
        .rxe(no_send_error.0, no_send_error.1, no_send_error.2),
        row(
            "notify/failed-receive-counts-as-solicited",
            "An unsuccessful receive completion raises a solicited event, whatever the sender's flags",
            failed_receive_counts_as_solicited,
        )
        .rxe(
            no_send_error.0,
            "a failed receive raises a solicited event only if the message had SOLICITED",
            "rxe's do_complete() looks at the packet's flag, whatever the status",
        ),
        row(
            "notify/solicited-write-with-imm-raises",
            "An RDMA WRITE WITH IMMEDIATE with SOLICITED raises a solicited event",
            solicited_write_with_imm_raises,
        ),
        row(
            "notify/plain-write-with-imm-does-not",
            "An RDMA WRITE WITH IMMEDIATE without SOLICITED raises no solicited event",
            plain_write_with_imm_does_not,
        ),
        row(
            "notify/solicited-means-nothing-to-a-plain-write",
            "SOLICITED is relevant for SEND and RDMA WRITE WITH IMMEDIATE only: a WRITE raises nothing at the peer",
            solicited_plain_write,
        ),
        row(
            "notify/solicited-means-nothing-to-reads-and-atomics",
            "SOLICITED is relevant for SEND and RDMA WRITE WITH IMMEDIATE only: a READ or an atomic wakes neither side",
            solicited_reads_and_atomics,
        )
        .needs(Cap::Atomics),
        row(
            "notify/next-spends-solicited-too",
            "Requests of both types that are pending together are one: its event spends both",
            next_spends_solicited_too,
        ),
        row(
            "notify/solicited-send-does-not-wake-its-sender",
            "A successful send completion is not a solicited event, even of a SEND with SOLICITED",
            solicited_does_not_wake_its_sender,
        ),
        row(
            "notify/imm-send-solicited-raises",
            "A SEND WITH IMMEDIATE with SOLICITED raises a solicited event",
            imm_send_solicited_raises,
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
            "notify/existing-solicited-completions-raise-nothing",
            "Solicited completions that were in the CQ before the request raise no solicited event; the next one does",
            existing_solicited_raise_nothing,
        ),
        row(
            "notify/pending-next-absorbs-another",
            "While a request is pending, another of the same type has no effect: one event",
            pending_next_absorbs,
        ),
        row(
            "notify/pending-solicited-absorbs-another",
            "While a solicited request is pending, another one has no effect: one event",
            pending_solicited_absorbs,
        ),
        row(
            "notify/next-then-solicited-is-next",
            "A request for the next completion takes precedence over a later one for solicited",
            next_then_solicited,
        ),
        row(
            "notify/solicited-then-next-is-next",
            "A request for the next completion takes precedence over an earlier one for solicited",
            solicited_then_next,
        ),
        row(
            "notify/any-number-but-0-is-solicited",
            "solicited_only is 0 for the next completion; any other number is for solicited ones",
            any_number_is_solicited,
        ),
        row(
            "notify/many-requests-one-for-next",
            "If at least one of several requests was for the next completion, the next one raises the event",
            many_requests,
        ),
        row(
            "notify/one-event-per-request",
            "After the event, completions raise none until it is asked for again",
            one_event_per_request,
        ),
        row(
            "notify/asked-again-raises-again",
            "Asked for again, the next completion raises an event again",
            asked_again,
        ),
        row(
            "notify/asked-again-before-the-event-is-read",
            "The request counts from when the event occurred, not from when it was read",
            asked_again_before_read,
        ),
        row(
            "notify/pending-outlives-solicited-miss",
            "A pending solicited request survives completions that aren't solicited",
            pending_outlives_miss,
        ),
        row(
            "notify/asking-again-without-polling-keeps-the-request",
            "Asking again when nothing was polled in between loses nothing",
            asking_without_polling,
        ),
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

/// A pair whose four completion queues are on the channel.
fn wired(rig: &Rig, transport: Transport) -> Outcome<(Channel, Pair)> {
    let channel = rig.channel()?;
    let spec = SideSpec { channel: Some(&channel), ..SideSpec::default() };
    let pair = rig.pair_with(transport, spec, Link::default())?;
    Ok((channel, pair))
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

fn failed_send_counts_as_solicited(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.a.scq.arm(Notify::Solicited)?;
    pair.a.qp.send(failing(&pair, 1))?;
    same("the completion", pair.a.scq.wait_one()?.status, Status::LOC_PROT_ERR)?;
    channel.wait_soon(&pair.a.scq)
}

fn failed_receive_counts_as_solicited(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Solicited)?;
    pair.b.qp.recv(Recv::new(1).sge(pair.b.mr.sge(0..1)))?;
    pair.a.qp.send(small(&pair, 2))?;
    ensure(!pair.b.rcq.wait_one()?.ok(), "the receive fails: it is too short")?;
    channel.wait_soon(&pair.b.rcq)
}

fn flush_counts_as_solicited(rig: &Rig, transport: Transport) -> Outcome {
    let (channel, pair) = wired(rig, transport)?;
    pair.b.recv(1)?;
    pair.b.rcq.arm(Notify::Solicited)?;
    pair.b.qp.to_err()?;
    channel.wait_ack(&pair.b.rcq)?;
    flushed(&pair.b.rcq.wait(1)?, &[1])
}

fn solicited_send_raises(rig: &Rig, transport: Transport) -> Outcome {
    for bytes in SIZES.into_iter().filter(|&bytes| bytes <= rig.port().attr.mtu_bytes()) {
        let (channel, pair) = wired(rig, transport)?;
        pair.b.rcq.arm(Notify::Solicited)?;
        deliver(&pair, sized(&pair, 1, bytes).solicited())?;
        channel.wait_ack(&pair.b.rcq).during(format_args!("{bytes} bytes"))?;
        channel.quiet()?;
    }
    Ok(())
}

fn plain_send_does_not(rig: &Rig, transport: Transport) -> Outcome {
    for bytes in SIZES.into_iter().filter(|&bytes| bytes <= rig.port().attr.mtu_bytes()) {
        let (channel, pair) = wired(rig, transport)?;
        pair.b.rcq.arm(Notify::Solicited)?;
        deliver(&pair, sized(&pair, 1, bytes))?;
        channel.quiet().during(format_args!("{bytes} bytes"))?;
    }
    Ok(())
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

fn solicited_write_with_imm_raises(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Solicited)?;
    deliver(&pair, pair.any(1, Op::WriteImm).solicited())?;
    channel.wait_ack(&pair.b.rcq)?;
    channel.quiet()
}

fn plain_write_with_imm_does_not(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Solicited)?;
    deliver(&pair, pair.any(1, Op::WriteImm))?;
    channel.quiet()
}

fn solicited_plain_write(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.recv(1)?;
    pair.b.rcq.arm(Notify::Next)?;
    pair.a.qp.send(pair.any(1, Op::Write).solicited())?;
    pair.a.scq.wait_ok()?;
    channel.quiet()?;
    pair.b.rcq.quiet()
}

fn solicited_reads_and_atomics(rig: &Rig) -> Outcome {
    for op in [Op::Read, Op::FetchAdd, Op::CmpSwap] {
        let (channel, pair) = wired(rig, RC)?;
        pair.b.recv(1)?;
        pair.b.rcq.arm(Notify::Next)?;
        pair.a.scq.arm(Notify::Solicited)?;
        pair.a.qp.send(pair.any(1, op).solicited())?;
        pair.a.scq.wait_ok()?;
        channel.quiet().during(format_args!("{op:?}"))?;
        pair.b.rcq.quiet()?;
    }
    Ok(())
}

fn next_spends_solicited_too(rig: &Rig) -> Outcome {
    use Notify::{Next, Solicited};
    for requests in [[Next, Solicited], [Solicited, Next]] {
        let (channel, pair) = wired(rig, RC)?;
        for request in requests {
            pair.b.rcq.arm(request)?;
        }
        deliver(&pair, small(&pair, 1))?;
        channel.wait_ack(&pair.b.rcq).during(format_args!("{requests:?}"))?;
        deliver(&pair, small(&pair, 2).solicited())?;
        channel.quiet().during(format_args!("{requests:?}"))?;
    }
    Ok(())
}

fn solicited_does_not_wake_its_sender(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.a.scq.arm(Notify::Solicited)?;
    deliver(&pair, small(&pair, 1).solicited())?;
    channel.quiet()
}

fn imm_send_solicited_raises(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Solicited)?;
    deliver(&pair, small(&pair, 1).imm(5).solicited())?;
    channel.wait_ack(&pair.b.rcq).map(drop)
}

/// A message from `a` whose completions stay unpolled at `b`.
fn leave_one(pair: &Pair, wr: Wr) -> Outcome {
    pair.b.recv(1)?;
    pair.a.qp.send(wr)?;
    pair.a.scq.wait_ok()?;
    // The receive completes before the sender hears of it on RC, which is what these rows use.
    Ok(())
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

fn existing_solicited_raise_nothing(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    leave_one(&pair, small(&pair, 1).solicited())?;
    pair.b.rcq.arm(Notify::Solicited)?;
    channel.quiet()?;
    leave_one(&pair, small(&pair, 2).solicited())?;
    channel.wait_ack(&pair.b.rcq)?;
    pair.b.rcq.wait_all_ok::<2>()?;
    Ok(())
}

/// Three solicited messages after `requests`; how many events they raised.
fn events_of(rig: &Rig, requests: &[Notify]) -> Outcome<u32> {
    let (channel, pair) = wired(rig, RC)?;
    for &request in requests {
        pair.b.rcq.arm(request)?;
    }
    for id in 0..3 {
        deliver(&pair, small(&pair, id).solicited())?;
    }
    let mut events = 0;
    if !requests.is_empty() {
        channel.wait_ack(&pair.b.rcq)?;
        events = 1;
    }
    channel.quiet()?;
    Ok(events)
}

fn pending_next_absorbs(rig: &Rig) -> Outcome {
    same("events", events_of(rig, &[Notify::Next, Notify::Next, Notify::Next])?, 1)
}

fn pending_solicited_absorbs(rig: &Rig) -> Outcome {
    same("events", events_of(rig, &[Notify::Solicited, Notify::Solicited])?, 1)
}

/// After these requests a plain message raises the one event.
fn plain_raises_after(rig: &Rig, requests: &[Notify]) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    for &request in requests {
        pair.b.rcq.arm(request)?;
    }
    deliver(&pair, small(&pair, 1))?;
    channel.wait_ack(&pair.b.rcq)?;
    deliver(&pair, small(&pair, 2).solicited())?;
    channel.quiet()
}

fn next_then_solicited(rig: &Rig) -> Outcome {
    plain_raises_after(rig, &[Notify::Next, Notify::Solicited])
}

fn solicited_then_next(rig: &Rig) -> Outcome {
    plain_raises_after(rig, &[Notify::Solicited, Notify::Next])
}

fn many_requests(rig: &Rig) -> Outcome {
    use Notify::{Next, Solicited};
    plain_raises_after(rig, &[Solicited, Solicited, Next, Solicited, Solicited])
}

fn any_number_is_solicited(rig: &Rig) -> Outcome {
    for number in [2, -1] {
        let (channel, pair) = wired(rig, RC)?;
        pair.b.rcq.arm(Notify::Other(number))?;
        deliver(&pair, small(&pair, 1))?;
        channel.quiet().during(number)?;
        deliver(&pair, small(&pair, 2).solicited())?;
        channel.wait_ack(&pair.b.rcq).during(number)?;
    }
    Ok(())
}

fn one_event_per_request(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Next)?;
    deliver(&pair, small(&pair, 1))?;
    channel.wait_ack(&pair.b.rcq)?;
    for id in 2..5 {
        deliver(&pair, small(&pair, id).solicited())?;
    }
    channel.quiet()
}

fn asked_again(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    for round in 0..5 {
        let notify = if round % 2 == 0 { Notify::Next } else { Notify::Solicited };
        pair.b.rcq.arm(notify)?;
        deliver(&pair, small(&pair, round).solicited())?;
        channel.wait_ack(&pair.b.rcq).during(format_args!("round {round}"))?;
    }
    channel.quiet()
}

fn asked_again_before_read(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Next)?;
    deliver(&pair, small(&pair, 1))?;
    ensure(channel.becomes_readable(), "the event occurred")?;
    // It occurred, so this is a request of its own.
    pair.b.rcq.arm(Notify::Next)?;
    deliver(&pair, small(&pair, 2))?;
    channel.wait_ack(&pair.b.rcq)?;
    channel.wait_ack(&pair.b.rcq).during("the second event")?;
    channel.quiet()
}

fn pending_outlives_miss(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    pair.b.rcq.arm(Notify::Solicited)?;
    deliver(&pair, small(&pair, 1))?;
    deliver(&pair, small(&pair, 2))?;
    channel.quiet()?;
    deliver(&pair, small(&pair, 3).solicited())?;
    channel.wait_ack(&pair.b.rcq).map(drop)
}

fn asking_without_polling(rig: &Rig) -> Outcome {
    let (channel, pair) = wired(rig, RC)?;
    for round in 0..4 {
        pair.b.rcq.arm(Notify::Next)?;
        pair.b.rcq.arm(Notify::Next)?;
        leave_one(&pair, small(&pair, round))?;
        channel.wait_ack(&pair.b.rcq).during(format_args!("round {round}"))?;
    }
    pair.b.rcq.wait_all_ok::<4>()?;
    Ok(())
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
