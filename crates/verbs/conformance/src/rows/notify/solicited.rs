//! Solicited completions: messages with the sender's flag that consume a receive, and every
//! failure.

use super::super::common::*;
use super::failures::failed_send;
use super::wired::{each, leave_one, wired};
use crate::check::{During, Outcome, ensure};
use crate::rig::{Cap, Notify, Op, Recv, Rig, Transport};
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
        rows.extend([
            each(
                transport,
                "solicited-send-raises",
                "A SEND with SOLICITED raises an event for who asked for solicited ones",
                solicited_send_raises,
            ),
            each(
                transport,
                "plain-send-does-not",
                "A SEND without SOLICITED raises none for who asked for solicited ones",
                plain_send_does_not,
            ),
            each(
                transport,
                "flush-counts-as-solicited",
                "A flushed receive raises a solicited event: it is unsuccessful",
                flush_counts_as_solicited,
            ),
        ]);
    }
    rows.extend([
        row(
            "notify/failed-send-counts-as-solicited",
            "An unsuccessful send completion raises a solicited event",
            |rig: &Rig| failed_send(rig, RC),
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
            "notify/existing-solicited-completions-raise-nothing",
            "Solicited completions that were in the CQ before the request raise no solicited event; the next one does",
            existing_solicited_raise_nothing,
        ),
        row(
            "notify/any-number-but-0-is-solicited",
            "solicited_only is 0 for the next completion; any other number is for solicited ones",
            any_number_is_solicited,
        ),
    ]);
    rows
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
        // The first message of a connection may be handled differently.
        for at in 1..=2 {
            pair.b.rcq.arm(Notify::Solicited)?;
            deliver(&pair, sized(&pair, at, bytes).solicited())?;
            channel.wait_ack(&pair.b.rcq).during(format_args!("message {at} of {bytes} bytes"))?;
            channel.quiet()?;
        }
    }
    Ok(())
}

fn plain_send_does_not(rig: &Rig, transport: Transport) -> Outcome {
    for bytes in SIZES.into_iter().filter(|&bytes| bytes <= rig.port().attr.mtu_bytes()) {
        let (channel, pair) = wired(rig, transport)?;
        pair.b.rcq.arm(Notify::Solicited)?;
        for at in 1..=2 {
            deliver(&pair, sized(&pair, at, bytes))?;
            channel.quiet().during(format_args!("message {at} of {bytes} bytes"))?;
        }
    }
    Ok(())
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
