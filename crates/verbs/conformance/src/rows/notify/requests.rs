//! Requests: which one counts when several are pending, and which completions fulfil it.

use super::super::common::*;
use super::wired::{leave_one, wired};
use crate::check::{During, Outcome, ensure, same};
use crate::rig::{Notify, Rig};
use crate::suite::Row;

pub(super) fn rows() -> Vec<Row> {
    let row = |rule, says, test: fn(&Rig) -> Outcome| Row::new(rule, page::NOTIFY, says, test);
    vec![
        row(
            "notify/next-spends-solicited-too",
            "Requests of both types that are pending together are one: its event spends both",
            next_spends_solicited_too,
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
    ]
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

/// Sends three solicited messages after `requests`; returns the number of events.
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

/// Checks that a plain message after these requests raises one event.
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
    // The event occurred, so this is a separate request.
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
